"""What the stand-ins share: passes and diagnostics of the installed Triton's own libraries, behind upstream's command lines.

A pass is known by the name that its pass manager prints, so the table of passes is read from the wheel: each function that adds a
pass is called once with distinct arguments, and the pipeline that it makes says the pass's name and which argument is which option.
"""

import base64
import contextlib
import os
import re
import sys
import tempfile
import zlib

try:
    from triton._C.libtriton import ir, nvidia, passes
except ModuleNotFoundError:
    sys.exit(
        f"{os.path.basename(sys.argv[0])}: no Triton is installed for {sys.executable}; put its environment first on PATH"
    )


class UsageError(Exception):
    """Wrong words on a command line."""


def run_tool(main):
    """The tool's main with the command line's words; what is wrong with them or with the input goes to stderr, exit code 1."""
    try:
        sys.exit(main(sys.argv[1:]))
    except (UsageError, OSError, RuntimeError) as error:  # the libraries raise RuntimeError after their diagnostics
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        sys.exit(1)


def value_of(word, arguments):
    """The value of an option: what follows '=', or the next word, which is taken from the arguments."""
    _, has_value, value = word.partition("=")
    if not has_value and not arguments:
        raise UsageError(f"'{word}' needs a value")
    return value if has_value else arguments.pop(0)


def write_output(text, path):
    if path in (None, "-"):
        print(text)
        return
    with open(path, "w") as file:
        file.write(text)


# -- passes -----------------------------------------------------------------------------------------------------------


class Pass:

    def __init__(self, name, add, options, fixed):
        self.name, self.add = name, add
        self.options = options  # (name, type) in the order of the function's arguments
        self.fixed = fixed  # options that the function does not take, with the value that it gives them

    def run_on(self, manager, values):
        arguments = []
        for name, kind in self.options:
            if name not in values:
                if name not in DEFAULTS:
                    raise UsageError(f"{self.name} needs {name}=...")
                values = {**values, name: DEFAULTS[name]}
            try:
                arguments.append(kind(values[name]))
            except ValueError:
                raise UsageError(f"{self.name}: {name}={values[name]} is not a number") from None
        for name in values:
            if name not in dict(self.options) and self.fixed.get(name) != values[name]:
                known = [option for option, _ in self.options]
                raise UsageError(f"the installed Triton's {self.name} takes no option {name}={values[name]}; it takes "
                                 f"{', '.join(known) or 'none'}")
        self.add(manager, *arguments)


def _bool(text):
    if text not in ("true", "false", "0", "1", ""):
        raise UsageError(f"expected true or false, not {text!r}")
    return text not in ("false", "0")


# As the definitions of Triton's passes give them.
DEFAULTS = {
    "compute-capability": "80", "ptx-version": "80", "num-stages": "3", "num-warps": "4", "threads-per-warp": "32",
    "num-ctas": "1", "dump-intermediate-steps": "false", "hoist-layout-conversion": "true", "emu-tf32": "false",
    "instrumented": "false", "post-pipeline": "false", "homomorphic-casts": "false", "minimum-size": "0",
    "enable-concurrency-sanitizer": "false", "disable-remat-splitting": "false"
}

KINDS = {
    "int": (int, lambda i: 71 + i), "typing.SupportsInt": (int, lambda i: 71 + i), "bool": (_bool, lambda i: True),
    "str": (str, lambda i: f"cuda:9{i}")
}


def pass_options(text):
    """The options in a pipeline's braces, or in a command line's value."""
    return dict(part.split("=", 1) if "=" in part else (part, "") for part in text.split())


def pass_table():
    """Every pass of the wheel by its name."""
    context = new_context()
    table = {}
    groups = [getattr(top, name) for top in (passes, nvidia.passes) for name in dir(top) if not name.startswith("_")]
    for group in groups:
        for function in (getattr(group, name) for name in dir(group) if name.startswith("add_")):
            kinds = [
                KINDS[kind]
                for kind in re.findall(r"arg\d+: (int|bool|str|typing.SupportsInt)\b", function.__doc__ or "")
            ]
            probes = [value(i) for i, (_, value) in enumerate(kinds)]
            manager = ir.pass_manager(context)
            function(manager, *probes)
            match = re.search(r"([\w-]+)(?:\{([^}]*)\})?\)+$", manager.get_pipeline_str())
            if match is None:
                continue
            printed = pass_options(match.group(2) or "")
            shown = [str(probe).lower() if isinstance(probe, bool) else str(probe) for probe in probes]
            names = [next((name for name, value in printed.items() if value == probe), None) for probe in shown]
            if None in names:
                continue
            fixed = {name: value for name, value in printed.items() if name not in names}
            table.setdefault(match.group(1),
                             Pass(match.group(1), function, [(n, k) for n, (k, _) in zip(names, kinds)], fixed))
    return table


# -- modules and diagnostics ------------------------------------------------------------------------------------------


def new_context():
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    return context


@contextlib.contextmanager
def captured_stderr():
    """What the libraries print on stderr, as a list with one text."""
    sys.stderr.flush()
    kept, text = os.dup(2), []
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))


_PLACE = re.compile(
    r'^(?:loc\((?:"[^"]*"\()?"(?P<file>[^"]*)":(?P<line>\d+):(?P<column>\d+)\)*|'
    r"(?P<file2>[^\s:]+):(?P<line2>\d+):(?P<column2>\d+)): (?P<kind>error|warning|remark|note): (?P<text>.*)$")
_NO_PLACE = re.compile(r"^(?:<unknown>:0|loc\(unknown\)): (?P<kind>error|warning|remark|note): (?P<text>.*)$")


class Diagnostic:

    def __init__(self, kind, line, column, text):
        self.kind, self.line, self.column, self.text = kind, line, column, text


def diagnostics(printed):
    """The diagnostics in what the libraries printed; other lines, such as quoted source, are left out."""
    found = []
    for line in printed.split("\n"):
        match = _PLACE.match(line)
        if match:
            at = match.group("line") or match.group("line2")
            column = match.group("column") or match.group("column2")
            found.append(Diagnostic(match.group("kind"), int(at), int(column), match.group("text")))
            continue
        match = _NO_PLACE.match(line)
        if match:
            found.append(Diagnostic(match.group("kind"), 0, 0, match.group("text")))
    return found


def read_input(path):
    if path in (None, "-"):
        return sys.stdin.read(), "<stdin>"
    with open(path) as file:
        return file.read(), path


_PACKED = "; mlir: "


def pack(text):
    """A comment that holds the MLIR which LLVM IR was made from, for opt."""
    return _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()


def unpack(text):
    for line in text.split("\n"):
        if line.startswith(_PACKED):
            return zlib.decompress(base64.b64decode(line[len(_PACKED):])).decode()
    return None


def parse_module(text, context):
    """A module from text. The libraries read files, so the text becomes one for a moment."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        return ir.parse_mlir_module(file.name, context)


# -- what the installed libraries have no setting for -----------------------------------------------------------------


class StandIns:
    """Operations of no dialect, as calls of private functions while the passes run.

    The libraries refuse an operation that no dialect knows. ``"op"(%x) {a} : (T) -> U`` becomes ``tt.call @stand_in(%x) {a} : (T) -> U``,
    which passes treat alike: they know nothing about it. Line numbers stay, since declarations go to the end of a module.
    """

    _GENERIC = re.compile(r'"([\w.$-]+)"\((%[^()]*|)\)( *\{[^{}]*\})? *: *\(')

    def __init__(self, context):
        self.names, self.context = {}, context

    def put(self, text):
        lines, declarations = text.split("\n"), []
        for number, line in enumerate(lines):
            match = self._GENERIC.search(line)
            if match is None or self.is_registered(match.group(1)) or line.rstrip().endswith("({"):
                continue
            types, rest = _balanced(line, match.end() - 1)
            arrow = re.match(r" *-> *", rest)
            if arrow is None:
                continue
            results, tail = _balanced(rest, arrow.end()) if rest[arrow.end():arrow.end() +
                                                                 1] == "(" else _one_type(rest[arrow.end():])
            symbol = f"__unregistered_{len(self.names)}"
            self.names[symbol] = match.group(1)
            lines[number] = (
                f"{line[:match.start()]}tt.call @{symbol}({match.group(2)}){match.group(3) or ''} : {types} -> "
                f"{results}{tail}")
            declarations.append(f"tt.func private @{symbol}{types}" + ("" if results == "()" else f" -> {results}"))
        if not declarations:
            return text
        text = "\n".join(lines)
        if re.search(r"^ *module\b", text, re.MULTILINE):
            end = text.rindex("}")
            return text[:end] + " ".join(declarations) + " " + text[end:]
        return text + " ".join(declarations)

    def take(self, text):
        lines = []
        for line in text.split("\n"):
            if re.match(r" *tt\.func private @__unregistered_\d+\(", line):
                continue
            lines.append(re.sub(r"tt\.call @(__unregistered_\d+)\(", lambda m: f'"{self.names[m.group(1)]}"(', line))
        return "\n".join(lines)

    @staticmethod
    def is_registered(name):
        dialect = name.partition(".")[0]
        return "." in name and dialect in DIALECTS


DIALECTS = ("tt", "ttg", "ttng", "nvws", "gluon", "tti", "nvg", "nvgpu", "arith", "math", "scf", "cf", "ub", "gpu",
            "llvm", "nvvm", "builtin", "index", "func", "amdg", "amdgpu", "rocdl", "proton")


def _balanced(text, start):
    """The parenthesized text that begins at ``start``, and what follows it."""
    depth = 0
    for index in range(start, len(text)):
        if text.startswith("->", index) or text[index - 1:index + 1] == "->":
            continue
        depth += (text[index] in "(<[{") - (text[index] in ")>]}")
        if depth == 0:
            return text[start:index + 1], text[index + 1:]
    return text[start:], ""


def _one_type(text):
    """A type that stands without parentheses, and what follows it."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if depth == 0 and character in " ,":
            return text[:index], text[index:]
    return text, ""


def without_aliases(text):
    """A printed module with the values of its attribute aliases in place of their names."""
    aliases, body = {}, []
    for line in text.split("\n"):
        match = re.match(r"(#\w+) = (.*)$", line)
        if match:
            aliases[match.group(1)] = match.group(2)
        else:
            body.append(line)
    text = "\n".join(body)
    for _ in range(len(aliases) + 1):
        replaced = re.sub(r"#\w+\b(?![.<])", lambda m: aliases.get(m.group(0), m.group(0)), text)
        if replaced == text:
            break
        text = replaced
    return text
