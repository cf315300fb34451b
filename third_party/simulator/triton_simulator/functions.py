"""Arithmetic: expressions for scalars, functions for register tensors, and global memory."""

import re

import torch

from .errors import AssertionFailed
from .parser import find

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE_TENSORS = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


def wrap(value, bits):
    if bits == 1:
        return bool(value & 1)
    half = 1 << bits - 1
    return (value + half & (half << 1) - 1) - half


def unsigned(value, bits):
    return value & (1 << bits) - 1


def divide(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def single(value):
    """A Python float rounded to float32."""
    return torch.tensor(value, dtype=torch.float32).item()


SCALAR = {
    "arith.addi": "wrap({0} + {1}, {bits})",
    "arith.subi": "wrap({0} - {1}, {bits})",
    "arith.muli": "wrap({0} * {1}, {bits})",
    "arith.divsi": "divide({0}, {1})",
    "arith.remsi": "({0} - divide({0}, {1}) * {1})",
    "arith.ceildivsi": "-(-{0} // {1})",
    "arith.floordivsi": "({0} // {1})",
    "arith.divui": "wrap(unsigned({0}, {bits}) // unsigned({1}, {bits}), {bits})",
    "arith.remui": "wrap(unsigned({0}, {bits}) % unsigned({1}, {bits}), {bits})",
    "arith.andi": "({0} & {1})",
    "arith.ori": "({0} | {1})",
    "arith.xori": "({0} ^ {1})",
    "arith.shli": "wrap({0} << {1}, {bits})",
    "arith.shrsi": "({0} >> {1})",
    "arith.shrui": "wrap(unsigned({0}, {bits}) >> {1}, {bits})",
    "arith.maxsi": "max({0}, {1})",
    "arith.minsi": "min({0}, {1})",
    "arith.maxui": "wrap(max(unsigned({0}, {bits}), unsigned({1}, {bits})), {bits})",
    "arith.minui": "wrap(min(unsigned({0}, {bits}), unsigned({1}, {bits})), {bits})",
    "arith.select": "({1} if {0} else {2})",
    "arith.trunci": "wrap({0}, {bits})",
    "arith.index_cast": "{0}",
    "arith.extsi": "(-int({0}) if {0} is True else int({0}))",
    "arith.extui": "extend_unsigned({0})",
    "arith.sitofp": "float({0})",
    "arith.addf": "single({0} + {1})",
    "arith.subf": "single({0} - {1})",
    "arith.mulf": "single({0} * {1})",
    "arith.divf": "single({0} / {1})",
    "arith.extf": "{0}",
    "arith.truncf": "single({0})",
    "arith.fptosi": "int({0})",
    "ttg.convert_layout": "{0}",
    "tt.bitcast": "{0}",
}


def extend_unsigned(value):
    if isinstance(value, bool):
        return int(value)
    if value < 0:
        raise NotImplementedError("zero extension of a negative scalar whose width is not known")
    return value


def parse_number(text, kind):
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x") and kind[0] in "fb":
        bits = int(text, 16)
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[kind]
        integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        width = integer.itemsize * 8
        return torch.tensor(wrap(bits, width), dtype=integer).view(dtype).item()
    return float(text) if kind[0] in "fb" else int(text, 0)


# -- register tensors -------------------------------------------------------------------------------------------------

_UNSIGNED_SHIFT = {torch.int8: 8, torch.int16: 16, torch.int32: 32}


def _as_unsigned(x):
    """Integers as nonnegative int64 of the same bits; int64 itself is compared by flipping the sign bit."""
    if x.dtype == torch.int64:
        return x ^ torch.iinfo(torch.int64).min
    return x.to(torch.int64) & (1 << _UNSIGNED_SHIFT.get(x.dtype, 8)) - 1


def compare(predicate, a, b):
    if predicate[0] == "u":
        a, b = _as_unsigned(a), _as_unsigned(b)
    return _COMPARE_TENSORS[predicate[-2:]](a, b)


def compare_float(predicate, a, b):
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    unordered = a.isnan() | b.isnan()
    if predicate in ("ord", "uno"):
        result = unordered if predicate == "uno" else ~unordered
    else:
        result = _COMPARE_TENSORS[predicate[1:]](a, b)
        result = result | unordered if predicate[0] == "u" else result & ~unordered
    return result if result.dim() else bool(result)


def _binary(function):
    return lambda a, b, extra: function(a, b)


def _order(extra):
    return [int(d) for d in re.findall(r"\d+", extra[2]["order"].split(":")[1])]


def _make_range(extra):
    shape, dtype, attributes = extra
    return torch.arange(int(attributes["start"].split()[0]), int(attributes["end"].split()[0]), dtype=dtype)


def _splat(value, extra):
    shape, dtype, _ = extra
    if dtype is None:
        dtype = torch.int64  # pointers
    return torch.full(shape, value, dtype=dtype)


def _split(x, extra):
    return x[..., 0], x[..., 1]


def _shift_right_unsigned(a, b, extra):
    width = _UNSIGNED_SHIFT.get(a.dtype)
    if width is None:
        return torch.where(b == 0, a, (a >> b) & ~(torch.tensor(-1) << (64 - b)))
    return (_as_unsigned(a) >> b).to(a.dtype)


def _minmax(function, nan_aware):

    def apply(a, b, extra):
        if not nan_aware:  # a number wins over NaN
            a, b = torch.where(a.isnan(), b, a), torch.where(b.isnan(), a, b)
        return function(a, b)

    return apply


def _unary(function):
    return lambda a, extra: function(a)


def _high_product(a, b):
    """The upper half of the product of unsigned integers."""
    width = _UNSIGNED_SHIFT.get(a.dtype, 64)
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist())
    values = [unsigned(x, width) * unsigned(y, width) >> width for x, y in pairs]
    return torch.tensor([wrap(v, width) for v in values], dtype=a.dtype).reshape(a.shape)


LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def convert_float(x, dtype):
    """To a narrower float: to nearest even; 8-bit floats saturate, as cvt.satfinite does."""
    if dtype in LARGEST and x.dtype.itemsize > 1:
        x = x.clamp(-LARGEST[dtype], LARGEST[dtype])
    return x.to(dtype)


def clamp(x, low, high, propagate_nan):
    result = torch.minimum(torch.maximum(x, torch.as_tensor(low)), torch.as_tensor(high))
    return result if propagate_nan else torch.where(x.isnan(), torch.as_tensor(low, dtype=x.dtype), result)


def histogram(bins, dtype, x, mask=None):
    chosen = x.reshape(-1) if mask is None else x[mask]
    inside = chosen[(chosen >= 0) & (chosen < bins)]
    return torch.bincount(inside, minlength=bins).to(dtype)


def scan(combine, axis, reverse, operands):
    if reverse:
        operands = [x.flip(axis) for x in operands]
    rows = [[x.select(axis, 0) for x in operands]]
    for i in range(1, operands[0].shape[axis]):
        rows.append(list(combine(*rows[-1], *[x.select(axis, i) for x in operands])))
    results = [torch.stack(parts, axis) for parts in zip(*rows)]
    return [x.flip(axis) for x in results] if reverse else results


FUNCTIONS = {
    "arith.addi": _binary(torch.add),
    "arith.subi": _binary(torch.sub),
    "arith.muli": _binary(torch.mul),
    "arith.divsi": lambda a, b, e: torch.div(a, b, rounding_mode="trunc"),
    "arith.remsi": _binary(torch.fmod),
    "arith.divui": lambda a, b, e: torch.div(_as_unsigned(a), _as_unsigned(b), rounding_mode="trunc").to(a.dtype),
    "arith.remui": lambda a, b, e: torch.fmod(_as_unsigned(a), _as_unsigned(b)).to(a.dtype),
    "arith.andi": _binary(torch.bitwise_and),
    "arith.ori": _binary(torch.bitwise_or),
    "arith.xori": _binary(torch.bitwise_xor),
    "arith.shli": _binary(torch.bitwise_left_shift),
    "arith.shrsi": _binary(torch.bitwise_right_shift),
    "arith.shrui": _shift_right_unsigned,
    "arith.maxsi": _binary(torch.maximum),
    "arith.minsi": _binary(torch.minimum),
    "arith.maxui": lambda a, b, e: torch.where(_as_unsigned(a) > _as_unsigned(b), a, b),
    "arith.minui": lambda a, b, e: torch.where(_as_unsigned(a) < _as_unsigned(b), a, b),
    "arith.addf": _binary(torch.add),
    "arith.subf": _binary(torch.sub),
    "arith.mulf": _binary(torch.mul),
    "arith.divf": _binary(torch.div),
    "arith.negf": _unary(torch.neg),
    "arith.remf": _binary(torch.fmod),
    "arith.maxnumf": _minmax(torch.maximum, False),
    "arith.minnumf": _minmax(torch.minimum, False),
    "arith.maximumf": _minmax(torch.maximum, True),
    "arith.minimumf": _minmax(torch.minimum, True),
    "arith.select": lambda c, a, b, e: torch.where(c, a, b) if torch.is_tensor(c) else a if c else b,
    "arith.truncf": lambda a, e: convert_float(a, e[1]),
    "arith.extf": lambda a, e: a.to(e[1]),
    "arith.trunci": lambda a, e: a.to(e[1]) if e[1] != torch.bool else (a & 1).bool(),
    "arith.extsi": lambda a, e: -a.to(e[1]) if a.dtype == torch.bool else a.to(e[1]),
    "arith.extui": lambda a, e: a.to(e[1]) if a.dtype == torch.bool else _as_unsigned(a).to(e[1]),
    "arith.sitofp": lambda a, e: a.to(e[1]),
    "arith.uitofp": lambda a, e: _as_unsigned(a).to(e[1]),
    "arith.fptosi": lambda a, e: a.trunc().to(e[1]),
    "arith.bitcast": lambda a, e: a.view(e[1]),
    "tt.bitcast": lambda a, e: a if e[1] is None else a.view(e[1]),
    "tt.fp_to_fp": lambda a, e: convert_float(a, e[1]),
    "tt.mulhiui": lambda a, b, e: _high_product(a, b),
    "math.exp": _unary(torch.exp),
    "math.exp2": _unary(torch.exp2),
    "math.log": _unary(torch.log),
    "math.log2": _unary(torch.log2),
    "math.sin": _unary(torch.sin),
    "math.cos": _unary(torch.cos),
    "math.sqrt": _unary(torch.sqrt),
    "math.rsqrt": _unary(torch.rsqrt),
    "math.absf": _unary(torch.abs),
    "math.absi": _unary(torch.abs),
    "math.floor": _unary(torch.floor),
    "math.ceil": _unary(torch.ceil),
    "math.erf": _unary(torch.erf),
    "math.fma": lambda a, b, c, e: (a.double() * b.double() + c.double()).to(a.dtype),
    "tt.precise_sqrt": _unary(torch.sqrt),
    "tt.precise_divf": _binary(torch.div),
    "tt.make_range": _make_range,
    "tt.splat": _splat,
    "tt.expand_dims": lambda a, e: a.unsqueeze(int(e[2]["axis"].split()[0])),
    "tt.broadcast": lambda a, e: a.expand(e[0]),
    "tt.reshape": lambda a, e: a.reshape(e[0]),
    "tt.trans": lambda a, e: a.permute(_order(e)),
    "tt.split": _split,
    "tt.join": lambda a, b, e: torch.stack([a, b], dim=-1),
    "ttg.convert_layout": lambda a, e: a,
    "gpu.barrier": lambda e: None,
    "ttg.barrier": lambda e: None,
}
TENSOR = {name: f"FUNCTIONS[{name!r}]" for name in FUNCTIONS}


def fold(combine, axis, operands):
    """Reduce along an axis in halves, as the hardware's trees do."""
    parts = [[x.select(axis, i) for x in operands] for i in range(operands[0].shape[axis])]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [list(combine(*parts[i], *parts[i + half])) for i in range(half)] + parts[2 * half:]
    results = parts[0]
    return [r.item() if r.dim() == 0 else r for r in results]


def device_print(where, prefix, hexadecimal, program_ids, *values):
    """As a GPU prints, but a tensor in one piece."""
    shown = ", ".join(f"{v:#x}" if hexadecimal and isinstance(v, int) else str(v) for v in values)
    print(f"pid {program_ids}{prefix}{shown}")


def device_assert(where, condition, message):
    holds = bool(condition.all()) if torch.is_tensor(condition) else condition
    if not holds:
        which = f" at {condition.logical_not().nonzero()[0].tolist()}" if torch.is_tensor(condition) else ""
        raise AssertionFailed(f"{where}: device_assert failed{which}: {message}")


# -- global memory ----------------------------------------------------------------------------------------------------


def pointee(types):
    return find(r"!tt\.ptr<([\w]+)", types).group(1)


def pointee_size(types):
    kind = pointee(types)
    return {"f8E4M3FN": 1, "f8E5M2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}.get(kind) or max(1, BITS[kind] // 8)


def global_load(memory, where, dtype, pointers, mask=None, other=None):
    if not torch.is_tensor(pointers):
        if mask is False:
            return other
        flat, index = memory.elements(torch.tensor([pointers]), dtype, where, "a read")
        return flat[index[0]].item()
    result = torch.zeros(pointers.shape, dtype=dtype) if other is None else torch.as_tensor(other, dtype=dtype).expand(
        pointers.shape).clone()
    chosen = pointers.reshape(-1) if mask is None else pointers[mask]
    if chosen.numel():
        flat, index = memory.elements(chosen, dtype, where, "a read")
        values = flat[index]
        if mask is None:
            return values.reshape(pointers.shape)
        result[mask] = values
    return result


def global_store(memory, where, dtype, pointers, value, mask=None):
    if not torch.is_tensor(pointers):
        if mask is not False:
            flat, index = memory.elements(torch.tensor([pointers]), dtype, where, "a write")
            flat[index[0]] = value
        return
    pointers, value = torch.broadcast_tensors(pointers, torch.as_tensor(value))
    chosen = pointers.reshape(-1) if mask is None else pointers[mask]
    if chosen.numel():
        flat, index = memory.elements(chosen, dtype, where, "a write")
        flat[index] = (value.reshape(-1) if mask is None else value[mask]).to(dtype)


def global_atomic(memory, where, kind, dtype, pointers, value, mask=None, expected=None):
    """Element by element, in order: as good as any order that the hardware might take."""
    scalar = not torch.is_tensor(pointers)
    pointers, value = torch.as_tensor(pointers), torch.as_tensor(value, dtype=dtype)
    old = torch.zeros(pointers.shape, dtype=dtype)
    mask = torch.ones(pointers.shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    for at in mask.nonzero():
        at = tuple(at.tolist())
        flat, index = memory.elements(pointers[at].reshape(1), dtype, where, "an atomic")
        before, operand = flat[index[0]].clone(), value[at] if value.dim() else value
        old[at] = before
        wanted = torch.as_tensor(expected,
                                 dtype=dtype)[at if torch.is_tensor(expected) else ...] if kind == "cas" else None
        after = {
            "cas": lambda a, b: b
            if bool(a == wanted) else a, "add": lambda a, b: a + b, "fadd": lambda a, b: a + b, "max": torch.maximum,
            "min": torch.minimum, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "exch":
            lambda a, b: b, "umax": lambda a, b: torch.where(_as_unsigned(a) > _as_unsigned(b), a, b), "umin":
            lambda a, b: torch.where(_as_unsigned(a) < _as_unsigned(b), a, b)
        }[kind](before, operand)
        flat[index[0]] = after
    return old.item() if scalar else old


__all__ = [name for name in dir() if not name.startswith("__") and name not in ("math", "re")]
