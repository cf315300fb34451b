"""The im2col load of Gluon, bit for bit against a reference written from the definition of the mode.

Blocks are read back through registers, so that the swizzle is that of the layout and not one that a store undoes.
Shared memory is poisoned before each load, so that what is filled was written. On a GPU there are 3,000 random loads and
more, 28 for each kernel; on another driver there are three for each.
"""

import itertools
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
import triton
from im2col_reference import sources
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptorIm2Col

DTYPES = [
    torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.float8_e4m3fn, torch.float8_e5m2
]
NAN_FILLED = [torch.bfloat16, torch.float16, torch.float32]
CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
OFFSETS = {3: 65535, 4: 255, 5: 31}
LOADS = 28 if torch.cuda.is_available() else 3


def has_im2col():
    try:
        target = triton.runtime.driver.active.get_current_target()
    except RuntimeError:
        return False
    return target.backend == "cuda" and target.arch // 10 in (9, 10)


pytestmark = pytest.mark.skipif(not has_im2col(), reason="needs a Hopper or data-center Blackwell GPU")


def active_device():
    return triton.runtime.driver.active.get_active_torch_device()


@gluon.jit
def poisoned(desc, layout: gl.constexpr):
    """Shared memory for a block of the descriptor's, full of a number that no test expects."""
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    block.store(gl.full(desc.block_shape, 77, gl.float32, layout).to(desc.dtype))
    fence_async_shared()
    return block


@gluon.jit
def write_out(out, block, SHAPE: gl.constexpr, layout: gl.constexpr):
    rows = gl.arange(0, SHAPE[0], gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, SHAPE[1], gl.SliceLayout(0, layout))[None, :]
    gl.store(out + rows * SHAPE[1] + columns, block.load(layout))


@gluon.jit
def issue(desc, place, bar, block, RANK: gl.constexpr, pred=True):
    """A load whose coordinates and offsets come from memory, so that no value is compiled in."""
    n, c = gl.load(place), gl.load(place + RANK - 1)
    w, w_offset = gl.load(place + RANK - 2), gl.load(place + 2 * RANK - 3).to(gl.int16)
    if RANK == 3:
        tma.async_load_im2col(desc, [n, w, c], [w_offset], bar, block, pred)
    elif RANK == 4:
        h, h_offset = gl.load(place + 1), gl.load(place + RANK).to(gl.int16)
        tma.async_load_im2col(desc, [n, h, w, c], [h_offset, w_offset], bar, block, pred)
    else:
        d, d_offset = gl.load(place + 1), gl.load(place + RANK).to(gl.int16)
        h, h_offset = gl.load(place + 2), gl.load(place + RANK + 1).to(gl.int16)
        tma.async_load_im2col(desc, [n, d, h, w, c], [d_offset, h_offset, w_offset], bar, block, pred)


@gluon.jit
def load_kernel(desc, out, place, RANK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    block = poisoned(desc, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.nbytes_per_cta)
    issue(desc, place, bar, block, RANK)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    write_out(out, block, desc.block_shape, layout)


@dataclass
class Load:
    """One load and the tensor it reads; sizes and places are in the order of the tensor's dimensions."""

    shape: tuple
    block: tuple
    lower: tuple | None = None
    upper: tuple | None = None
    offsets: tuple | None = None
    start: tuple | None = None  # n, the base pixel and the channel; the first pixel of the walk if not given
    steps: tuple | None = None
    dtype: torch.dtype = torch.bfloat16
    swizzle: int = 0
    fill: str = "zero"
    pad: tuple = ()  # elements between pixels, rows, ...: innermost first
    options: dict = field(default_factory=dict)

    def __post_init__(self):
        spatial = len(self.shape) - 2
        zeros = (0, ) * spatial
        self.lower, self.upper, self.offsets = self.lower or zeros, self.upper or zeros, self.offsets or zeros
        self.steps = self.steps or (1, ) * spatial
        self.start = (0, *self.lower, 0) if self.start is None else self.start

    @property
    def rank(self):
        return len(self.shape)

    def strides(self):
        size = self.dtype.itemsize
        pads = (*self.pad, 0, 0, 0, 0)
        strides = [1, -(-self.shape[-1] * size // 16) * 16 // size + pads[0]]
        for extent, pad in zip(self.shape[-2:0:-1], pads[1:]):
            strides.append(strides[-1] * extent + pad)
        return strides[::-1]

    def tensor(self, rng):
        """Random bits: among those of floating-point types are NaNs, infinities and denormals."""
        strides = self.strides()
        count = strides[0] * self.shape[0]
        bits = torch.from_numpy(np.frombuffer(rng.randbytes(count * self.dtype.itemsize), np.uint8).copy())
        # Striding comes last: a copy to another device would drop the pitches.
        return bits.to(active_device()).view(self.dtype).as_strided(self.shape, strides)

    def descriptor(self, x):
        layout = gl.NVMMASharedLayout(self.swizzle, 8 * self.dtype.itemsize, 2)
        return TensorDescriptorIm2Col(x, list(x.shape), list(x.stride()), list(self.block), layout, self.fill,
                                      element_strides=[1, *self.steps, 1], pixel_box_lower_corner=list(self.lower),
                                      pixel_box_upper_corner=list(self.upper), **self.options)

    def expected(self, x):
        """The block's bits, and which of its elements are filled."""
        x = x.cpu()
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[self.dtype.itemsize]
        block = torch.zeros(self.block, dtype=integers)
        filled = torch.ones(self.block, dtype=torch.bool)
        *base, channel = self.start
        low, high = max(channel, 0), min(channel + self.block[1], self.shape[-1])
        rows = sources(self.shape, self.lower, self.upper, self.steps, base, self.offsets, self.block[0])
        for row, source in enumerate(rows):
            if source is not None and low < high:
                block[row, low - channel:high - channel] = x[source][low:high].view(integers)
                filled[row, low - channel:high - channel] = False
        return block, filled

    def place(self):
        return torch.tensor([*self.start, *self.offsets], dtype=torch.int32)

    def check(self, out, x):
        block, filled = self.expected(x)
        out = out.cpu()
        wrong = out.view(block.dtype) != block
        if self.fill == "nan":
            wrong = (wrong & ~filled) | (filled & ~out.isnan())
        assert not wrong.any(
        ), f"{self}\n{int(wrong.sum())} elements differ, the first at {wrong.nonzero()[0].tolist()}"

    def run(self, rng=None):
        device = active_device()
        x = self.tensor(rng or random.Random(0))
        out = torch.full(self.block, 55, device=device).to(self.dtype)
        load_kernel[(1, )](self.descriptor(x), out, self.place().to(device), self.rank, num_warps=4)
        self.check(out, x)


def at_times(rng, value, *rare):
    return rng.choice(rare) if rng.random() < 0.05 else value


def random_load(rng, rank, dtype, swizzle, block):
    low, high = CORNERS[rank]
    spatial, size = rank - 2, dtype.itemsize
    shape = (rng.randint(1, {3: 20, 4: 6, 5:
                             3}[rank]), *(at_times(rng, rng.randint(1, 12), 30)
                                          for _ in range(spatial)), rng.choice([block[1],
                                                                                rng.randint(1, 2 * block[1])]))
    lower = tuple(at_times(rng, rng.choice([-1, 0, rng.randint(-4, 2)]), low) for _ in range(spatial))
    upper = tuple(
        at_times(rng, max(l - e + 1, rng.choice([-2, -1, 0, rng.randint(-4, 3)])), high)
        for l, e in zip(lower, shape[1:]))
    steps = tuple(at_times(rng, rng.randint(1, 3), *range(4, 9)) for _ in range(spatial))
    load = Load(shape, block, lower, upper, steps=steps, dtype=dtype, swizzle=swizzle,
                fill="nan" if dtype in NAN_FILLED and rng.random() < 0.3 else "zero",
                pad=tuple(at_times(rng, 0, 16 // size, 48 // size) for _ in range(rank - 1)))
    return placed_at_random(rng, load)


def placed_at_random(rng, load):
    """The load from another place of the same tensor. The base pixel is in its box, and the channel at 16 bytes; others stop
    the kernel."""
    shape, chunk = load.shape, 16 // load.dtype.itemsize
    base = (l + s * rng.randint(0, (e - 1 + u - l) // s)
            for l, s, e, u in zip(load.lower, load.steps, shape[1:], load.upper))
    image = at_times(rng, rng.randrange(shape[0]), -1, shape[0])
    chunks = -(-shape[-1] // chunk)
    channel = chunk * at_times(rng, rng.choice([0, 0, rng.randrange(chunks)]), -1, chunks, -(-load.block[1] // chunk))
    offsets = tuple(
        at_times(rng, rng.choice([0, 1, rng.randint(0, 4)]), OFFSETS[load.rank]) for _ in range(load.rank - 2))
    return replace(load, start=(image, *base, channel), offsets=offsets)


@pytest.mark.parametrize("rank, dtype, swizzle", list(itertools.product((3, 4, 5), DTYPES, (0, 32, 64, 128))))
def test_random_loads(rank, dtype, swizzle):
    rng = random.Random(f"{rank} {dtype} {swizzle}")
    least = max(16, swizzle) // dtype.itemsize
    block = (2**rng.randint(3 if swizzle else 0, 8), least * 2**rng.randint(0, 2))
    for _ in range(LOADS):
        random_load(rng, rank, dtype, swizzle, block).run(rng=rng)


def of_rank(rank, value):
    return (value, ) * (rank - 2)


def boundary_loads():
    """Each boundary of the mode by itself."""
    image = {3: (2, 20, 16), 4: (2, 5, 6, 16), 5: (2, 3, 4, 5, 16)}
    # Wide enough that the largest offset from the lowest corner is inside.
    wide = {3: (1, 32800, 8), 4: (1, 140, 140, 8), 5: (2, 20, 20, 20, 8)}
    for rank, (low, high) in CORNERS.items():
        everywhere = lambda value: of_rank(rank, value)
        yield f"{rank}-identity", Load(image[rank], (32, 16))
        yield f"{rank}-lowest-lower-corner", Load(wide[rank], (256, 8), everywhere(low), start=(0, *everywhere(-1), 0))
        yield f"{rank}-highest-lower-corner", Load(wide[rank], (64, 8), everywhere(min(high, 32700)))
        yield f"{rank}-lowest-upper-corner", Load(wide[rank], (128, 8), upper=everywhere(low))
        yield f"{rank}-highest-upper-corner", Load(wide[rank], (512, 8), upper=everywhere(high),
                                                   start=(0, *(e - 3 for e in wide[rank][1:-1]), 0))
        yield f"{rank}-largest-offset", Load(wide[rank], (16, 8), everywhere(low), offsets=everywhere(OFFSETS[rank]))
        yield f"{rank}-largest-offset-leads-outside", Load(image[rank], (16, 16), offsets=everywhere(OFFSETS[rank]))
        for dim in range(rank - 2):
            for value, name in [(-2, "negative"), (1, "positive")]:
                corner = tuple(value * (d == dim) for d in range(rank - 2))
                yield f"{rank}-{name}-lower-corner-{dim}", Load(image[rank], (64, 16), corner)
                yield f"{rank}-{name}-upper-corner-{dim}", Load(image[rank], (64, 16), upper=corner)
            yield f"{rank}-offset-{dim}", Load(image[rank], (64, 16),
                                               offsets=tuple(2 * (d == dim) for d in range(rank - 2)))
            for step in range(1, 9):
                steps = tuple(step if d == dim else 1 for d in range(rank - 2))
                yield f"{rank}-step-{step}-of-{dim}", Load(image[rank], (64, 16), everywhere(-1), everywhere(1),
                                                           steps=steps)
        yield f"{rank}-all-steps", Load(image[rank], (64, 16), everywhere(-3), everywhere(4),
                                        steps=tuple(range(2, rank)))
        yield f"{rank}-off-the-grid", Load(image[rank], (64, 16), everywhere(-1), steps=everywhere(3))
        for name, start in [("last-pixel", (1, *(e - 1 for e in image[rank][1:-1]), 0)),
                            ("past-the-images", (2, *everywhere(0), 0)), ("before-the-images", (-1, *everywhere(0), 0)),
                            ("past-the-channels", (0, *everywhere(0), 16)),
                            ("far-past-the-channels", (0, *everywhere(0), 10**6)),
                            ("into-the-channels", (0, *everywhere(0), 8)),
                            ("before-the-channels", (0, *everywhere(0), -16)),
                            ("around-the-channels", (0, *everywhere(0), -8))]:
            yield f"{rank}-{name}", Load(image[rank], (32, 16), start=start)
            if name != "last-pixel":
                yield f"{rank}-{name}-nan", Load(image[rank], (32, 16), start=start, fill="nan")
        yield f"{rank}-one-pixel", Load((1, *everywhere(1), 8), (1, 8))
        yield f"{rank}-smaller-than-a-block", Load((1, *everywhere(1), 3), (64, 64), swizzle=128)
        yield f"{rank}-filter-wider-than-the-image", Load((2, *everywhere(2), 8), (64, 8), everywhere(-3),
                                                          everywhere(-1), everywhere(4))
        for dim in range(rank - 1):
            pad = tuple(16 * (d == dim) for d in range(rank - 1))
            yield f"{rank}-padded-pitch-{dim}", Load(image[rank], (128, 16), pad=pad)
        yield f"{rank}-over-128-KB", Load((3, *{3: (900, ), 4: (30, 30), 5: (8, 9, 10)}[rank], 64), (256, 64),
                                          everywhere(-1), everywhere(1), start=(2, *everywhere(7), 0), swizzle=128)
    for pixels in 2**np.arange(11):
        yield f"{pixels}-pixels", Load((3, 20, 21, 16), (int(pixels), 16), (-1, -1), (1, 1))
    for dtype, channels in [(torch.int8, 256), (torch.int8, 512), (torch.bfloat16, 256), (torch.bfloat16, 512),
                            (torch.float32, 512)]:
        yield f"{channels}-channels-of-{dtype}", Load((1, 6, 6, channels - 5), (32, channels), dtype=dtype)
    for dtype, swizzle in itertools.product(DTYPES,
                                            (32, 64, 128)):  # several messages of a swizzle each, the last one short
        channels = 4 * swizzle // dtype.itemsize
        yield f"4-messages-{dtype}-{swizzle}", Load((1, 6, 6, channels - 3), (32, channels), dtype=dtype,
                                                    swizzle=swizzle)


BOUNDARIES = dict(boundary_loads())


@pytest.mark.parametrize("name", BOUNDARIES)
def test_boundary(name):
    BOUNDARIES[name].run()


def test_over_2_to_the_31_elements():
    """Only the last rows are written and read: the address passes 2**31 elements, and 2**31 bytes."""
    device = active_device()
    load = Load((1, 12000, 12000, 16), (64, 16), dtype=torch.int8, start=(0, 11998, 11970, 0))
    try:
        x = torch.empty(load.shape, dtype=torch.int8, device=device)
    except torch.cuda.OutOfMemoryError:
        pytest.skip("there is too little memory")
    assert x.numel() > 2**31
    x[0, -2:] = torch.randint(-128, 128, (2, *load.shape[2:]), generator=torch.Generator().manual_seed(0)).to(x)
    out = torch.full(load.block, 55, dtype=torch.int8, device=device)
    load_kernel[(1, )](load.descriptor(x), out, load.place().to(device), 4, num_warps=4)
    load.shape, start = (1, 2, *load.shape[2:]), load.start
    load.start = (0, start[1] - 11998, *start[2:])
    load.check(out, x[:, -2:])


@gluon.jit
def constant_kernel(desc, out, COORDINATES: gl.constexpr, OFFSETS: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    block = poisoned(desc, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.nbytes_per_cta)
    tma.async_load_im2col(desc, COORDINATES, OFFSETS, bar, block)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    write_out(out, block, desc.block_shape, layout)


@pytest.mark.parametrize("name", [
    "3-identity", "4-offset-0", "4-offset-1", "5-offset-2", "4-largest-offset", "5-largest-offset",
    "4-around-the-channels", "5-last-pixel", "3-before-the-images"
])
def test_constants(name):
    load = BOUNDARIES[name]
    device = active_device()
    x = load.tensor(random.Random(1))
    out = torch.full(load.block, 55, device=device).to(load.dtype)
    constant_kernel[(1, )](load.descriptor(x), out, load.start, load.offsets, num_warps=4)
    load.check(out, x)


@gluon.jit
def predicate_kernel(desc, out, place, RANK: gl.constexpr, pred):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    block = poisoned(desc, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.nbytes_per_cta, pred=pred != 0)
    issue(desc, place, bar, block, RANK, pred != 0)
    mbarrier.wait(bar, 0, pred=pred != 0)
    mbarrier.invalidate(bar)
    write_out(out, block, desc.block_shape, layout)


@pytest.mark.parametrize("pred", [0, 1, 2])
def test_predicate(pred):
    load = BOUNDARIES["4-identity"]
    device = active_device()
    x = load.tensor(random.Random(1))
    out = torch.full(load.block, 55, device=device).to(load.dtype)
    predicate_kernel[(1, )](load.descriptor(x), out, load.place().to(device), 4, pred, num_warps=4)
    if pred:
        load.check(out, x)
    else:
        assert (out == 77).all()


@gluon.jit
def repeated_kernel(desc, out, places, COUNT: gl.constexpr, RANK: gl.constexpr):
    """COUNT blocks in turn, on one barrier: a phase that got more or fewer bytes would upset those after it."""
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    block = poisoned(desc, layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    for i in range(COUNT):
        mbarrier.expect(bar, desc.nbytes_per_cta)
        issue(desc, places + i * (2 * RANK - 2), bar, block, RANK)
        mbarrier.wait(bar, i & 1)
        write_out(out + i * desc.block_shape[0] * desc.block_shape[1], block, desc.block_shape, layout)
        fence_async_shared()
    mbarrier.invalidate(bar)


@gluon.jit
def together_kernel(desc, out, places, COUNT: gl.constexpr, RANK: gl.constexpr):
    """COUNT blocks on one phase of one barrier."""
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    blocks = gl.allocate_shared_memory(desc.dtype, [COUNT, desc.block_shape[0], desc.block_shape[1]], desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, COUNT * desc.nbytes_per_cta)
    for i in gl.static_range(COUNT):
        issue(desc, places + i * (2 * RANK - 2), bar, blocks.index(i), RANK)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    for i in gl.static_range(COUNT):
        write_out(out + i * desc.block_shape[0] * desc.block_shape[1], blocks.index(i), desc.block_shape, layout)


@gluon.jit
def produce(desc, places, ring, full, empty, COUNT: gl.constexpr, RANK: gl.constexpr):
    for i in range(COUNT):
        slot = i % 2
        mbarrier.wait(empty.index(slot), i // 2 & 1 ^ 1)
        mbarrier.expect(full.index(slot), desc.nbytes_per_cta)
        issue(desc, places + i * (2 * RANK - 2), full.index(slot), ring.index(slot), RANK)


@gluon.jit
def consume(desc, out, ring, full, empty, COUNT: gl.constexpr, layout: gl.constexpr):
    for i in range(COUNT):
        slot = i % 2
        mbarrier.wait(full.index(slot), i // 2 & 1)
        write_out(out + i * desc.block_shape[0] * desc.block_shape[1], ring.index(slot), desc.block_shape, layout)
        fence_async_shared()
        mbarrier.arrive(empty.index(slot))


@gluon.jit
def ring_kernel(desc, out, places, COUNT: gl.constexpr, RANK: gl.constexpr):
    """COUNT blocks through a ring of two buffers, loaded by one warp and read by four others."""
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    ring = gl.allocate_shared_memory(desc.dtype, [2, desc.block_shape[0], desc.block_shape[1]], desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=2), mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize([(consume, (desc, out, ring, full, empty, COUNT, layout)),
                        (produce, (desc, places, ring, full, empty, COUNT, RANK))], [1], [40])
    for i in gl.static_range(2):
        mbarrier.invalidate(full.index(i))
        mbarrier.invalidate(empty.index(i))


@pytest.mark.parametrize("kernel, count", [(repeated_kernel, 33), (together_kernel, 2), (together_kernel, 5),
                                           (ring_kernel, 9)])
@pytest.mark.parametrize("rank, swizzle", [(3, 0), (4, 128), (5, 64)])
def test_several_loads(kernel, count, rank, swizzle):
    rng = random.Random(count)
    block = (32, max(16, swizzle) // 2)
    first = random_load(rng, rank, torch.bfloat16, swizzle, block)
    loads = [placed_at_random(rng, first) for _ in range(count)]  # one descriptor for all
    device = active_device()
    x = loads[0].tensor(rng)
    out = torch.full((count, *block), 55, dtype=torch.bfloat16, device=device)
    places = torch.stack([load.place() for load in loads]).to(device)
    kernel[(1, )](loads[0].descriptor(x), out, places, count, rank, num_warps=4)
    for load, found in zip(loads, out):
        load.check(found, x)


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_round_f32_to_tf32(rank):
    """Values round to the nearest with 10 bits of mantissa, ties to even; those that have no more bits pass."""
    load = Load({3: (1, 64, 32), 4: (1, 8, 8, 32), 5: (1, 4, 4, 4, 32)}[rank], (64, 32), dtype=torch.float32,
                swizzle=128, options={"round_f32_to_tf32": True})
    device = active_device()
    x = torch.randn(load.shape, generator=torch.Generator().manual_seed(rank)) * 1000
    bits = x.view(torch.int32)
    bits[..., :8] &= ~0x1FFF
    bits[..., 8:16] = bits[..., 8:16] & ~0x1FFF | 0x1000  # ties
    out = torch.full(load.block, 55, dtype=torch.float32, device=device)
    load_kernel[(1, )](load.descriptor(x.to(device)), out, load.place().to(device), rank, num_warps=4)
    nearest = (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).view(torch.float32).reshape(out.shape)
    assert torch.equal(out.cpu(), nearest)
    assert torch.equal(out.cpu()[:, :8], x.reshape(out.shape)[:, :8])
    assert not torch.equal(out.cpu(), x.reshape(out.shape))
