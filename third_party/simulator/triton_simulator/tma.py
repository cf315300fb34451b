"""TMA copies, tiled and im2col, with the limits of the driver's encoding and of the instruction."""

import torch

from .errors import SimulationError

_CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
_OFFSETS = {3: 65535, 4: 255, 5: 31}
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_NAN_FILLED = (torch.bfloat16, torch.float16, torch.float32)


class Descriptor:
    """A host descriptor as the driver would encode it: strides in bytes, everything within the hardware's limits."""

    def __init__(self, host, block_shape, where):
        self.name = where
        # PyTorch can do little with its wider unsigned types; bits are all that is copied.
        self.base = host.base.view(_SIGNED.get(host.base.dtype, host.base.dtype))
        self.shape, self.strides = [int(s) for s in host.shape], [int(s) for s in host.strides]
        self.block_shape = list(block_shape)
        self.padding = host.padding
        self.im2col = hasattr(host, "pixel_box_lower_corner")
        self.round_to_tf32 = host.round_f32_to_tf32
        size = self.base.element_size()
        rank = len(self.shape)
        self.check(self.base.data_ptr() % 16 == 0, f"the address {self.base.data_ptr():#x} is not a multiple of 16")
        for dim, extent in enumerate(self.shape):
            self.check(1 <= extent <= 2**32, f"extent {extent} of dimension {dim} is not in 1 to 2**32")
        for dim, stride in enumerate(self.strides[:-1]):
            self.check(stride * size % 16 == 0, f"stride {stride} of dimension {dim} is not a multiple of 16 bytes")
            self.check(0 <= stride * size < 2**40, f"stride {stride} of dimension {dim} is 2**40 bytes or more")
        self.check(self.block_shape[-1] * size % 16 == 0,
                   f"rows of {self.block_shape[-1] * size} bytes in a block; expected a multiple of 16")
        self.check(self.padding != "nan" or self.base.dtype in _NAN_FILLED,
                   f"NaN fills no {self.base.dtype}; the driver takes it for 16- and 32-bit floating-point types")
        storage = self.base.untyped_storage()
        last = self.base.storage_offset() + sum((e - 1) * s for e, s in zip(self.shape, self.strides))
        self.check(last < storage.nbytes() // size,
                   f"shape {self.shape} with strides {self.strides} reaches past the tensor")
        self.view = self.base.as_strided(self.shape, self.strides)
        if self.im2col:
            self.element_strides = list(host.element_strides or [1] * rank)
            self.lower, self.upper = list(host.pixel_box_lower_corner), list(host.pixel_box_upper_corner)
            low, high = _CORNERS[rank]
            for corner in self.lower + self.upper:
                self.check(low <= corner <= high,
                           f"corner {corner} is not in {low} to {high}, the limits of rank {rank}")
            for stride in self.element_strides:
                self.check(1 <= stride <= 8, f"element stride {stride} is not in 1 to 8")
            for dim, (low, high, extent) in enumerate(zip(self.lower, self.upper, self.shape[1:-1])):
                self.check(
                    extent + high > low, f"the box of base pixels is empty: dimension {dim + 1} has extent {extent}, "
                    f"lower corner {low} and upper corner {high}")
            pixels = self.block_shape[0]
            self.check(1 <= pixels <= 1024, f"{pixels} pixels in a block; expected 1 to 1024")
        else:
            for extent in self.block_shape[:-1]:
                self.check(extent <= 256, f"a block of {self.block_shape}; an extent is at most 256")

    def check(self, condition, message):
        if not condition:
            raise SimulationError(f"descriptor {self.name}: {message}")

    def fill(self, shape):
        """Zeros, or the NaN of H200s: 0x7FF7 in each 16 bits."""
        if self.padding == "nan":
            return torch.full((*shape, self.base.element_size() // 2), 0x7FF7,
                              dtype=torch.int16).view(self.base.dtype).squeeze(-1)
        return torch.zeros(shape, dtype=self.base.dtype)

    def rounded(self, block):
        """The nearest values with 10 bits of mantissa, ties to even, if the descriptor asks for them."""
        if not self.round_to_tf32:
            return block
        bits = block.view(torch.int32)
        bits = bits + (block.isfinite() * (0xFFF + (bits >> 13 & 1))).int() & ~0x1FFF
        return torch.where(block.isnan(), 0x7FFFE000, bits).view(torch.float32)


class DeviceDescriptor:
    """A tiled descriptor that the kernel itself makes, in memory that it takes from the driver."""

    def create(self, pointer, block, sizes, strides, nan_fill, memory, where):
        """Lists are innermost first, strides in bytes and without the innermost, as in the tensor map."""
        self.arguments = pointer, block[::-1], sizes[::-1], strides[::-1], nan_fill, memory, where

    def descriptor(self, dtype):
        pointer, block, sizes, strides, nan_fill, memory, where = self.arguments
        size = dtype.itemsize
        steps = [stride // size for stride in strides] + [1]
        last = sum((extent - 1) * step for extent, step in zip(sizes, steps))
        start, raw = memory.find(pointer, pointer + (last + 1) * size, where, "a descriptor")
        base = raw[pointer - start:(raw.numel() - (pointer - start)) // size * size + pointer - start].view(dtype)
        host = HostFields(base, sizes, steps, "nan" if nan_fill else "zero")
        return Descriptor(host, block, where)


class HostFields:
    round_f32_to_tf32 = False

    def __init__(self, base, shape, strides, padding):
        self.base, self.shape, self.strides, self.padding = base, shape, strides, padding


def box(descriptor, coordinates):
    """Per dimension, the slice of the tensor and that of the block in which the two overlap; None if they do not."""
    source, target = [], []
    for start, extent, size in zip(coordinates, descriptor.block_shape, descriptor.shape):
        low, high = max(start, 0), min(start + extent, size)
        if low >= high:
            return None
        source.append(slice(low, high))
        target.append(slice(low - start, high - start))
    return tuple(source), tuple(target)


def check_shape(descriptor, shape, what):
    """Triton's verifier counts elements only, but the messages of a copy follow from the shape."""
    there, here = ([extent for extent in extents if extent != 1] for extents in (descriptor.block_shape, shape))
    if there != here:
        raise SimulationError(f"{what}: shared memory of shape {list(shape)} for a descriptor whose block is "
                              f"{descriptor.block_shape}")


def check_start(descriptor, coordinates, what):
    """Starts at which the hardware stops the kernel with an illegal instruction."""
    place = coordinates[-1] * descriptor.base.element_size()
    if place % 16:
        raise SimulationError(
            f"{what}: illegal instruction: the innermost coordinate {coordinates[-1]} is at byte {place}; "
            "expected a multiple of 16")
    if descriptor.im2col:
        for dim, (start, low, high, extent) in enumerate(
                zip(coordinates[1:-1], descriptor.lower, descriptor.upper, descriptor.shape[1:-1])):
            if not low <= start < extent + high:
                raise SimulationError(
                    f"{what}: illegal instruction: the base pixel {start} in dimension {dim + 1} is not in "
                    f"its box, {low} to {extent + high - 1}")


def prepare(descriptor, coordinates, offsets, shape, what):
    """Check a load as the instruction would; return the function that brings the block."""
    check_shape(descriptor, shape, what)
    if descriptor.im2col:
        rank = len(descriptor.shape)
        if len(coordinates) != rank or len(offsets) != rank - 2:
            raise SimulationError(
                f"{what}: {len(coordinates)} coordinates and {len(offsets)} offsets for an im2col descriptor "
                f"of rank {rank}")
        for offset in offsets:
            if not 0 <= offset & 0xFFFF <= _OFFSETS[rank]:
                raise SimulationError(f"{what}: im2col offset {offset}; expected 0 to {_OFFSETS[rank]} for rank {rank}")
        check_start(descriptor, coordinates, what)
        return lambda: descriptor.rounded(im2col_block(descriptor, coordinates, offsets)).reshape(shape)
    if offsets:
        raise SimulationError(f"{what}: im2col offsets with a tiled descriptor")
    check_start(descriptor, coordinates, what)

    def tiled():
        block = descriptor.fill(descriptor.block_shape)
        place = box(descriptor, coordinates)
        if place is not None:
            block[place[1]] = descriptor.view[place[0]]
        return descriptor.rounded(block).reshape(shape)

    return tiled


_COMBINE: dict = {
    "add": torch.add, "min": torch.minimum, "max": torch.maximum, "and": torch.bitwise_and, "or": torch.bitwise_or,
    "xor": torch.bitwise_xor
}


def prepare_store(descriptor, coordinates, shape, what, combine=None):
    if descriptor.im2col:
        raise SimulationError(f"{what}: a store through an im2col descriptor")
    check_shape(descriptor, shape, what)
    check_start(descriptor, coordinates, what)

    def put(data):
        place = box(descriptor, coordinates)
        if place is not None:
            data = data.reshape(descriptor.block_shape)[place[1]]
            descriptor.view[place[0]] = _COMBINE[combine](descriptor.view[place[0]], data) if combine else data

    return put


def walk(descriptor, start, pixels):
    """The base positions of an im2col load as an int64 tensor [pixels, 1 + spatial rank].

    Position k of the walk is written as a number whose digits are the steps in each dimension. The first row of a walk
    may start off the grid that begins at the lower corner; the digits after the first wrap are on that grid.
    """
    n, *base = start
    rank = len(base)
    image_step, *steps = descriptor.element_strides[:1 + rank]
    last = [extent - 1 + upper for extent, upper in zip(descriptor.shape[1:-1], descriptor.upper)]
    on_grid = all((b - l) % s == 0 and l <= b <= e for b, l, s, e in zip(base, descriptor.lower, steps, last))
    if on_grid:
        counts = [(e - l) // s + 1 for e, l, s in zip(last, descriptor.lower, steps)]
        number = 0
        for b, l, s, count in zip(base, descriptor.lower, steps, counts):
            number = number * count + (b - l) // s
        k = torch.arange(number, number + pixels)
        digits = []
        for count, s, l in zip(reversed(counts), reversed(steps), reversed(descriptor.lower)):
            digits.append(k % count * s + l)
            k = k // count
        return torch.stack([n + k * image_step, *reversed(digits)], dim=1)
    positions = []
    for _ in range(pixels):
        positions.append([n, *base])
        for dim in reversed(range(rank)):
            base[dim] += steps[dim]
            if base[dim] <= last[dim]:
                break
            base[dim] = descriptor.lower[dim]
        else:
            n += image_step
    return torch.tensor(positions)


def im2col_block(descriptor, coordinates, offsets):
    pixels, channels = descriptor.block_shape
    *start, first = coordinates
    positions = walk(descriptor, start, pixels)
    positions[:, 1:] += torch.tensor([offset & 0xFFFF for offset in offsets])
    extents = torch.tensor(descriptor.shape[:-1])
    inside = ((positions >= 0) & (positions < extents)).all(dim=1)
    block = descriptor.fill((pixels, channels))
    low, high = max(first, 0), min(first + channels, descriptor.shape[-1])
    if low < high and bool(inside.any()):
        index = (positions[inside] * torch.tensor(descriptor.strides[:-1])).sum(dim=1)
        rows = torch.as_strided(descriptor.base, (int(index.max()) + 1, high - low), (1, descriptor.strides[-1]),
                                descriptor.base.storage_offset() + low * descriptor.strides[-1])
        block[inside.nonzero()[:, 0], low - first:high - first] = rows[index]
    return block
