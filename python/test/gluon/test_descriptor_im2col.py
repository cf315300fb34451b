"""Every limit of TensorDescriptorIm2Col: a descriptor at the limit is taken, one past it refused.

Triton refuses when the descriptor is made, with an AssertionError; the driver refuses when a kernel is launched with it,
with a RuntimeError. What Triton leaves to the driver, and what nobody refuses, is in docs/gluon/upstream-findings.md.
"""

import math
import random

import pytest
import torch
import triton
from test_tma_im2col import Load, active_device, has_im2col, load_kernel
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptorIm2Col


def descriptor(rank=4, dtype=torch.float16, device="cpu", **changes):
    shape = (2, *[8] * (rank - 2), 64)
    x = torch.zeros(2**19, dtype=dtype, device=device)[:math.prod(shape)].view(shape)
    values = dict(base=x, shape=list(x.shape), strides=list(x.stride()), block_shape=[16, 16],
                  layout=gl.NVMMASharedLayout(0, 8 * dtype.itemsize, 2), element_strides=[1] * rank,
                  pixel_box_lower_corner=[0] * (rank - 2), pixel_box_upper_corner=[0] * (rank - 2))
    return TensorDescriptorIm2Col(**values | changes)


def of_bits(bits, **options):
    return gl.NVMMASharedLayout(0, bits, 2, **options)


def elements_at(offset, dtype=torch.float16):
    return torch.zeros(2**19, dtype=dtype)[offset:]


# What, a value at the limit, one past it, and what the message says.
TRITON = [
    ("smallest rank", dict(rank=3), dict(rank=2, element_strides=None), "requires rank 3, 4, or 5, got 2"),
    ("largest rank", dict(rank=5), dict(rank=6), "rank must be 1-5"),
    ("number of strides", dict(strides=[4096, 512, 64, 1]), dict(strides=[512, 64, 1]), "strides rank mismatch"),
    ("innermost stride", dict(strides=[4096, 512, 64, 1]), dict(strides=[4096, 512, 64, 2]), "must be contiguous"),
    ("alignment of strides", dict(strides=[4096, 512, 72, 1]), dict(strides=[4096, 512, 68, 1]), "16-byte aligned"),
    ("alignment of the base", dict(base=elements_at(8)), dict(base=elements_at(4)), "base must be 16-byte aligned"),
    ("smallest extent", dict(shape=[1, 1, 1, 1]), dict(shape=[2, 8, 0, 64]), "shape must be positive"),
    ("rank of a block", dict(block_shape=[16, 16]), dict(block_shape=[1, 16, 16]), "block_shape must be 2D"),
    ("pixels a power of two", dict(block_shape=[64, 16]), dict(block_shape=[48, 16]), r"block_shape\[0\] must be power of 2"),
    ("channels a power of two", dict(block_shape=[16, 64]), dict(block_shape=[16, 48]), r"block_shape\[1\] must be power of 2"),
    ("smallest block", dict(block_shape=[1, 1]), dict(block_shape=[0, 16]), "must be power of 2, got 0"),
    ("channels for a swizzle", dict(layout=gl.NVMMASharedLayout(64, 16, 2), block_shape=[16, 32]),
     dict(layout=gl.NVMMASharedLayout(64, 16, 2)), "at least 32 but got 16"),
    ("kind of layout", dict(layout=of_bits(16)), dict(layout=gl.SwizzledSharedLayout(1, 1, 1, [1, 0])), "must be NVMMASharedLayout"),
    ("element width of a layout", dict(layout=of_bits(16)), dict(layout=of_bits(32)), None),
    ("largest element", dict(dtype=torch.int32), dict(dtype=torch.int64), "must be 8, 16, or 32 bits, but got 64"),
    ("padding", dict(padding="zero"), dict(padding="one"), "Illegal value for padding"),
    ("padding with NaN", dict(padding="nan"), dict(padding="nan", dtype=torch.int16), "only supported for floating point"),
    ("rounding", dict(round_f32_to_tf32=True, dtype=torch.float32), dict(round_f32_to_tf32=True), "only supported for float32"),
    ("number of element strides", dict(element_strides=[1, 2, 2, 1]), dict(element_strides=[2, 2, 1]), "length mismatch: expected 4, got 3"),
    ("smallest element stride", dict(element_strides=[1, 1, 1, 1]), dict(element_strides=[1, 1, 0, 1]), r"in \(0, 8\], got 0"),
    ("largest element stride", dict(element_strides=[8, 8, 8, 1]), dict(element_strides=[1, 9, 1, 1]), r"in \(0, 8\], got 9"),
    ("element stride of channels", dict(element_strides=[1, 8, 8, 1]), dict(element_strides=[1, 1, 1, 2]), "must be 1, got 2"),
    ("a lower corner", dict(), dict(pixel_box_lower_corner=None), "pixel_box_lower_corner required"),
    ("an upper corner", dict(), dict(pixel_box_upper_corner=None), "pixel_box_upper_corner required"),
    ("length of a lower corner", dict(), dict(pixel_box_lower_corner=[0]), "pixel_box_lower_corner length mismatch"),
    ("length of an upper corner", dict(), dict(pixel_box_upper_corner=[0] * 3), "pixel_box_upper_corner length mismatch"),
]  # yapf: disable
if not triton.__version__.startswith("3.8."):  # which takes the layout, and fails when it compiles
    TRITON.append(("rank of a layout", dict(), dict(layout=gl.NVMMASharedLayout(0, 16, 4)), "layout rank must match"))
for rank, (low, high) in {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}.items():
    for side in ("lower", "upper"):
        for end, at, past in [("lowest", low, low - 1), ("highest", high, high + 1)]:
            corner = lambda value: {"rank": rank, f"pixel_box_{side}_corner": [0] * (rank - 3) + [value]}
            TRITON.append(
                (f"{end} {side} corner of rank {rank}", corner(at), corner(past), f"must be in .*, got {past}"))


@pytest.mark.parametrize("at, past, message", [case[1:] for case in TRITON], ids=[case[0] for case in TRITON])
def test_triton_refuses(at, past, message):
    assert descriptor(**at).mode == "im2col"
    with pytest.raises(AssertionError, match=message):
        descriptor(**past)


def launch(desc):
    """Launch a kernel with a descriptor; the driver checks it first."""
    device = active_device()
    out = torch.zeros(desc.block_shape, dtype=desc.base.dtype, device=device)
    rank = len(desc.shape)
    place = torch.tensor([0, *desc.pixel_box_lower_corner, *[0] * (rank - 1)], dtype=torch.int32, device=device)
    load_kernel[(1, )](desc, out, place, rank, num_warps=4)


# Limits of the driver's that Triton does not check. Nothing is read past these tensors: extents and strides that are
# large belong to dimensions in which the load stays at 0.
DRIVER = [
    ("bytes of a row", dict(block_shape=[16, 8]), dict(block_shape=[16, 4])),
    ("NaN in 8 bits", dict(padding="nan"), dict(padding="nan", dtype=torch.float8_e5m2)),
    ("stride of 2**40 bytes", dict(strides=[2**39 - 8, 512, 64, 1],
                                   shape=[1, 8, 8, 64]), dict(strides=[2**39, 512, 64, 1], shape=[1, 8, 8, 64])),
    ("box of one pixel", dict(pixel_box_upper_corner=[0, -7]), dict(pixel_box_upper_corner=[0, -8])),
    ("box of one pixel from below", dict(pixel_box_lower_corner=[7, 0]), dict(pixel_box_lower_corner=[8, 0])),
    ("negative stride", dict(strides=[4096, 512, 64, 1]), dict(strides=[-4096, 512, 64, 1], shape=[1, 8, 8, 64])),
]


@pytest.mark.skipif(not has_im2col(), reason="needs a Hopper or data-center Blackwell GPU")
@pytest.mark.parametrize("at, past", [case[1:] for case in DRIVER], ids=[case[0] for case in DRIVER])
def test_the_driver_refuses_what_triton_takes(at, past):
    device = active_device()
    launch(descriptor(device=device, **at))
    desc = descriptor(device=device, **past)
    with pytest.raises(RuntimeError):
        launch(desc)


@pytest.mark.skipif(not has_im2col(), reason="needs a Hopper or data-center Blackwell GPU")
@pytest.mark.parametrize("name", [
    "highest upper corner of rank 4", "lowest lower corner of rank 5", "largest element stride", "smallest extent",
    "alignment of strides", "alignment of the base"
])
def test_the_driver_takes_what_triton_takes(name):
    device = active_device()
    at = next(case[1] for case in TRITON if case[0] == name)
    desc = descriptor(device=device, **{key: value for key, value in at.items() if key != "base"})
    if "base" in at:
        desc.base = at["base"].to(device)
    launch(desc)


def test_defaults():
    """Without element strides the steps are 1; without a fill there are zeros."""
    x = torch.zeros((2, 8, 8, 64), dtype=torch.float16)
    layout = of_bits(16)
    made = TensorDescriptorIm2Col.from_tensor(x, [16, 16], layout, pixel_box_lower_corner=[0, 0],
                                              pixel_box_upper_corner=[0, 0])
    assert made == TensorDescriptorIm2Col(x, x.shape, x.stride(), [16, 16], layout, "zero", False, None, [0, 0], [0, 0])
    assert made.__mangle__() == f"tensordesc_im2col<fp16[16,16],{layout!r}>"


@pytest.mark.skipif(not has_im2col(), reason="needs a Hopper or data-center Blackwell GPU")
def test_element_strides_left_out_are_1():
    load = Load((2, 5, 6, 16), (64, 16), (-1, -1), (1, 1))
    x = load.tensor(random.Random(3))
    desc = load.descriptor(x)
    desc.element_strides = None
    out = torch.full(load.block, 55, dtype=x.dtype, device=x.device)
    load_kernel[(1, )](desc, out, load.place().to(x.device), 4, num_warps=4)
    load.check(out, x)
