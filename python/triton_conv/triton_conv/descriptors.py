"""Tensors, a problem and a tile, to the TMA descriptors of a launch.

Tensors come as memory with channels innermost: x (N, *extents, C), w (K, *taps, C), y (N, *out, K). Sizes and strides are
given, not asked of the tensors, since PyTorch leaves strides of dimensions of size 1 open.
"""

import math

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

from .heuristics import box_of

GLUON_TYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16, torch.float32: gl.float32}


def shared_layout(block, dtype):
    return gl.NVMMASharedLayout.get_default_for(list(block), GLUON_TYPES[dtype])


def input_descriptor(problem, x, strides, tile):
    """x for the im2col loads; ``strides`` are those of (N, *extents), in elements."""
    block = [tile.line, tile.block_k]
    return TensorDescriptorIm2Col(x, [problem.batch, *problem.extents, problem.channels], [*strides, 1], block,
                                  shared_layout(block, x.dtype), round_f32_to_tf32=x.dtype == torch.float32,
                                  element_strides=[1, *problem.strides, 1], pixel_box_lower_corner=list(problem.lower),
                                  pixel_box_upper_corner=list(problem.upper))


def rows_descriptor(problem, x, strides, tile):
    """x as rows of pixels, where these are all that a matrix product reads, evenly spaced."""
    block = [tile.line, tile.block_k]
    return TensorDescriptor(x, [problem.rows, problem.channels], [strides[-1], 1], block, shared_layout(block, x.dtype),
                            round_f32_to_tf32=x.dtype == torch.float32)


def weight_descriptor(problem, w, pitch, tile):
    """w as (taps, K, C): a tap is a dimension of its own, so that channels past the last are filled on this side as well.
    ``pitch`` is the elements from one tap to the next."""
    taps = math.prod(problem.taps[:-1]) * tile.taps if tile.strip > 1 else math.prod(problem.taps)
    block = [1, box_of(tile.weight_rows), tile.weight_channels]
    return TensorDescriptor(w, [taps, w.shape[0], problem.group_channels], [pitch, taps * pitch, 1], block,
                            shared_layout(block, w.dtype), round_f32_to_tf32=w.dtype == torch.float32)


def output_descriptor(problem, y, tile):
    """y, or a residual, as (groups, rows, K of a group), so that a tile at a group's end writes nothing of the next; or as
    (pixels of a strip, rows of strips, K)."""
    block = [1, tile.line, tile.width]
    if tile.strip > 1:
        shape, pixel = [tile.strip, problem.rows, problem.out_channels], problem.out_channels
        return TensorDescriptor(y, shape, [pixel, tile.strip * pixel, 1], block, shared_layout(block, y.dtype))
    shape = [problem.groups, problem.rows, problem.group_out_channels]
    return TensorDescriptor(y, shape, [problem.group_out_channels, problem.out_channels, 1], block,
                            shared_layout(block, y.dtype))
