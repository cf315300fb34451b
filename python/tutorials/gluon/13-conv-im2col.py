"""
Convolution with TMA im2col
===========================

The tensor memory accelerator (TMA) of Hopper and Blackwell has a second way of reading a tensor. In *tiled* mode,
which the earlier tutorials use, one load copies a box. In *im2col* mode one load copies the channels of one input pixel
for each of many output pixels of a convolution: it walks over the image in the steps of the convolution's stride, turns
at the end of a row and of an image, and fills in zeros where the filter hangs over the border. What it leaves in shared
memory is a tile of the matrix that "im2col" names, and the matrix itself never exists.

This tutorial starts with one load and ends with a convolution that keeps up with cuDNN on an H200:

1. the mode, one load at a time;
2. convolution as an implicit GEMM: where the load's parameters come from;
3. a first kernel;
4. a persistent, warp-specialized kernel for Hopper and Blackwell;
5. measurements;
6. what is left out.

It assumes the tutorials on TMA, wgmma, tcgen05, persistence and warp specialization. Run it on a GPU of either
architecture to see everything. On a machine without one it compiles every kernel and says so. ``pytest`` tests it.
"""

# %%

import re
import subprocess
import sys
import tempfile
from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col


def active_target():
    """The target of Triton's active driver, or None on a machine without one."""
    try:
        return triton.runtime.driver.active.get_current_target()
    except RuntimeError:
        return None


def is_supported(target):
    return target is not None and target.backend == "cuda" and target.arch // 10 in (9, 10)


def active_device():
    return triton.runtime.driver.active.get_active_torch_device()


needs_gpu = pytest.mark.skipif(not is_supported(active_target()), reason="needs a Hopper or data-center Blackwell GPU")

# %%
# 1. The mode, one load at a time
# -------------------------------
#
# An im2col load sees a tensor whose innermost dimension is channels: ``[N, W, C]``, ``[N, H, W, C]`` or ``[N, D, H, W,
# C]``. The block it fills has shape ``[pixels, channels]``. Its parameters live in two places.
#
# The descriptor, made on the host, holds what is the same for every load of a convolution:
#
# - ``pixel_box_lower_corner`` and ``pixel_box_upper_corner`` bound the walk in each spatial dimension: a *base
#   position* runs from ``lower`` to ``extent - 1 + upper``, both included. A negative lower corner is padding before
#   the image.
# - ``element_strides`` are the steps of the walk, from 1 to 8.
#
# The instruction, issued on the device, holds what changes:
#
# - the coordinates ``[n, h, w, c]`` of the first base position and the first channel;
# - the offsets ``[h, w]``, 16-bit and not negative, that are added to every base position on the way: the filter tap.
#
# The kernel below issues one load and stores the block. Coordinates and offsets are tuples, so that it serves all three
# ranks. (An argument that equals 1 becomes a constexpr, hence ``gl.to_tensor``.)


@gluon.jit
def load_block_kernel(in_desc, out_desc, coord, offsets):
    block = gl.allocate_shared_memory(in_desc.dtype, in_desc.block_shape, in_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    # The barrier receives the bytes of the whole block, whatever part of it lies outside the tensor.
    mbarrier.expect(bar, in_desc.nbytes_per_cta)
    tma.async_load_im2col(in_desc, coord, [gl.to_tensor(o).to(gl.int16) for o in offsets], bar, block)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_store(out_desc, [0, 0], block)
    tma.store_wait(0)


# One load: shape is (n, [d,] [h,] w, c), block (pixels, channels), coord like shape; the rest has one entry a
# dimension.
Load = namedtuple("Load", "shape block lower upper strides coord offsets")


def shared_layout(block, dtype):
    return gl.NVMMASharedLayout.get_default_for(list(block), getattr(gl, str(dtype).removeprefix("torch.")))


def numbered_image(shape):
    """Pixels numbered from 1, so that 0 can only be a fill; the channel stands in the upper half of each element."""
    pixels = torch.arange(1, 1 + torch.Size(shape[:-1]).numel(), dtype=torch.int32)
    return (pixels[:, None] + (torch.arange(shape[-1], dtype=torch.int32) << 16)).reshape(shape)


def load_block_args(load, device):
    x, out = numbered_image(load.shape).to(device), torch.full(load.block, -1, dtype=torch.int32, device=device)
    layout = shared_layout(load.block, x.dtype)
    in_desc = TensorDescriptorIm2Col(x, list(x.shape), list(x.stride()), list(load.block), layout,
                                     element_strides=[1, *load.strides, 1], pixel_box_lower_corner=list(load.lower),
                                     pixel_box_upper_corner=list(load.upper))
    return in_desc, TensorDescriptor.from_tensor(out, list(load.block), layout), load.coord, load.offsets


# %%
# What should arrive follows from the definition, one base position after the other: the last dimension moves first,
# each dimension turns from its upper limit to its lower corner, and past the last dimension comes the next image.


def expected_block(load):
    x = numbered_image(load.shape)
    block = torch.zeros(load.block, dtype=torch.int32)
    n, *base, first_channel = load.coord
    last = [extent - 1 + upper for extent, upper in zip(load.shape[1:-1], load.upper)]
    for row in block:
        position = [b + o for b, o in zip(base, load.offsets)]
        if n < load.shape[0] and all(0 <= p < extent for p, extent in zip(position, load.shape[1:-1])):
            channels = x[(n, *position)][first_channel:first_channel + load.block[1]]
            row[:len(channels)] = channels
        for dim in reversed(range(len(base))):
            base[dim] += load.strides[dim]
            if base[dim] <= last[dim]:
                break
            base[dim] = load.lower[dim]
        else:
            n += 1
    return block


# %%
# .. figure:: /gluon/im2col-walk.svg
#    :alt: The base positions of an im2col load on a 5 by 6 image, in order, and the pixels that a tap reads from them.
#
#    The walk of the case "a stride of 2" below. Left, the base positions in the order of the block's rows. Right, the
#    pixels that the tap (0, 2) reads from them; rows that fall outside the image are filled with zeros.
#
# A 3x3 filter with one pixel of padding has lower corner -1 and, because its last tap reaches two pixels further, upper
# corner -1: base positions run from -1 to extent - 2. Each case changes one thing.

SQUARE = Load(shape=(2, 5, 6, 8), block=(32, 8), lower=(-1, -1), upper=(-1, -1), strides=(1, 1), coord=(0, -1, -1, 0),
              offsets=(0, 0))

LOADS = {
    "the whole image": SQUARE._replace(lower=(0, 0), upper=(0, 0), coord=(0, 0, 0, 0)),
    "padding through the corners": SQUARE,
    "the middle tap": SQUARE._replace(offsets=(1, 1)),
    "the last tap": SQUARE._replace(offsets=(2, 2)),
    "a stride of 2": SQUARE._replace(block=(16, 8), strides=(2, 2), offsets=(0, 2)),
    "a dilation of 2": SQUARE._replace(lower=(-2, -2), upper=(-2, -2), coord=(0, -2, -2, 0), offsets=(0, 4)),
    "asymmetric padding": SQUARE._replace(lower=(0, -2), upper=(0, -1), coord=(0, 0, -2, 0), offsets=(0, 1)),
    "from mid-row over rows and images": SQUARE._replace(coord=(0, 2, 3, 0), offsets=(1, 1)),
    "past the last channel": SQUARE._replace(block=(32, 16), offsets=(1, 1)),
    "past the last image": SQUARE._replace(coord=(1, 1, 0, 0), offsets=(1, 1)),
    "1-D": Load((2, 9, 8), (16, 8), (-1, ), (-1, ), (1, ), (0, 3, 0), (2, )),
    "3-D": Load((2, 3, 3, 4, 8), (64, 8), (-1, 0, -1), (-1, 0, -1), (1, 2, 1), (0, 0, 0, 1, 0), (1, 0, 2)),
}


@needs_gpu
@pytest.mark.parametrize("name", LOADS)
def test_load_block(name):
    load = LOADS[name]
    args = load_block_args(load, active_device())
    load_block_kernel[(1, )](*args, num_warps=1)
    block = args[1].base.cpu()
    numbers = " ".join(f"{number:2}" if number else " ." for number in (block[:, 0] & 0xFFFF).tolist())
    print(f"{name}: {load}\n  {numbers}\n")
    assert torch.equal(block, expected_block(load))


# %%
# 2. Convolution as an implicit GEMM
# ----------------------------------
#
# A 2-D convolution of an input ``[N, H, W, Ci]`` with a filter ``[Co, R, S, Ci]`` is
#
# .. math::
#    y[n, p, q, k] = \sum_{r, s, c} x[n,\; p\,\sigma_h - pad_{top} + r\,d_h,\; q\,\sigma_w - pad_{left} + s\,d_w,\; c]
#                    \; w[k, r, s, c]
#
# with strides :math:`\sigma`, dilations :math:`d` and zeros outside the image. Read (n, p, q) as one index m and (r, s,
# c) as another, and it is a matrix product of shape ``[N P Q, R S Ci] x [R S Ci, Co]``.
#
# .. figure:: /gluon/im2col-gemm.svg
#    :alt: The im2col matrix of a small convolution, with one tile marked in it and in the image.
#
#    A tile of the left matrix, rows of output pixels by channels of one tap, is what one im2col load delivers.
#
# The load's parameters follow from the index of x, dimension by dimension. Split it into a base position that depends
# on the output pixel and an offset that depends on the tap:
#
# - base(p) = p * stride - pad_before, and offset(r) = r * dilation, which is never negative;
# - the smallest base is base(0), so ``lower = -pad_before``;
# - consecutive outputs are ``stride`` apart, so ``element_strides = stride``;
# - the last tap of the last output must not leave the padded image: base + (R - 1) * dilation <= H - 1 + pad_after. The
#   limit of the walk is H - 1 + upper, so ``upper = pad_after - (R - 1) * dilation``.
#
# The walk then visits exactly ``P = (H + pad_before + pad_after - (R - 1) * dilation - 1) // stride + 1`` bases per
# column and Q per row: m runs through the output pixels in memory order, and a block may start anywhere and cross rows
# and images.
#
# The weights stay a tensor of three dimensions, ``[R S, Co, Ci]``, instead of a matrix ``[Co, R S Ci]``. If Ci is not a
# multiple of the block, the last block of channels of one tap would, in the matrix, run on into the next tap's weights.
# They would meet zeros from the input, but 0 x Inf is NaN. As a tensor, both sides are filled.
#
# First the host side: the sizes and their checks. A wrong argument must be refused here: past this point it is a wrong
# number or a hang.


def out_size(extent, padding, taps, dilation, stride):
    return (extent + padding - (taps - 1) * dilation - 1) // stride + 1


class Conv(
        namedtuple("Conv", "N H W Ci Co R S stride_h stride_w pad_top pad_bottom pad_left pad_right dil_h dil_w",
                   defaults=(1, 1, 0, 0, 0, 0, 1, 1))):
    """The sizes of a convolution, in the order in which the kernels take them."""

    @property
    def out(self):
        return (out_size(self.H, self.pad_top + self.pad_bottom, self.R, self.dil_h, self.stride_h),
                out_size(self.W, self.pad_left + self.pad_right, self.S, self.dil_w, self.stride_w))

    @property
    def gemm(self):
        return self.N * self.out[0] * self.out[1], self.Co, self.R * self.S * self.Ci

    @property
    def corners(self):
        return ([-self.pad_top, -self.pad_left],
                [self.pad_bottom - (self.R - 1) * self.dil_h, self.pad_right - (self.S - 1) * self.dil_w])


def per_dimension(name, value, count):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, ) * count
    if len(values) != count or not all(isinstance(v, int) for v in values):
        raise ValueError(f"{name} is {value!r}; expected an int or {count} ints")
    return values


def check(x, w, stride=1, padding=0, dilation=1, *, target, device):
    """Return the convolution as a ``Conv``, or say what these kernels or the hardware cannot do about it."""
    if not is_supported(target):
        raise NotImplementedError(
            f"target is {target}; expected CUDA sm_90 (Hopper), sm_100 or sm_103 (Blackwell): TMA "
            "im2col with wgmma or tcgen05")
    for name, tensor in (("x", x), ("w", w)):
        shape, strides, address = tuple(tensor.shape), tensor.stride(), tensor.data_ptr()
        if len(shape) != 4 or 0 in shape:
            raise ValueError(f"{name} has shape {shape}; expected 4 dimensions, none of size 0")
        if tensor.dtype not in (torch.bfloat16, torch.float16) or tensor.dtype != x.dtype:
            raise TypeError(f"{name} is {tensor.dtype}, x is {x.dtype}; expected both torch.bfloat16 or torch.float16")
        if tensor.device.type != device.type or tensor.device.index not in (None, device.index):
            raise ValueError(f"{name} is on {tensor.device}; the active driver runs on {device}")
        if not tensor.permute(0, 2, 3, 1).is_contiguous():
            raise ValueError(f"{name} has strides {strides} for shape {shape}; expected channels innermost: use "
                             ".to(memory_format=torch.channels_last)")
        if address % 16:
            raise ValueError(f"{name} is at address {address:#x}; expected a multiple of 16: use .clone()")
    (N, Ci, H, W), (Co, Ci_w, R, S) = x.shape, w.shape
    if Ci != Ci_w:
        raise ValueError(f"x has {Ci} channels and w has {Ci_w}; expected the same number (groups are left out)")
    if Ci % 8 or Co % 8:
        raise ValueError(f"w has K, C = {Co}, {Ci} channels; TMA needs multiples of 8 (16 bytes): pad them with zeros")
    if not isinstance(padding, (tuple, list)) or len(padding) != 4:
        padding = [pad for pad in per_dimension("padding", padding, 2) for _ in range(2)]
    conv = Conv(N, H, W, Ci, Co, R, S, *per_dimension("stride", stride, 2), *per_dimension("padding", padding, 4),
                *per_dimension("dilation", dilation, 2))
    for name, lowest, highest in (("stride", 1, 8), ("pad", 0, 128), ("dil", 1, 255)):
        for field, value in conv._asdict().items():
            if field.startswith(name + "_") and not lowest <= value <= highest:
                raise ValueError(f"{field} is {value}; expected {lowest} to {highest}")
    extents = (H + conv.pad_top + conv.pad_bottom, W + conv.pad_left + conv.pad_right)
    reaches = ((R - 1) * conv.dil_h, (S - 1) * conv.dil_w)
    for dim, extent, reach, corner in zip("hw", extents, reaches, conv.corners[1]):
        if extent <= reach:
            raise ValueError(f"the filter spans {reach + 1} pixels in {dim}, the padded input {extent}: no output")
        if reach > 255:
            raise ValueError(f"the last tap has offset {reach} in {dim}; an im2col offset is at most 255")
        if not -128 <= corner <= 127:
            raise ValueError(f"the upper corner in {dim}, pad - (taps - 1) * dil, is {corner}; expected -128 to 127")
    if conv.gemm[0] >= 2**31 - 256:
        raise ValueError(f"N * P * Q is {conv.gemm[0]}; expected less than 2**31 - 256: split the batch")
    return conv


# %%
# Then the three descriptors. Strides are derived from the sizes, since PyTorch leaves those of dimensions of size 1
# open.


def make_descriptors(conv, x, w, y, tile, slab):
    m, n, k = tile
    in_desc = TensorDescriptorIm2Col(x, [conv.N, conv.H, conv.W, conv.Ci],
                                     [conv.H * conv.W * conv.Ci, conv.W * conv.Ci, conv.Ci, 1], [m, k],
                                     shared_layout([m, k],
                                                   x.dtype), element_strides=[1, conv.stride_h, conv.stride_w, 1],
                                     pixel_box_lower_corner=conv.corners[0], pixel_box_upper_corner=conv.corners[1])
    taps = conv.R * conv.S
    w_desc = TensorDescriptor(w, [taps, conv.Co, conv.Ci], [conv.Ci, taps * conv.Ci, 1], [1, n, k],
                              shared_layout([1, n, k], w.dtype))
    out_desc = TensorDescriptor(y, [conv.gemm[0], conv.Co], [conv.Co, 1], [m, slab], shared_layout([m, slab], y.dtype))
    return in_desc, w_desc, out_desc


# %%
# On the device, ``ConvConfig`` holds the same sizes and the block shape, and turns a tile's number into its place:
# first the place in the matrix, in groups of ``GROUP_M`` block rows so that the tiles in flight share their operands in
# L2, then the base position of its first pixel, which is all that an im2col load needs to know. The sizes are not
# specialized: one compiled kernel serves all convolutions.

out_size_jit = gluon.jit(out_size)


@aggregate
class ConvProgram:
    """A tile: its place in the output matrix, and the base position of its first pixel."""
    off_m: gl.tensor
    off_n: gl.tensor
    n: gl.tensor
    h: gl.tensor
    w: gl.tensor


@aggregate
class ConvConfig:
    N: gl.tensor
    H: gl.tensor
    W: gl.tensor
    Ci: gl.tensor
    Co: gl.tensor
    R: gl.tensor
    S: gl.tensor
    stride_h: gl.tensor
    stride_w: gl.tensor
    pad_top: gl.tensor
    pad_bottom: gl.tensor
    pad_left: gl.tensor
    pad_right: gl.tensor
    dil_h: gl.tensor
    dil_w: gl.tensor
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr

    @gluon.jit
    def out(self):
        return (out_size_jit(self.H, self.pad_top + self.pad_bottom, self.R, self.dil_h, self.stride_h),
                out_size_jit(self.W, self.pad_left + self.pad_right, self.S, self.dil_w, self.stride_w))

    @gluon.jit
    def blocks(self):
        P, Q = self.out()
        return gl.cdiv(self.N * P * Q, self.BLOCK_M), gl.cdiv(self.Co, self.BLOCK_N)

    @gluon.jit
    def num_tiles(self):
        blocks_m, blocks_n = self.blocks()
        return blocks_m * blocks_n

    @gluon.jit
    def num_steps(self):
        return gl.cdiv(self.Ci, self.BLOCK_K) * self.R * self.S

    @gluon.jit
    def get_program(self, tile):
        P, Q = self.out()
        blocks_m, blocks_n = self.blocks()
        first = tile // (self.GROUP_M * blocks_n) * self.GROUP_M
        rows = gl.minimum(blocks_m - first, self.GROUP_M)
        within = tile % (self.GROUP_M * blocks_n)
        off_m = (first + within % rows) * self.BLOCK_M
        h = off_m // Q % P * self.stride_h - self.pad_top
        w = off_m % Q * self.stride_w - self.pad_left
        return ConvProgram(off_m, within // rows * self.BLOCK_N, off_m // (P * Q), h, w)


@gluon.jit
def load_operands(config, program, in_desc, w_desc, channel, r, s, bar, a, b):
    """Load one step of the reduction: one tap, one block of channels."""
    mbarrier.expect(bar, in_desc.nbytes_per_cta + w_desc.nbytes_per_cta)
    tap = [(r * config.dil_h).to(gl.int16), (s * config.dil_w).to(gl.int16)]
    tma.async_load_im2col(in_desc, [program.n, program.h, program.w, channel], tap, bar, a)
    tma.async_load(w_desc, [r * config.S + s, program.off_n, channel], bar, b)


@gluon.jit
def as_matrix(b):
    """A block of the weights, [1, BLOCK_N, BLOCK_K], as the MMA's right operand, [BLOCK_K, BLOCK_N]."""
    return b.reshape((b.shape[1], b.shape[2])).permute((1, 0))


# %%
# 3. A first kernel
# -----------------
#
# One tile per program, one buffer: load, wait, multiply, wait. Channels are the outer loop and taps the inner ones, so
# that a tap finds in L2 most of the pixels that the tap before it read.
#
# Hopper and Blackwell differ in where the accumulator is. A wgmma adds to registers of the warps that issue it; a
# tcgen05 MMA adds to tensor memory, and an mbarrier tells when it is complete.

SIZES = list(Conv._fields)


@gluon.jit
def wgmma_accumulator(BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    return gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)


@gluon.jit(do_not_specialize=SIZES)
def first_kernel(in_desc, w_desc, out_desc, N, H, W, Ci, Co, R, S, stride_h, stride_w, pad_top, pad_bottom, pad_left,
                 pad_right, dil_h, dil_w, GROUP_M: gl.constexpr, HOPPER: gl.constexpr):
    config = ConvConfig(N, H, W, Ci, Co, R, S, stride_h, stride_w, pad_top, pad_bottom, pad_left, pad_right, dil_h,
                        dil_w, in_desc.block_shape[0], w_desc.block_shape[1], in_desc.block_shape[1], GROUP_M)
    program = config.get_program(gl.program_id(0))
    a = gl.allocate_shared_memory(in_desc.dtype, in_desc.block_shape, in_desc.layout)
    b = gl.allocate_shared_memory(w_desc.dtype, w_desc.block_shape, w_desc.layout)
    y = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_shape, out_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    loaded, multiplied = bars.index(0), bars.index(1)
    mbarrier.init(loaded, count=1)
    mbarrier.init(multiplied, count=1)
    if HOPPER:
        acc = wgmma_accumulator(config.BLOCK_M, config.BLOCK_N)
    else:
        memory_layout: gl.constexpr = TensorMemoryLayout((128, config.BLOCK_N), col_stride=1)
        memory = allocate_tensor_memory(gl.float32, [config.BLOCK_M, config.BLOCK_N], memory_layout)

    phase = 0
    for channel in range(0, Ci, config.BLOCK_K):
        for r in range(R):
            for s in range(S):
                load_operands(config, program, in_desc, w_desc, channel, r, s, loaded, a, b)
                mbarrier.wait(loaded, phase)
                use_acc = channel + r + s > 0
                if HOPPER:
                    acc = warpgroup_mma(a, as_matrix(b), acc, use_acc=use_acc, is_async=True)
                    acc = warpgroup_mma_wait(0, deps=(acc, ))
                else:
                    tcgen05_mma(a, as_matrix(b), memory, use_acc=use_acc, mbarriers=[multiplied])
                    mbarrier.wait(multiplied, phase)
                phase ^= 1

    if not HOPPER:
        acc = memory.load()
    y.store(acc.to(out_desc.dtype))
    fence_async_shared()  # y was written by threads and is read by TMA
    tma.async_store(out_desc, [program.off_m, program.off_n], y)
    tma.store_wait(0)


# %%
# 4. The real kernel
# ------------------
#
# Three things keep the first kernel from the speed of the tensor cores, and each has a remedy:
#
# - Loads and MMAs take turns. Now a *load partition* of one warp runs ahead through a ring of buffers, and an *MMA
#   partition* follows.
# - The MMAs stop while the result leaves. Now it leaves in slabs of 16 KB through a second ring, and a *store
#   partition* of one warp issues the TMA stores while the MMAs of the next tile run.
# - Each tile starts from cold. Now the kernel is persistent: one program per multiprocessor takes every
#   ``num_programs``-th tile, and its load partition does not stop in between.
#
# A ``Ring`` is a number of slots that a producer fills and a consumer empties, with two mbarriers each. Both count
# their turns; turn i is in slot ``i % SLOTS``. A wait names the parity of the phase that must be complete: that of the
# round for a full slot, and for an empty one that of the round before, so that the producer's first round does not
# wait.


@aggregate
class Ring:
    fulls: gl.shared_memory_descriptor
    empties: gl.shared_memory_descriptor
    SLOTS: gl.constexpr

    @gluon.jit
    def create(SLOTS: gl.constexpr):
        fulls = mbarrier.allocate_mbarrier(batch=SLOTS)
        empties = mbarrier.allocate_mbarrier(batch=SLOTS)
        for i in gl.static_range(SLOTS):
            mbarrier.init(fulls.index(i), count=1)
            mbarrier.init(empties.index(i), count=1)
        return Ring(fulls, empties, SLOTS)

    @gluon.jit
    def slot(self, i):
        return i % self.SLOTS

    @gluon.jit
    def full(self, i):
        return self.fulls.index(self.slot(i))

    @gluon.jit
    def empty(self, i):
        return self.empties.index(self.slot(i))

    @gluon.jit
    def wait_full(self, i):
        mbarrier.wait(self.full(i), i // self.SLOTS & 1)

    @gluon.jit
    def wait_empty(self, i):
        mbarrier.wait(self.empty(i), i // self.SLOTS & 1 ^ 1)


@aggregate
class Partition:
    """What all partitions share."""
    config: ConvConfig
    in_desc: tma.tensor_descriptor_im2col
    w_desc: tma.tensor_descriptor
    out_desc: tma.tensor_descriptor
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    operands: Ring  # slots of a and b
    y: gl.shared_memory_descriptor
    slabs: Ring  # slots of y


@gluon.jit
def load_partition(p):
    config = p.config
    i = 0
    for tile in range(gl.program_id(0), config.num_tiles(), gl.num_programs(0)):
        program = config.get_program(tile)
        for channel in range(0, config.Ci, config.BLOCK_K):
            for r in range(config.R):
                for s in range(config.S):
                    p.operands.wait_empty(i)
                    slot = p.operands.slot(i)
                    load_operands(config, program, p.in_desc, p.w_desc, channel, r, s, p.operands.full(i),
                                  p.a.index(slot), p.b.index(slot))
                    i += 1


@gluon.jit
def store_partition(p):
    WIDTH: gl.constexpr = p.out_desc.block_shape[1]
    slab = 0
    for tile in range(gl.program_id(0), p.config.num_tiles(), gl.num_programs(0)):
        program = p.config.get_program(tile)
        for j in gl.static_range(p.config.BLOCK_N // WIDTH):
            p.slabs.wait_full(slab)
            tma.async_store(p.out_desc, [program.off_m, program.off_n + j * WIDTH], p.y.index(p.slabs.slot(slab)))
            tma.store_wait(0)
            mbarrier.arrive(p.slabs.empty(slab))
            slab += 1


@gluon.jit
def write_slab(p, columns, slab):
    p.slabs.wait_empty(slab)
    p.y.index(p.slabs.slot(slab)).store(columns.to(p.out_desc.dtype))
    fence_async_shared()
    mbarrier.arrive(p.slabs.full(slab))


# %%
# All that differs between the architectures follows. On Hopper the accumulator is in registers of the MMA partition, so
# that partition also writes the slabs. Nothing tells when a wgmma has read its operands, but it is known that the one
# before has once only the newest is running.


@gluon.jit
def take_columns(x, j: gl.constexpr, WIDTH: gl.constexpr):
    """Columns j * WIDTH to (j + 1) * WIDTH of a register tensor, by halving: no data moves between threads."""
    HALF: gl.constexpr = x.shape[1] // 2
    if WIDTH == x.shape[1]:
        return x
    else:
        low, high = x.reshape([x.shape[0], 2, HALF]).permute(0, 2, 1).split()
        if j * WIDTH < HALF:
            return take_columns(low, j, WIDTH)
        else:
            return take_columns(high, j - HALF // WIDTH, WIDTH)


@gluon.jit
def hopper_mma_partition(p):
    WIDTH: gl.constexpr = p.out_desc.block_shape[1]
    acc = wgmma_accumulator(p.config.BLOCK_M, p.config.BLOCK_N)
    i = 0
    slab = 0
    for tile in range(gl.program_id(0), p.config.num_tiles(), gl.num_programs(0)):
        for step in range(p.config.num_steps()):
            p.operands.wait_full(i)
            slot = p.operands.slot(i)
            acc = warpgroup_mma(p.a.index(slot), as_matrix(p.b.index(slot)), acc, use_acc=step > 0, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc, ))
            mbarrier.arrive(p.operands.empty(gl.maximum(i - 1, 0)), pred=step > 0)
            i += 1
        acc = warpgroup_mma_wait(0, deps=(acc, ))
        mbarrier.arrive(p.operands.empty(i - 1))
        for j in gl.static_range(p.config.BLOCK_N // WIDTH):
            write_slab(p, take_columns(acc, j, WIDTH), slab)
            slab += 1


# %%
# On Blackwell one warp issues the MMAs, and the hardware arrives at the mbarriers. There are two accumulators, the
# slots of a third ring: while an *epilogue partition* fetches one and writes the slabs, the MMAs of the next tile fill
# the other.


@gluon.jit
def blackwell_mma_partition(p, memory, accs):
    i = 0
    turn = 0
    for tile in range(gl.program_id(0), p.config.num_tiles(), gl.num_programs(0)):
        accs.wait_empty(turn)
        acc = memory.index(accs.slot(turn))
        for step in range(p.config.num_steps()):
            p.operands.wait_full(i)
            slot = p.operands.slot(i)
            tcgen05_mma(p.a.index(slot), as_matrix(p.b.index(slot)), acc, use_acc=step > 0,
                        mbarriers=[p.operands.empty(i)])
            i += 1
        tcgen05_commit(accs.full(turn))
        turn += 1


@gluon.jit
def blackwell_epilogue_partition(p, memory, accs):
    WIDTH: gl.constexpr = p.out_desc.block_shape[1]
    turn = 0
    slab = 0
    for tile in range(gl.program_id(0), p.config.num_tiles(), gl.num_programs(0)):
        accs.wait_full(turn)
        for j in gl.static_range(p.config.BLOCK_N // WIDTH):
            write_slab(p, memory.index(accs.slot(turn)).slice(j * WIDTH, WIDTH).load(), slab)
            slab += 1
        mbarrier.arrive(accs.empty(turn))
        turn += 1


@gluon.jit(do_not_specialize=SIZES)
def conv_kernel(in_desc, w_desc, out_desc, N, H, W, Ci, Co, R, S, stride_h, stride_w, pad_top, pad_bottom, pad_left,
                pad_right, dil_h, dil_w, GROUP_M: gl.constexpr, HOPPER: gl.constexpr, STAGES: gl.constexpr,
                SLABS: gl.constexpr):
    config = ConvConfig(N, H, W, Ci, Co, R, S, stride_h, stride_w, pad_top, pad_bottom, pad_left, pad_right, dil_h,
                        dil_w, in_desc.block_shape[0], w_desc.block_shape[1], in_desc.block_shape[1], GROUP_M)
    a = gl.allocate_shared_memory(in_desc.dtype, [STAGES] + in_desc.block_shape, in_desc.layout)
    b = gl.allocate_shared_memory(w_desc.dtype, [STAGES] + w_desc.block_shape, w_desc.layout)
    y = gl.allocate_shared_memory(out_desc.dtype, [SLABS] + out_desc.block_shape, out_desc.layout)
    p = Partition(config, in_desc, w_desc, out_desc, a, b, Ring.create(STAGES), y, Ring.create(SLABS))
    if HOPPER:
        gl.warp_specialize([(hopper_mma_partition, (p, )), (load_partition, (p, )), (store_partition, (p, ))], [1, 1],
                           [24, 24])
    else:
        memory_layout: gl.constexpr = TensorMemoryLayout((128, config.BLOCK_N), col_stride=1)
        memory = allocate_tensor_memory(gl.float32, [2, config.BLOCK_M, config.BLOCK_N], memory_layout)
        accs = Ring.create(2)
        gl.warp_specialize([(blackwell_epilogue_partition, (p, memory, accs)),
                            (blackwell_mma_partition, (p, memory, accs)), (load_partition, (p, )),
                            (store_partition, (p, ))], [1, 1, 1], [24, 24, 24])


# %%
# The host picks the tile. A persistent kernel takes as long as its busiest program: the number of tiles that it gets,
# times what a tile costs. The costs were fitted to measurements on an H200, in units of one step of the smallest tile.
# A ring has as many stages as shared memory holds beside the slabs. The first kernel uses 256x128, as large as
# registers allow, so nothing hides its waits. (With 128x128, three programs would share a multiprocessor and take
# turns.)

Tile = namedtuple("Tile", "m n slabs step_cost end_cost")
TILES = [Tile(128, 128, 2, 1.0, 3.3), Tile(256, 128, 2, 1.95, 8.5), Tile(256, 64, 1, 1.4, 4.0)]
BLOCK_K = 64  # 128 bytes, the widest swizzle
SLAB_BYTES = 16 * 1024
SHARED_BYTES = 227 * 1024
TENSOR_MEMORY_COLUMNS = 512


def num_tiles(conv, tile):
    return triton.cdiv(conv.gemm[0], tile.m) * triton.cdiv(conv.Co, tile.n)


def pick_tile(conv, programs):
    steps = conv.R * conv.S * triton.cdiv(conv.Ci, BLOCK_K)

    def cost(tile):
        return triton.cdiv(num_tiles(conv, tile), programs) * (steps * tile.step_cost + tile.end_cost)

    return min(TILES, key=cost)


def kernel_args(kernel, conv, x, w, y, tile, hopper):
    options = dict(GROUP_M=4, HOPPER=hopper, num_warps=8)
    slab = tile.n
    if kernel is conv_kernel:
        slab = SLAB_BYTES // (2 * tile.m)
        stages = (SHARED_BYTES - tile.slabs * SLAB_BYTES - 1024) // (2 * BLOCK_K * (tile.m + tile.n))
        options |= dict(STAGES=stages, SLABS=tile.slabs, num_warps=8 if hopper else 4)
    return (*make_descriptors(conv, x, w, y, (tile.m, tile.n, BLOCK_K), slab), *conv), options


def prepare(x, w, stride=1, padding=0, dilation=1, kernel=conv_kernel, tile=None):
    """Check the arguments; return the output tensor, not yet written, and a function that launches the kernel."""
    target, device = active_target(), active_device()
    conv = check(x, w, stride, padding, dilation, target=target, device=device)
    programs = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)["multiprocessor_count"]
    tile = tile or (TILES[1] if kernel is first_kernel else pick_tile(conv, programs))
    y = x.new_empty((conv.N, *conv.out, conv.Co)).permute(0, 3, 1, 2)
    args, options = kernel_args(kernel, conv, x, w, y, tile, target.arch // 10 == 9)
    tiles = num_tiles(conv, tile)
    grid = (min(tiles, programs) if kernel is conv_kernel else tiles, )
    return y, lambda: kernel[grid](*args, **options)


def conv2d(x, w, stride=1, padding=0, dilation=1, kernel=conv_kernel):
    """Convolve x (N, Ci, H, W) with w (Co, Ci, R, S): bf16 or fp16 in channels_last memory, accumulated in fp32.

    ``stride`` and ``dilation`` are an int or (h, w), ``padding`` an int, (h, w) or (top, bottom, left, right). Returns
    (N, Co, P, Q) in channels_last memory.
    """
    y, launch = prepare(x, w, stride, padding, dilation, kernel)
    launch()
    return y


# %%
# The tests poison the output and compare with float64. What remains is the rounding of the result to 16 bits.


def make_tensors(conv, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((conv.N, conv.Ci, conv.H, conv.W), generator=generator)
    w = torch.randn((conv.Co, conv.Ci, conv.R, conv.S), generator=generator)
    return [t.to(device, dtype).contiguous(memory_format=torch.channels_last) for t in (x, w)]


def reference(conv, x, w):
    x = F.pad(x, (conv.pad_left, conv.pad_right, conv.pad_top, conv.pad_bottom))
    return F.conv2d(x, w, stride=(conv.stride_h, conv.stride_w), dilation=(conv.dil_h, conv.dil_w))


def run_poisoned(conv, x, w, kernel=conv_kernel, tile=None):
    y, launch = prepare(x, w, conv[7:9], conv[9:13], conv[13:15], kernel, tile)
    y.fill_(float("nan"))
    launch()
    return y


CONVS = [
    Conv(1, 1, 1, 8, 8, 1, 1),  # one pixel, one tap
    Conv(3, 19, 23, 72, 136, 3, 2, 2, 1, 0, 2, 1, 0, 1, 2),  # partial blocks everywhere
    Conv(2, 3, 2, 16, 24, 7, 5, 1, 1, 3, 4, 2, 2),  # a filter wider than the image
    Conv(2, 33, 41, 40, 8, 3, 3, 8, 8, 2, 1, 0, 1),  # the largest stride
    Conv(4, 15, 9, 128, 64, 1, 1, 2, 2),  # 1x1 with a stride
    Conv(1, 4, 4, 16, 16, 2, 2, 1, 1, 128, 0, 128, 0, 3, 3),  # the lower corner at its limit
    Conv(1, 130, 200, 8, 8, 2, 2, 1, 1, 127, 0, 0, 127, 128, 255),  # the upper corner and the offset at theirs
    Conv(9, 64, 64, 72, 320, 2, 1, 1, 1, 1, 0),  # more tiles than programs
]


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kernel, tile", [(first_kernel, None), *((conv_kernel, tile) for tile in TILES)])
@pytest.mark.parametrize("conv", CONVS)
def test_conv(conv, kernel, tile, dtype):
    x, w = make_tensors(conv, dtype, active_device())
    y, expected = run_poisoned(conv, x, w, kernel, tile), reference(conv, x.double(), w.double())
    assert (y - expected).norm() <= expected.norm() * 2**(-8 if dtype is torch.bfloat16 else -11)


@needs_gpu
@pytest.mark.parametrize("kernel", [first_kernel, conv_kernel])
def test_inf_weight_stays_in_its_tap(kernel):
    conv = Conv(1, 9, 9, 40, 16, 3, 3)
    x, w = make_tensors(conv, torch.bfloat16, active_device())
    w[3, 0, 1, 1] = float("inf")
    y, expected = run_poisoned(conv, x, w, kernel), reference(conv, x.double(), w.double())
    assert torch.equal(y[:, 3].double(), expected[:, 3]) and expected[:, 3].isinf().all()
    assert y[:, :3].isfinite().all() and y[:, 4:].isfinite().all()


# %%
# 5. Measurements
# ---------------
#
# The comparison is with cuDNN in channels_last, after its own search for the fastest algorithm, and with cuBLAS on a
# matrix product of the same M, N and K, which has the same work to do but reads its left operand once and without gaps.
#
# .. figure:: /gluon/conv-im2col-h200.svg
#    :alt: TFLOP/s of the two kernels, cuDNN and cuBLAS by layer.
#
#    On more layers than below, in bf16 on an H200.

LAYERS = {
    "64 > 256, 1x1": Conv(128, 56, 56, 64, 256, 1, 1),
    "64, 3x3": Conv(128, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1),
    "128, 3x3/2": Conv(128, 56, 56, 128, 128, 3, 3, 2, 2, 1, 1, 1, 1),
    "256, 3x3": Conv(128, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1),
    "512, 3x3": Conv(32, 28, 28, 512, 512, 3, 3, 1, 1, 1, 1, 1, 1),
    "1280, 3x3": Conv(8, 32, 32, 1280, 1280, 3, 3, 1, 1, 1, 1, 1, 1),
    "2048 > 256, 3x3 by 12": Conv(8, 32, 32, 2048, 256, 3, 3, 1, 1, 12, 12, 12, 12, 12, 12),
}
PROVIDERS = ["first kernel", "conv kernel", "cuDNN", "cuBLAS GEMM"]


def candidates(conv):
    """What is compared: functions without arguments that compute ``conv``, in the order of PROVIDERS."""
    x, w = make_tensors(conv, torch.bfloat16, active_device())
    stride, (top, bottom, left, right), dilation = conv[7:9], conv[9:13], conv[13:15]
    assert (top, left) == (bottom, right), "cuDNN pads both sides alike"
    m, n, k = conv.gemm
    a, b = (torch.randn(shape, dtype=x.dtype, device=x.device) for shape in ((m, k), (n, k)))
    launches = [prepare(x, w, stride, (top, left), dilation, kernel)[1] for kernel in (first_kernel, conv_kernel)]
    return *launches, lambda: F.conv2d(x, w, None, stride, (top, left), dilation), lambda: a @ b.T


@triton.testing.perf_report(
    triton.testing.Benchmark(x_names=["layer"], x_vals=list(LAYERS), line_arg="provider", line_vals=PROVIDERS,
                             line_names=PROVIDERS, ylabel="TFLOP/s, bf16", plot_name="conv-im2col", args={}))
def benchmark(layer, provider):
    conv = LAYERS[layer]
    function = candidates(conv)[PROVIDERS.index(provider)]
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        ms = triton.testing.do_bench_cudagraph(function, return_mode="median")
    m, n, k = conv.gemm
    return 2e-9 * m * n * k / ms


# %%
# Without a GPU
# -------------
#
# Triton needs no GPU to compile. Here each kernel is compiled to a cubin for three architectures, and what it will
# occupy is read from that.


def type_of(value):
    if isinstance(value, tuple):
        return tuple(map(type_of, value))
    return "i32" if isinstance(value, int) else value.__mangle__()


def resources(arch, kernel, args, options):
    """Registers of a thread, bytes spilled (the stack frame), bytes of shared memory and columns of tensor memory."""
    constants = {name: value for name, value in options.items() if name in kernel.arg_names}
    signature = dict(zip(kernel.arg_names, map(type_of, args))) | dict.fromkeys(constants, "constexpr")
    compiled = triton.compile(GluonASTSource(kernel, signature, constants), target=GPUTarget("cuda", arch, 32),
                              options={"num_warps": options["num_warps"]})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "-res-usage", cubin.name], check=True, text=True,
                               capture_output=True)
    usage = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", usage.stdout + usage.stderr)
    registers, stack, local = map(int, usage.groups())
    return registers, stack + local, compiled.metadata.shared, compiled.metadata.tmem_size or 0


@pytest.mark.parametrize("arch", [90, 100, 103])
def test_compiled_resources(arch):
    kernels = [("load_block", load_block_kernel, load_block_args(LOADS[name], "cpu"), {"num_warps": 1})
               for name in ("1-D", "the whole image", "3-D")]
    conv = Conv(8, 56, 56, 128, 256, 3, 3, 1, 1, 1, 1, 1, 1)
    for dtype in (torch.bfloat16, torch.float16):
        x, w, y = (torch.empty(1, dtype=dtype) for _ in range(3))
        for kernel, tile in ((first_kernel, TILES[1]), *((conv_kernel, tile) for tile in TILES)):
            kernels.append((f"{kernel.__name__} {tile.m}x{tile.n} {dtype}", kernel,
                            *kernel_args(kernel, conv, x, w, y, tile, arch // 10 == 9)))
    for name, kernel, args, options in kernels:
        registers, spills, shared, columns = resources(arch, kernel, args, options)
        print(f"sm_{arch} {name:35} {registers:3} registers, {spills} bytes spilled, {shared:6} bytes of shared memory"
              f", {columns:3} columns of tensor memory")
        assert spills == 0 and shared <= SHARED_BYTES and columns <= TENSOR_MEMORY_COLUMNS
        assert (columns > 0) == (arch >= 100 and kernel is not load_block_kernel)


# %%
# 6. What is left out
# -------------------
#
# - Channel counts that are not a multiple of 8, groups, other dtypes, a bias: ``check`` says so, and
#   ``torch.nn.functional.conv2d`` takes them.
# - 1-D and 3-D convolutions. Section 1 loads their blocks; the kernels need one coordinate and one offset less or
#   more.
# - A stride of more than 8, which the mode cannot express. A stride equal to the filter's size is a reshape and a
#   matrix product, as in the tutorial on persistence.
# - The gradients. That of the input is a convolution of the output's gradient, by an im2col walk with other corners;
#   that of the weights is a product over the pixels with the same walk as here.
# - Clusters with multicast and two-CTA MMAs, and splitting the reduction of problems with few tiles.

if __name__ == "__main__":
    supported = is_supported(active_target())
    if supported:
        for name in LOADS:
            test_load_block(name)
        for conv in CONVS:
            for kernel in (first_kernel, conv_kernel):
                test_conv(conv, kernel, None, torch.bfloat16)
                print(f"{kernel.__name__} agrees with float64 on {conv}")
    else:
        print("No Hopper or data-center Blackwell GPU here: nothing is executed.")
    if supported and active_device().type == "cuda":
        benchmark.run(print_data=True, save_path=sys.argv[1] if len(sys.argv) > 1 else None)
    else:
        print("The kernels compiled to cubins:")
        for arch in (90, 100, 103):
            test_compiled_resources(arch)
