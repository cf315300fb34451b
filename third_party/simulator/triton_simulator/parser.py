"""TTGIR text into a tree of operations.

The custom assembly of each operation has a form of its own, but all share enough to be read alike: results, a name,
operands in order, attributes in braces, types after a colon, a location. What an operation means is left to translate.py.
"""

import dataclasses
import re


@dataclasses.dataclass
class Op:
    name: str
    results: list  # names of the SSA values, one per result
    operands: list  # names of the SSA values in the order of the text
    text: str  # the line without results, types and location
    attributes: dict  # of the braces, as text
    types: str  # all after the last top-level colon
    location: str
    regions: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Region:
    ops: list
    arguments: list = dataclasses.field(default_factory=list)  # (name, type)
    label: str = ""


@dataclasses.dataclass
class Function:
    name: str
    arguments: list
    region: Region
    public: bool
    location: str


VALUE = r"%[\w.$-]+(?:#\d+)?"
_RESULTS = re.compile(r"^((?:%[\w.$-]+(?::\d+)?)(?:,\s*%[\w.$-]+(?::\d+)?)*)\s*=\s*")
_ARGUMENT = re.compile(r"(%[\w.$-]+): ")
_OPEN, _CLOSE = "([{<", ")]}>"


def find(pattern, text):
    """The first match, which must be there."""
    match = re.search(pattern, text)
    if match is None:
        raise SyntaxError(f"the simulator cannot read this operation: {text[:200]}")
    return match


def top_level_split(text, separator):
    """Split at the separators that stand outside all brackets and strings."""
    parts, depth, start, quoted, index = [], 0, 0, False, 0
    while index < len(text):
        character = text[index]
        if character == '"':
            quoted = not quoted
        elif not quoted:
            if text.startswith("->", index):
                index += 2
                continue
            if character in _OPEN:
                depth += 1
            elif character in _CLOSE:
                depth -= 1
            elif depth == 0 and text.startswith(separator, index):
                parts.append(text[start:index])
                index += len(separator)
                start = index
                continue
        index += 1
    parts.append(text[start:])
    return parts


def strip_location(line):
    """A line and its trailing location, if it has one."""
    if not line.endswith(")"):
        return line, ""
    depth, quoted = 0, False
    for index in range(len(line) - 1, -1, -1):
        character = line[index]
        if character == '"':
            quoted = not quoted
        if quoted:
            continue
        depth += (character == ")") - (character == "(")
        if depth == 0:
            if line[:index].endswith(" loc"):
                return line[:index - 4].rstrip(), line[index + 1:-1]
            break
    return line, ""


class Locations:
    """Locations by name, resolved to the source line that the user wrote: the innermost of a chain of calls."""

    def __init__(self, lines):
        self.named = {}
        for line in lines:
            match = re.match(r"(#loc\d*) = loc\((.*)\)$", line)
            if match:
                self.named[match.group(1)] = match.group(2)

    def frames(self, text):
        """The (file, line) of a location, innermost first."""
        text = text.strip()
        seen = 0
        while text.startswith("#loc") and text in self.named and seen < 50:
            text, seen = self.named[text], seen + 1
        match = re.match(r'"([^"]*)":(\d+):\d+', text)
        if match:
            return [(match.group(1), int(match.group(2)))]
        match = re.match(r"callsite\((.*)\)$", text)
        if match:
            callee, caller = top_level_split(match.group(1), " at ")
            return self.frames(callee) + self.frames(caller)
        match = re.match(r'"[^"]*"\((.*)\)$', text)
        if match:
            return self.frames(match.group(1))
        match = re.match(r"fused(?:<.*>)?\[(.*)\]$", text)
        if match:
            return self.frames(top_level_split(match.group(1), ", ")[0])
        return []


def attributes_of(text):
    """The attributes in the last top-level braces of an operation's text."""
    attributes = {}
    for match in re.finditer(r"(?:<\{|\{)([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}>?", text):
        for part in top_level_split(match.group(1), ","):
            name, _, value = part.partition("=")
            if name.strip():
                attributes[name.strip()] = value.strip()
    return attributes


def split_types(text):
    """An operation's text without its types, and the types: what stands after the last top-level ' : '."""
    parts = top_level_split(text, " : ")
    if len(parts) == 1:
        return text, ""
    return " : ".join(parts[:-1]), parts[-1].strip()


class Parser:

    def __init__(self, text):
        lines = text.split("\n")
        self.locations = Locations(lines)
        self.aliases = {}
        self.lines = []
        for line in lines:
            if line.startswith("#"):
                name, _, value = line.partition(" = ")
                self.aliases[name] = value
            elif line.strip():
                self.lines.append(line.strip())
        self.at = 0
        self.module_attributes = {}
        self.functions = {}
        self.parse_module()

    def next(self):
        self.at += 1
        return self.lines[self.at - 1]

    def parse_module(self):
        line, _ = strip_location(self.next())
        self.module_attributes = {name.strip('"'): value for name, value in attributes_of(line).items()}
        while self.at < len(self.lines):
            line = self.next()
            if line.startswith("tt.func"):
                self.parse_function(line)
            elif not line.startswith("}"):
                raise SyntaxError(f"expected a function, found {line[:200]}")

    def parse_function(self, line):
        match = re.match(r'tt\.func (public|private)? ?(?:noinline )?@("[^"]*"|[\w.$-]+)\(', line)
        if match is None:
            raise SyntaxError(f"cannot read the function {line[:200]}")
        arguments = self.arguments(line[match.end() - 1:])
        region = self.parse_block()
        _, location = strip_location(self.closing)
        name = match.group(2).strip('"')
        self.functions[name] = Function(name, arguments, region, match.group(1) == "public", location)

    def arguments(self, text):
        """The (name, type) pairs in the parentheses that begin the text."""
        depth, quoted = 0, False
        for index, character in enumerate(text):
            quoted ^= character == '"'
            if not quoted:
                depth += (character == "(") - (character == ")")
                if depth == 0:
                    break
        arguments = []
        for part in top_level_split(text[1:index], ", "):
            part, _ = strip_location(part.strip())
            match = _ARGUMENT.match(part)
            if match:
                kind = part[match.end():]
                kind = top_level_split(kind, " {")[0] if " {" in kind else kind
                arguments.append((match.group(1), kind.strip()))
        return arguments

    def parse_block(self):
        """Operations up to the closing brace, which is left as the line just read, in ``self.closing``."""
        region = Region([])
        while True:
            line = self.next()
            if line.startswith("}"):
                self.closing = line
                return region
            if line.startswith("^bb"):
                region.arguments = self.arguments(line[line.index("("):]) if "(" in line else []
                continue
            region.ops.append(self.parse_op(line))

    def parse_op(self, line):
        line, location = strip_location(line)
        results: list[str] = []
        match = _RESULTS.match(line)
        if match:
            for result in match.group(1).split(","):
                name, _, count = result.strip().partition(":")
                results += [f"{name}#{index}" for index in range(int(count))] if count else [name]
            line = line[match.end():]
        if line.startswith("ttg.warp_specialize"):
            return self.parse_warp_specialize(results, line)
        opens = line.endswith("{") or line.endswith("({")
        body = line[:-2 if line.endswith("({") else -1].rstrip() if opens else line
        name = re.match(r'"?([\w.]+)"?', body)
        assert name is not None
        text, types = split_types(body)
        if body.startswith("scf.for"):
            head, _, types = body.partition(" -> ")
            text = split_types(head)[0]
            types = split_types(types)[0]
        elif body.startswith("scf.if"):
            text, _, types = body.partition(" -> ")
        op = Op(name.group(1), results, re.findall(VALUE, text), text, attributes_of(text), types, location)
        if not opens:
            return op
        while True:
            op.regions.append(self.parse_block())
            closing, location = strip_location(self.closing)
            op.location = location or op.location
            if closing.endswith("{"):  # } else {, } do {, }, {
                continue
            if closing.startswith("})"):
                op.types = split_types(closing)[1]
            return op

    def parse_warp_specialize(self, results, line):
        op = Op("ttg.warp_specialize", results, re.findall(VALUE,
                                                           line.split(")")[0]), line, attributes_of(line), "", "")
        while True:
            line = self.next()
            label = re.match(r"(default|partition\d+)", line)
            if label is None:
                raise SyntaxError(f"expected a partition, found {line[:200]}")
            arguments = self.arguments(line[line.index("("):]) if label.group(1) != "default" else []
            warps = re.search(r"num_warps\((\d+)\)", line)
            region = self.parse_block()
            region.arguments, region.label = arguments, label.group(1)
            region.warps = int(warps.group(1)) if warps else None
            op.regions.append(region)
            closing, location = strip_location(self.closing)
            if closing != "}":
                op.types, op.location = split_types(closing)[1], location
                return op
