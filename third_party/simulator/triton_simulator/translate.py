"""A parsed kernel into Python: one generator function a partition, which yields where it must wait.

Scalars become Python numbers, register tensors torch tensors on the CPU (their layouts say who holds an element, not
what it is), memory descriptors views of memory.py. Whatever acts on memory or barriers is a call into machine.Cta.
"""

import os
import pathlib
import re

import torch
import triton

from . import functions
from .errors import NotSimulated
from .lowering import lower
from .parser import VALUE, Parser, find, top_level_split
from .tma import DeviceDescriptor

TRITON = os.path.join(os.path.dirname(triton.__file__), "")  # frames of Triton's own helpers are left out of messages

DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "si8": torch.int8,
    "si16": torch.int16, "si32": torch.int32, "ui8": torch.uint8, "ui16": torch.int16, "ui32": torch.int32, "f16":
    torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2
}

_SHAPED = re.compile(
    r"(?:!ttg\.memdesc|tensor|!tt\.tensordesc|!ttng\.tensordesc_im2col)<((?:\d+x)*)([^,>]*(?:<[^>]*>)?)")


def shape_of(type_text):
    """Shape and element type of a tensor or memory descriptor type; (None, type) for a scalar."""
    match = _SHAPED.match(type_text)
    if match is None:
        return None, type_text.strip()
    return [int(extent) for extent in match.group(1).split("x") if extent], match.group(2).strip()


def first_type(types):
    return top_level_split(types, ", ")[0].strip()


def result_type(types):
    """The type after an arrow or 'to', else the one type there is."""
    parts = top_level_split(types, " -> ") if "->" not in types else re.split(r"\s*->\s*", types)
    if len(parts) > 1:
        return parts[-1].strip()
    return re.split(r"\sto\s", types)[-1].strip()


class Program:
    """A kernel, translated: ``make(cta, arguments)`` gives the code of its first partition.

    ``path`` is where the kernel's source is. Triton's cache knows a kernel by its text, so TTGIR from there may name the place of
    another copy of the same file.
    """

    def __init__(self, ttgir, capability, path=None):
        self.parser = Parser(lower(ttgir, capability))
        attributes = self.parser.module_attributes
        if int(attributes.get("ttg.num-ctas", "1 : i32").split()[0]) != 1:
            raise NotSimulated("clusters (num_ctas > 1) are not simulated")
        self.num_warps = int(attributes["ttg.num-warps"].split()[0])
        self.shared_bytes = int(attributes.get("ttg.shared", "0 : i32").split()[0])
        self.tensor_columns = int(attributes.get("ttg.tensor_memory_size", "0 : i32").split()[0])
        public = [function for function in self.parser.functions.values() if function.public]
        self.kernel = public[0]
        self.moved = self.move(path)
        self.arguments = self.kernel.arguments
        self.sites: list[str] = []
        self.outermost: list[str] = []
        self.constants: list = []
        self.translated: dict[str, str] = {}
        self.helpers: list[str] = []
        source = Translator(self).kernel()
        source = self.source = "\n".join([*self.helpers, source])
        namespace = {
            "constants": self.constants, "torch": torch, "DeviceDescriptor": DeviceDescriptor, **functions.__dict__
        }
        exec(compile(source, f"<translated {self.kernel.name}>", "exec"), namespace)
        self.make = namespace["make"]

    def function(self, callee):
        """The Python name of a function that the kernel calls, translated on its first call."""
        if callee not in self.translated:
            self.translated[callee] = f"function_{len(self.translated)}"
            self.helpers.append(Translator(self).function(self.parser.functions[callee], self.translated[callee]))
        return self.translated[callee]

    def move(self, path):
        """What the paths in the TTGIR begin with, and what they shall begin with."""
        frames = self.parser.locations.frames(self.kernel.location)
        new = pathlib.PurePath(path or "")
        old = pathlib.PurePath(frames[-1][0]) if path and frames else new
        common = 0
        while common < min(len(old.parts), len(new.parts)) - 1 and old.parts[-common - 1] == new.parts[-common - 1]:
            common += 1
        return tuple(pathlib.PurePath(*place.parts[:len(place.parts) - common]) for place in (old, new))

    def frames(self, location):
        """The (file, line) of a location, innermost first, with the files where they are now."""
        old, new = self.moved
        found = []
        for file, line in self.parser.locations.frames(location):
            place = pathlib.PurePath(file)
            moved = str(new / place.relative_to(old)) if place.is_relative_to(old) else file
            found.append((moved if os.path.exists(moved) else file, line))
        return found


class Translator:

    def __init__(self, program):
        self.program = program
        self.lines, self.depth, self.count = [], 0, 0

    def kernel(self):
        names: dict[str, str] = {}
        parameters = [self.name(names, name) for name, _ in self.program.arguments]
        self.emit(f"def make(cta, {', '.join(parameters)}):")
        with self:
            self.emit("def code(me):")
            with self:
                self.emit("yield None")
                self.region(self.program.kernel.region, names)
            self.emit("return code")
        return "\n".join(self.lines) + "\n"

    def function(self, function, name):
        names: dict[str, str] = {}
        parameters = [self.name(names, argument) for argument, _ in function.arguments]
        self.emit(f"def {name}({', '.join(['cta', 'me', *parameters])}):")
        with self:
            self.emit("yield None")
            *_, last = function.region.ops
            self.region(function.region, names)
            self.emit(f"return {', '.join(names[v] for v in last.operands)}")
        return "\n".join(self.lines) + "\n"

    # -- writing ------------------------------------------------------------------------------------------------------

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1

    def emit(self, line):
        self.lines.append("    " * self.depth + line)

    def name(self, names, ssa):
        self.count += 1
        names[ssa] = f"v{self.count}"
        return names[ssa]

    def values(self, text, names):
        """The list of the values that a text names."""
        return "[" + ", ".join(names[value] for value in re.findall(VALUE, text)) + "]"

    def constant(self, value):
        self.program.constants.append(value)
        return f"constants[{len(self.program.constants) - 1}]"

    def site(self, op):
        frames = self.program.frames(op.location)
        own = [frame for frame in frames if not frame[0].startswith(TRITON)] or frames
        text = ", called from ".join(f"{file}:{line}" for file, line in own[:3]) or "unknown line"
        self.program.sites.append(f"{op.name} at {text}")
        self.program.outermost.append(f"{own[-1][0].rsplit('/', 1)[-1]}:{own[-1][1]}" if own else "")
        return len(self.program.sites) - 1

    # -- regions ------------------------------------------------------------------------------------------------------

    def region(self, region, names, targets=None):
        """Translate the operations; a yield assigns to ``targets``."""
        before = len(self.lines)
        for op in region.ops:
            if op.name in ("scf.yield", "ttg.warp_yield"):
                values = [names[value] for value in op.operands]
                if targets and values:
                    self.emit(f"{', '.join(targets)} = {', '.join(values)}")
            elif op.name in ("ttg.warp_return", "tt.return"):
                continue
            else:
                self.op(op, names)
        if len(self.lines) == before:
            self.emit("pass")

    def op(self, op, names):
        method = getattr(self, "op_" + op.name.replace(".", "_"), None)
        if method is not None:
            method(op, names)
            return
        operands = [names[value] for value in op.operands]
        scalar = functions.SCALAR.get(op.name)
        kind = result_type(op.types)
        shape, element = shape_of(kind)
        if scalar is not None and shape is None:
            expression = scalar.format(*operands, bits=functions.BITS.get(element, 0))
            self.emit(f"{self.name(names, op.results[0])} = {expression}")
            return
        function = functions.TENSOR.get(op.name)
        if function is None:
            site = self.site(op)
            self.emit(f"cta.unsupported({op.name!r}, {site})")
            for result in op.results:
                self.name(names, result)
            return
        site = self.site(op)
        arguments = [f"cta.value({operand}, {site})" for operand in operands]
        dtype = DTYPES.get(element)
        arguments.append(self.constant((shape, dtype, op.attributes)))
        results = ", ".join(self.name(names, result) for result in op.results) or "_"
        self.emit(f"{results} = {function}({', '.join(arguments)})")

    def registers(self, op, names):
        """Operands in registers, none of which may be an accumulator that is still in flight."""
        return [f"cta.value({names[v]}, {self.site(op)})" for v in op.operands]

    # -- control flow -------------------------------------------------------------------------------------------------

    def op_scf_for(self, op, names):
        inner = dict(names)
        induction, low, high, step, *pairs = op.operands
        carried = [self.name(inner, name) for name in pairs[0::2]]
        if carried:
            self.emit(f"{', '.join(carried)} = {', '.join(names[value] for value in pairs[1::2])}")
        iv = self.name(inner, induction)
        self.emit(f"for {iv} in range({names[low]}, {names[high]}, {names[step]}):")
        with self:
            self.region(op.regions[0], inner, carried)
        for result, variable in zip(op.results, carried):
            self.emit(f"{self.name(names, result)} = {variable}")

    def op_scf_if(self, op, names):
        results = [self.name(names, result) for result in op.results]
        self.emit(f"if {names[op.operands[0]]}:")
        with self:
            self.region(op.regions[0], dict(names), results)
        if len(op.regions) > 1:
            self.emit("else:")
            with self:
                self.region(op.regions[1], dict(names), results)

    def op_scf_while(self, op, names):
        before, after = dict(names), dict(names)
        pairs = op.operands
        carried = [self.name(before, name) for name in pairs[0::2]]
        if carried:
            self.emit(f"{', '.join(carried)} = {', '.join(names[value] for value in pairs[1::2])}")
        results = [self.name(names, result) for result in op.results]
        self.emit("while True:")
        with self:
            *body, condition = op.regions[0].ops
            for inner in body:
                self.op(inner, before)
            flag, *forwarded = condition.operands
            if results:
                self.emit(f"{', '.join(results)} = {', '.join(before[value] for value in forwarded)}")
            self.emit(f"if not {before[flag]}: break")
            for (name, _), result in zip(op.regions[1].arguments, results):
                after[name] = result
            self.region(op.regions[1], after, carried)

    def op_ttg_warp_specialize(self, op, names):
        site = self.site(op)
        captures = [names[value] for value in op.operands]
        default, *workers = op.regions
        entries = []
        for region in workers:
            inner: dict[str, str] = {}
            self.count += 1
            function = f"f{self.count}"
            parameters = [self.name(inner, name) for name, _ in region.arguments]
            self.emit(f"def {function}({', '.join(parameters)}):")
            with self:
                self.emit("def code(me):")
                with self:
                    self.emit("yield None")
                    self.region(region, inner)
                self.emit("return code")
            entries.append(f"({region.label!r}, {region.warps}, {function}({', '.join(captures)}))")
        started = f"s{self.count}"
        requested, registers, first_warps = ([
            int(n) for n in re.findall(r"\d+",
                                       op.attributes.get(name, ":").split(":")[1])
        ] for name in ("requestedRegisters", "actualRegisters", "warpGroupStartIds"))
        self.emit(
            f"{started} = cta.warp_specialize(me, [{', '.join(entries)}], {requested}, {registers}, {first_warps}, "
            f"{site})")
        results = [self.name(names, result) for result in op.results]
        self.region(default, dict(names), results)
        self.emit(f"yield from cta.join_workers(me, {started}, {site})")

    # -- scalars and constants ----------------------------------------------------------------------------------------

    def op_arith_constant(self, op, names):
        text = op.text[len("arith.constant"):].strip()
        shape, element = shape_of(op.types or "i1")
        result = self.name(names, op.results[0])
        if shape is None:
            self.emit(f"{result} = {functions.parse_number(text, op.types or 'i1')!r}".replace(
                "inf", 'float("inf")').replace("nan", 'float("nan")'))
        else:
            value = functions.parse_number(find(r"dense<(.*)>$", text).group(1), element)
            tensor = torch.full(shape, value, dtype=DTYPES[element])
            self.emit(f"{result} = {self.constant(tensor)}")

    def op_tt_get_program_id(self, op, names):
        self.emit(f"{self.name(names, op.results[0])} = cta.program_ids[{'xyz'.index(op.text.split()[-1])}]")

    def op_tt_get_num_programs(self, op, names):
        self.emit(f"{self.name(names, op.results[0])} = cta.grid[{'xyz'.index(op.text.split()[-1])}]")

    def op_arith_cmpi(self, op, names):
        predicate = op.text.split()[1].rstrip(",")
        a, b = self.registers(op, names)
        shape, element = shape_of(op.types)
        result = self.name(names, op.results[0])
        if shape is None:
            if predicate[0] == "u":
                a, b = (f"unsigned({x}, {functions.BITS[element]})" for x in (a, b))
            self.emit(f"{result} = {a} {functions.COMPARE[predicate[-2:]]} {b}")
        else:
            self.emit(f"{result} = compare({predicate!r}, {a}, {b})")

    def op_arith_cmpf(self, op, names):
        predicate = op.text.split()[1].rstrip(",")
        a, b = self.registers(op, names)
        self.emit(f"{self.name(names, op.results[0])} = compare_float({predicate!r}, {a}, {b})")

    # -- memory descriptors -------------------------------------------------------------------------------------------

    def op_ttg_local_alloc(self, op, names, kind="shared memory"):
        site = self.site(op)
        shape, element = shape_of(result_type(op.types))
        name = op.results[0].lstrip("%")
        result = self.name(names, op.results[0])
        offset = int(op.attributes.get("allocation.offset", "-1 : i32").split()[0])
        self.emit(
            f"{result} = cta.allocate({kind!r}, {shape}, {self.constant(DTYPES[element])}, {site}, {name!r}, {offset})")
        if op.operands:
            self.emit(f"cta.store(me, {result}, {names[op.operands[0]]}, {site})")

    def op_ttng_tmem_alloc(self, op, names):
        self.op_ttg_local_alloc(op, names, "tensor memory")
        self.tokens(op.results[1:], names)

    def op_ttg_local_dealloc(self, op, names):
        pass

    def op_ttg_memdesc_index(self, op, names):
        view, index = (names[value] for value in op.operands)
        site = self.site(op)
        self.emit(f"{self.name(names, op.results[0])} = {view}.index({index}, cta.where({site}))")

    def op_ttg_memdesc_subslice(self, op, names):
        starts = find(r"\[([^\]]*)\]", op.text).group(1)
        shape, _ = shape_of(result_type(op.types))
        self.emit(f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.narrow([{starts}], {shape})")

    def op_ttng_tmem_subslice(self, op, names):
        shape, _ = shape_of(result_type(op.types))
        offset = int(op.attributes.get("offset", op.attributes.get("N", "0 : i32")).split()[0])
        dim = int(op.attributes.get("dim", f"{len(shape) - 1} : i32").split()[0])
        starts = [offset if d == dim else 0 for d in range(len(shape))]
        self.emit(f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.narrow({starts}, {shape})")

    def op_ttg_memdesc_trans(self, op, names):
        order = re.findall(r"\d+", op.attributes["order"].split(":")[1])
        self.emit(f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.permute([{', '.join(order)}])")

    def op_ttg_memdesc_reshape(self, op, names):
        shape, _ = shape_of(result_type(op.types))
        self.emit(f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.reshape({shape})")

    def op_ttg_memdesc_reinterpret(self, op, names):
        shape, element = shape_of(result_type(op.types))
        self.emit(f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.reinterpret({shape}, "
                  f"{self.constant(DTYPES[element])}, cta.where({self.site(op)}))")

    def op_ttg_local_store(self, op, names):
        value, view = (names[v] for v in op.operands)
        self.emit(f"cta.store(me, {view}, {value}, {self.site(op)})")

    def op_ttg_local_load(self, op, names):
        self.emit(f"{self.name(names, op.results[0])} = cta.load(me, {names[op.operands[0]]}, {self.site(op)})")

    def op_ttng_tmem_load(self, op, names):
        self.op_ttg_local_load(op, names)
        self.tokens(op.results[1:], names)

    def op_ttng_tmem_store(self, op, names):
        value, view, *rest = (names[v] for v in op.operands)
        self.emit(f"if {rest[-1]}: cta.store(me, {view}, {value}, {self.site(op)})")
        self.tokens(op.results, names)

    # -- barriers, TMA, MMAs ------------------------------------------------------------------------------------------

    def op_ttng_init_barrier(self, op, names):
        count = int(op.text.rsplit(",", 1)[1])
        self.emit(f"cta.init_barrier(me, {names[op.operands[0]]}, {count}, {self.site(op)})")

    def op_ttng_inval_barrier(self, op, names):
        self.emit(f"cta.invalidate(me, {names[op.operands[0]]}, {self.site(op)})")

    def op_ttng_barrier_expect(self, op, names):
        bar, pred = (names[v] for v in op.operands)
        count = int(op.text.split(",")[1].split()[0])
        self.emit(f"cta.expect(me, {bar}, {count}, {pred}, {self.site(op)})")

    def op_ttng_arrive_barrier(self, op, names):
        bar, *pred = (names[v] for v in op.operands)
        count = int(op.text.split(",")[1].split()[0])
        self.emit(f"cta.arrive(me, {bar}, {count}, {pred[0] if pred else True}, {self.site(op)})")
        self.emit("yield None")

    def op_ttng_wait_barrier(self, op, names):
        bar, parity, *rest = (names[v] for v in op.operands)
        pred = rest[0] if rest else True
        self.emit(f"yield from cta.wait(me, {bar}, {parity}, {pred}, {self.site(op)})")

    def op_ttng_async_tma_copy_global_to_local(self, op, names):
        descriptor, coordinates = find(r"(%[\w.$-]+)\[([^\]]*)\]", op.text).groups()
        offsets = re.search(r"offsets = \[([^\]]*)\]", op.text)
        rest = re.findall(VALUE, op.text[offsets.end() if offsets else op.text.index("]") + 1:])
        view, bar, pred = (names[v] for v in rest[:3])
        self.emit(
            f"cta.tma_load(me, {names[descriptor]}, {self.values(coordinates, names)}, "
            f"{self.values(offsets.group(1), names) if offsets else '()'}, {view}, {bar}, {pred}, {self.site(op)})")
        self.emit("yield None")

    def op_ttng_async_tma_copy_local_to_global(self, op, names, combine=None):
        descriptor, coordinates = find(r"(%[\w.$-]+)\[([^\]]*)\]", op.text).groups()
        self.emit(f"cta.tma_store(me, {names[descriptor]}, {self.values(coordinates, names)}, "
                  f"{names[op.operands[-1]]}, {self.site(op)}, {combine!r})")
        self.emit("yield None")

    def op_ttng_async_tma_reduce(self, op, names):
        kind = find(r"async_tma_reduce (\w+)", op.text).group(1)
        self.op_ttng_async_tma_copy_local_to_global(op, names, kind)

    def op_ttng_async_tma_store_wait(self, op, names):
        pendings = int(op.attributes["pendings"].split()[0])
        self.emit(f"yield from cta.wait_all_but(me, me.stores, {pendings}, {self.site(op)}, 'its TMA stores')")

    def op_tt_grid_dependency_wait(self, op, names):
        self.emit("cta.wait_for_grids(me)")

    def op_tt_grid_dependency_launch_dependents(self, op, names):
        pass

    def op_tt_elementwise_inline_asm(self, op, names):
        """Triton 3.8 writes the waits for kernels before this one in assembly; no other assembly is known."""
        if "griddepcontrol.wait" in op.text:
            self.op_tt_grid_dependency_wait(op, names)
        elif "griddepcontrol.launch_dependents" not in op.text:
            self.emit(f"cta.unsupported({op.name!r}, {self.site(op)})")
        for result in op.results:
            self.name(names, result)

    def op_ttng_fence_async_shared(self, op, names):
        self.emit("me.fence()")

    def op_ttng_warp_group_dot(self, op, names):
        a, b, acc, *rest = (names[v] for v in op.operands)
        asynchronous = op.attributes.get("isAsync", "false") == "true"
        self.emit(f"{self.name(names, op.results[0])} = yield from cta.wgmma(me, {a}, {b}, {acc}, "
                  f"{rest[0] if rest else True}, {asynchronous}, {self.site(op)})")

    def op_ttng_warp_group_dot_wait(self, op, names):
        pendings = int(op.attributes["pendings"].split()[0])
        self.emit(f"yield from cta.wait_all_but(me, me.wgmmas, {pendings}, {self.site(op)}, 'its wgmmas')")
        for result, value in zip(op.results, op.operands):
            names[result] = names[value]

    def op_ttng_tc_gen5_mma(self, op, names):
        if op.attributes.get("two_ctas") is not None:
            raise NotSimulated("two-CTA MMAs are not simulated")
        text = op.text[len("ttng.tc_gen5_mma"):]
        parts = top_level_split(text.split("{")[0], ",")
        a, b, acc, use_acc, pred = (names[find(r"%[\w.$#-]+", part).group(0)] for part in parts[:5])
        barriers = []
        for part in parts[5:]:
            found = re.findall(r"%[\w.$#-]+", part)
            if found:
                barriers.append(f"({names[found[0]]}, {names[found[1]] if len(found) > 1 else True})")
        self.emit(f"cta.tcgen05_mma(me, {a}, {b}, {acc}, {use_acc}, {pred}, [{', '.join(barriers)}], {self.site(op)})")
        self.emit("yield None")
        self.tokens(op.results, names)

    def op_ttng_tc_gen5_commit(self, op, names):
        bar, *pred = (names[v] for v in op.operands)
        self.emit(f"cta.tcgen05_commit(me, {bar}, {pred[0] if pred else True}, {self.site(op)})")

    def op_tt_print(self, op, names):
        prefix = find(r'"((?:[^"\\]|\\.)*)"', op.text).group(1)
        hexadecimal = op.attributes.get("hex") == "true"
        values = "".join(f", {value}" for value in self.registers(op, names))
        self.emit(f"device_print(cta.where({self.site(op)}), {prefix!r}, {hexadecimal}, cta.program_ids{values})")

    def op_tt_assert(self, op, names):
        message = find(r'"((?:[^"\\]|\\.)*)"', op.text).group(1)
        self.emit(f"device_assert(cta.where({self.site(op)}), {names[op.operands[0]]}, {message!r})")

    # -- functions, products, gathers -------------------------------------------------------------------------------

    def op_tt_call(self, op, names):
        callee = find(r'@("[^"]*"|[\w.$-]+)', op.text).group(1).strip('"')
        arguments = ", ".join(["cta", "me", *(names[v] for v in op.operands)])
        results = ", ".join(self.name(names, r) for r in op.results)
        self.emit(f"{results + ' = ' if results else ''}yield from {self.program.function(callee)}({arguments})")

    def op_tt_dot(self, op, names):
        a, b, acc = self.registers(op, names)[:3]
        precision = find(r"inputPrecision = (\w+)", op.text).group(1) if "inputPrecision" in op.text else "ieee"
        self.emit(f"{self.name(names, op.results[0])} = {acc} + cta.product({a}, {b}, {precision!r})")

    def op_tt_gather(self, op, names):
        value, index = self.registers(op, names)
        axis = int(op.attributes["axis"].split()[0])
        self.emit(f"{self.name(names, op.results[0])} = {value}.gather({axis}, {index}.long())")

    def op_tt_histogram(self, op, names):
        shape, element = shape_of(result_type(op.types))
        arguments = ", ".join(self.registers(op, names))
        self.emit(
            f"{self.name(names, op.results[0])} = histogram({shape[0]}, {self.constant(DTYPES[element])}, {arguments})")

    def op_tt_clampf(self, op, names):
        x, low, high = self.registers(op, names)
        self.emit(
            f"{self.name(names, op.results[0])} = clamp({x}, {low}, {high}, {'all' in op.text.rsplit('=', 1)[-1]})")

    def op_ttg_local_gather(self, op, names):
        view, index = (names[v] for v in op.operands)
        axis = int(op.attributes["axis"].split()[0])
        self.emit(
            f"{self.name(names, op.results[0])} = cta.load(me, {view}, {self.site(op)}).gather({axis}, {index}.long())")

    # -- cp.async ---------------------------------------------------------------------------------------------------

    def op_ttg_async_copy_global_to_local(self, op, names):
        pointers = names[op.operands[0]]
        view = names[op.operands[1]]
        mask = find(r"mask (%[\w.$#-]+)", op.text).group(1) if " mask " in op.text else None
        other = find(r"other (%[\w.$#-]+)", op.text).group(1) if " other " in op.text else None
        arguments = f"{names[mask] if mask else None}, {names[other] if other else None}"
        self.emit(f"cta.copy(me, {pointers}, {view}, {arguments}, {self.site(op)})")
        self.tokens(op.results, names)

    def op_ttg_async_commit_group(self, op, names):
        self.emit("me.commit()")
        self.tokens(op.results, names)

    def op_ttg_async_wait(self, op, names):
        pendings = int((op.attributes.get("num") or op.attributes.get("num_outstanding", "0 : i32")).split()[0])
        self.emit(f"yield from cta.wait_copies(me, {pendings}, {self.site(op)})")
        self.tokens(op.results, names)

    def tokens(self, results, names):
        """What only orders operations has no value."""
        for token in results:
            self.emit(f"{self.name(names, token)} = None")

    # -- descriptors made on the device -----------------------------------------------------------------------------

    def op_ttg_global_scratch_alloc(self, op, names):
        self.emit(f"{self.name(names, op.results[0])} = DeviceDescriptor()")

    def op_ttng_tensormap_create(self, op, names):
        lists = re.findall(r"\[([^\]]*)\]", op.text)
        box, sizes, strides, _ = (self.values(text, names) for text in lists)
        holder, pointer = (names[v] for v in op.operands[:2])
        fill = op.attributes["fill_mode"].split()[0] != "0"
        self.emit(
            f"{holder}.create({pointer}, {box}, {sizes}, {strides}, {fill}, cta.memory, cta.where({self.site(op)}))")

    def op_ttng_tensormap_fenceproxy_acquire(self, op, names):
        pass

    def op_ttng_reinterpret_tensor_descriptor(self, op, names):
        _, element = shape_of(result_type(op.types))
        self.emit(
            f"{self.name(names, op.results[0])} = {names[op.operands[0]]}.descriptor({self.constant(DTYPES[element])})")

    # -- global memory ------------------------------------------------------------------------------------------------

    def op_tt_addptr(self, op, names):
        pointer, offset = (names[v] for v in op.operands)
        size = functions.pointee_size(op.types)
        self.emit(f"{self.name(names, op.results[0])} = {pointer} + {offset} * {size}")

    def op_tt_load(self, op, names):
        shape, element = shape_of(op.types)
        dtype = DTYPES[functions.pointee(op.types)]
        operands = [names[v] for v in op.operands]
        self.emit(
            f"{self.name(names, op.results[0])} = global_load(cta.global_memory(me, {self.site(op)}), cta.where({self.site(op)}), "
            f"{self.constant(dtype)}, {', '.join(operands)})")

    def op_tt_store(self, op, names):
        dtype = DTYPES[functions.pointee(op.types)]
        operands = self.registers(op, names)
        self.emit(
            f"global_store(cta.global_memory(me, {self.site(op)}), cta.where({self.site(op)}), {self.constant(dtype)}, {', '.join(operands)})"
        )

    def op_tt_atomic_cas(self, op, names):
        dtype = DTYPES[shape_of(result_type(op.types))[1]]
        pointers, expected, value = (names[v] for v in op.operands)
        self.emit(
            f"{self.name(names, op.results[0])} = global_atomic(cta.global_memory(me, {self.site(op)}), cta.where({self.site(op)}), 'cas', "
            f"{self.constant(dtype)}, {pointers}, {value}, None, {expected})")

    def op_tt_atomic_rmw(self, op, names):
        kind = find(r"tt\.atomic_rmw (\w+)", op.text).group(1)
        dtype = DTYPES[shape_of(result_type(op.types))[1]]
        operands = [names[v] for v in op.operands]
        self.emit(
            f"{self.name(names, op.results[0])} = global_atomic(cta.global_memory(me, {self.site(op)}), cta.where({self.site(op)}), {kind!r}, "
            f"{self.constant(dtype)}, {', '.join(operands)})")

    def op_tt_reduce(self, op, names):
        """Reduce by folding along the axis with the region's own operations."""
        self.along_axis(op, names, "fold")

    def op_tt_scan(self, op, names):
        """Scan along the axis with the region's own operations."""
        self.along_axis(op, names, "scan", f"{op.attributes.get('reverse') == 'true'}, ")

    def along_axis(self, op, names, does, settings=""):
        axis = int(op.attributes["axis"].split()[0])
        function = self.combiner(op.regions[0])
        operands = ", ".join(self.registers(op, names))
        results = "".join(f"{self.name(names, r)}, " for r in op.results)
        self.emit(f"{results}= {does}({function}, {axis}, {settings}[{operands}])")

    def combiner(self, region):
        """A function that does what the region does, on slices."""
        self.count += 1
        function = f"r{self.count}"
        inner: dict[str, str] = {}
        parameters = [self.name(inner, name) for name, _ in region.arguments]
        self.emit(f"def {function}({', '.join(parameters)}):")
        with self:
            *body, last = region.ops
            for element in body:
                self.op_elementwise(element, inner)
            self.emit(f"return ({', '.join(inner[v] for v in last.operands)},)")
        return function

    def op_elementwise(self, op, names):
        """An operation of a reduction's region, written for scalars and run on slices."""
        if op.name in ("arith.cmpi", "arith.cmpf"):
            predicate = op.text.split()[1].rstrip(",")
            function = "compare" if op.name == "arith.cmpi" else "compare_float"
            a, b = (names[v] for v in op.operands)
            self.emit(f"{self.name(names, op.results[0])} = {function}({predicate!r}, {a}, {b})")
            return
        _, element = shape_of(result_type(op.types))
        extra = self.constant((None, DTYPES.get(element), op.attributes))
        arguments = ", ".join(names[v] for v in op.operands)
        self.emit(f"{self.name(names, op.results[0])} = {functions.TENSOR[op.name]}({arguments}, {extra})")
