"""Random im2col loads on a GPU and in the simulator, bit for bit, with the errors that the driver reports.

The cases are drawn from a seed by kernel: rank, type, swizzle and block shape are fixed for 40 loads, so that 60 kernels
serve 2,400 loads. Where there is no GPU the same code runs a sample with the simulator in both places, which
shows that the cases are sound and nothing about the hardware.
"""

import itertools
import random
import zlib

import pytest
import torch
import triton
import triton_simulator as simulator
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.int32]
CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
OFFSETS = {3: 65535, 4: 255, 5: 31}
ON_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in (9, 10)
KERNELS = list(itertools.product((3, 4, 5), DTYPES, (0, 32, 64, 128)))
LOADS = 40 if ON_GPU else 6


@gluon.jit
def load_kernel(in_desc, out_desc, place, RANK: gl.constexpr):
    """One load; coordinates and offsets come from memory, so that no value is compiled in."""
    block = gl.allocate_shared_memory(in_desc.dtype, in_desc.block_shape, in_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, in_desc.nbytes_per_cta)
    n, c = gl.load(place), gl.load(place + RANK - 1)
    w, w_offset = gl.load(place + RANK - 2), gl.load(place + RANK + RANK - 3).to(gl.int16)
    if RANK == 3:
        tma.async_load_im2col(in_desc, [n, w, c], [w_offset], bar, block)
    elif RANK == 4:
        h, h_offset = gl.load(place + 1), gl.load(place + RANK).to(gl.int16)
        tma.async_load_im2col(in_desc, [n, h, w, c], [h_offset, w_offset], bar, block)
    else:
        d, d_offset = gl.load(place + 1), gl.load(place + RANK).to(gl.int16)
        h, h_offset = gl.load(place + 2), gl.load(place + RANK + 1).to(gl.int16)
        tma.async_load_im2col(in_desc, [n, d, h, w, c], [d_offset, h_offset, w_offset], bar, block)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_store(out_desc, [0, 0], block)
    tma.store_wait(0)


def sometimes_at(rng, low, high, *limits):
    """A number from low to high, now and then one of the limits."""
    return rng.choice(limits) if rng.random() < 0.1 else rng.randint(low, high)


def draw_case(rng, rank, dtype):
    """The arguments of one load, as plain numbers; a few are past a limit of the driver's."""
    low, high = CORNERS[rank]
    size, spatial = dtype.itemsize, rank - 2
    shape = [rng.randint(1, 3), *(rng.randint(1, 9) for _ in range(spatial)), rng.randint(1, 80)]
    pitch = -(-shape[-1] * size // 16) * 16 // size + 16 // size * rng.randint(0, 1)
    lower = [sometimes_at(rng, max(low, -5), 3, low, low - 1) for _ in range(spatial)]
    upper = [sometimes_at(rng, max(low, l - e + 1), 5, high, high + 1) for l, e in zip(lower, shape[1:-1])]
    steps = [sometimes_at(rng, 1, 4, 8, 9) for _ in range(spatial)]
    start = [
        rng.randint(0, shape[0]),
        *(l + s * rng.randint(0, max(0, (e - 1 + u - l) // s)) for l, s, e, u in zip(lower, steps, shape[1:-1], upper))
    ]
    chunk = 16 // size  # other channels stop the kernel
    channel = chunk * rng.choice([0, 0, rng.randint(-1, shape[-1] // chunk + 1)])
    offsets = [sometimes_at(rng, 0, 6, OFFSETS[rank]) for _ in range(spatial)]
    fill = "nan" if dtype.is_floating_point and rng.random() < 0.3 else "zero"
    return shape, pitch, lower, upper, steps, [*start, channel], offsets, fill


def run_case(case, data, rank, dtype, swizzle, block, device):
    """The block's bytes, or the name of what refused it."""
    shape, pitch, lower, upper, steps, coordinates, offsets, fill = case
    x = data[:torch.Size(shape[:-1]).numel() * pitch].to(device).reshape(*shape[:-1], pitch)[..., :shape[-1]]
    out = torch.full(block, 77, device=device).to(dtype)
    layout = gl.NVMMASharedLayout(swizzle, 8 * dtype.itemsize, 2)
    try:
        host = TensorDescriptorIm2Col(x, shape, list(x.stride()), list(block), layout, fill,
                                      element_strides=[1, *steps,
                                                       1], pixel_box_lower_corner=lower, pixel_box_upper_corner=upper)
        out_desc = TensorDescriptor.from_tensor(out, list(block), layout)
        place = torch.tensor([*coordinates, *offsets], dtype=torch.int32, device=device)
        load_kernel[(1, )](host, out_desc, place, rank, num_warps=1)
    except (AssertionError, RuntimeError) as error:
        return f"refused: {type(error).__name__ if isinstance(error, AssertionError) else 'by the driver'}"
    return out.cpu().view(torch.uint8)


@pytest.mark.parametrize("rank, dtype, swizzle", KERNELS, ids=str)
def test_loads_agree(rank, dtype, swizzle):
    rng = random.Random(zlib.crc32(f"{rank} {dtype} {swizzle}".encode()))
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    data = torch.randint(-100, 100, (400000, ), generator=generator).to(dtype)
    least = max(16, swizzle) // dtype.itemsize
    block = (2**rng.randint(3, 8), least * rng.choice([1, 1, 2]))
    hardware = None if ON_GPU else simulator.activate("sm_90", seed=5)
    try:
        device = triton.runtime.driver.active.get_active_torch_device()
        landed = 0
        for _ in range(LOADS):
            case = draw_case(rng, rank, dtype)
            seen = run_case(case, data, rank, dtype, swizzle, block, device)
            with simulator.activate("sm_90"):
                expected = run_case(case, data, rank, dtype, swizzle, block, "cpu")
            same = seen == expected if isinstance(seen, str) or isinstance(expected, str) else torch.equal(
                seen, expected)
            assert same, (case, block, seen, expected)
            landed += not isinstance(seen, str)
        assert landed >= LOADS // 4 or not ON_GPU
    finally:
        if hardware is not None:
            hardware.deactivate()
