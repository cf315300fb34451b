"""Memory as TMA can read it: what is used in place, what is copied once, and the copies of weights that are kept.

Memory has channels innermost: x (N, *extents, C), w (K, *taps, C), y (N, *out, K).
"""

import math

import torch
from torch.utils.weak import WeakIdKeyDictionary

from .geometry import ceil_div, round_up
from .kernels.pack import pack_kernel

_copies = WeakIdKeyDictionary()


def channels_innermost(tensor):
    """The tensor (N, C, *extents) as memory (N, *extents, C)."""
    return tensor.movedim(1, -1)


def element_strides(memory):
    """Strides of (N, *extents). PyTorch leaves those of dimensions of size 1 open: they are as if the rest were contiguous."""
    strides, span = [], round_up(memory.shape[-1], 16 // memory.element_size())
    for extent, stride in zip(reversed(memory.shape[:-1]), reversed(memory.stride()[:-1])):
        strides.append(span if extent == 1 else stride)
        span = max(span, strides[-1] * extent)
    return strides[::-1]


def rows_are_even(problem, strides):
    """Whether pixels are as far from each other at the end of a line, a plane and an image as within one; ``strides`` are those of
    (N, *extents)."""
    counts = (problem.batch, *problem.extents)
    return all(stride == next_stride * count for stride, next_stride, count in zip(strides, strides[1:], counts[1:]))


def readable(memory):
    """Whether TMA can read it: channels contiguous, address and strides multiples of 16 bytes, no stride too large."""
    size = memory.element_size()
    return memory.data_ptr() % 16 == 0 and (memory.shape[-1] == 1 or memory.stride(-1) == 1) and all(
        stride * size % 16 == 0 and 0 < stride * size < 2**40 for stride in element_strides(memory))


def packed(memory, pixels, padded, before=0):
    """A copy (N, ..., pixels, padded) of memory (N, *extents, C), ``before`` pixels to the right, zero around, in one pass."""
    *lines, extent, channels = memory.shape
    strides = memory.stride()
    copy = memory.new_empty((*lines, pixels, padded))
    depth, height = (1, 1, *lines[1:])[-2:]
    x_d, x_h = (0, 0, *strides[1:-2])[-2:]
    block = min(1024, max(256, 1 << (pixels * padded - 1).bit_length()))
    grid = (math.prod(lines) * ceil_div(pixels * padded, block), )
    pack_kernel[grid](memory, copy, depth, height, extent, channels, pixels, padded, before, strides[0], x_d, x_h,
                      strides[-2], strides[-1], BLOCK=block, num_warps=4, launch_pdl=True)
    return copy


def pitched(memory):
    """The memory if TMA can read it, else a copy whose pixels are a multiple of 16 bytes apart."""
    if readable(memory):
        return memory
    *_, extent, channels = memory.shape
    return packed(memory, extent, round_up(channels, 16 // memory.element_size()))[..., :channels]


def padded_channels(memory, channels):
    """A copy with more channels, which are zero."""
    copy = memory.new_zeros((*memory.shape[:-1], channels))
    copy[..., :memory.shape[-1]] = memory
    return copy


def kept(tensor, purpose, make):
    """``make()``, which depends on the tensor alone: kept for each purpose while the tensor lives and is not written to.

    Setting ``.data``, as moving a module does, gives a tensor other memory without a new version.
    """
    if tensor.is_inference() or torch.compiler.is_compiling():
        return make()
    now = tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
    made_from, copies = _copies.get(tensor, (None, {}))
    if made_from != now:
        copies = {}
        _copies[tensor] = now, copies
    if purpose not in copies:
        copies[purpose] = make()
    return copies[purpose]


def weight_memory(w):
    """w (K, C, *taps) as (K, *taps, C) with taps evenly spaced, and their pitch in elements: the weight's own memory or a copy."""
    memory = channels_innermost(w)
    size, channels = w.element_size(), w.shape[1]
    if memory.is_contiguous() and channels * size % 16 == 0 and w.data_ptr() % 16 == 0:
        return memory, channels
    pitch = round_up(channels, 16 // size)

    def make():
        return memory.new_empty((*memory.shape[:-1], pitch))[..., :channels].copy_(memory)

    return kept(w, "pitched", make), pitch


def dense_weight(w):
    """w (K, C, *taps) as contiguous (K, *taps, C)."""
    memory = channels_innermost(w)
    return memory if memory.is_contiguous() else kept(w, "dense", memory.contiguous)


def bundled_weight(w, groups, bundle):
    """w (K, C / groups, *taps) as (K, bundle, *taps): groups that share a bundle of channels, with zeros where they do not meet."""

    def make():
        out_channels, channels, *taps = w.shape
        together = bundle // channels
        bundles = groups // together
        copy = w.new_zeros((bundles, together, out_channels // groups, *taps, together, channels))
        memory = channels_innermost(w).unflatten(0, (bundles, together, -1))
        # The diagonal of two dimensions is the last one.
        copy.diagonal(dim1=1, dim2=-2).copy_(memory.movedim(1, -1))
        return copy.reshape(out_channels, *taps, bundle).movedim(-1, 1)

    return kept(w, ("bundled", bundle), make)


def strip_weight(w, groups, bundle, bundles, stride):
    """w (K, C / groups, *taps) for pairs of output pixels: (K * 2 / bundles, bundles * bundle, *taps of a pair).

    Of each block of ``bundles`` bundles, rows are the pixels of a pair by the output channels of a bundle, with all bundles'
    weights side by side.
    """

    def make():
        memory = channels_innermost(bundled_weight(w, groups, bundle))  # (K, *taps, bundle)
        out_channels, *lead, taps, _ = memory.shape
        window = stride + taps
        blocks = out_channels // (bundles * bundle)
        copy = w.new_zeros((blocks, 2, bundle, *lead, window, bundles, bundle))
        rows = memory.unflatten(0, (blocks, bundles, bundle)).movedim(1, -2)
        for pixel in range(2):
            copy[:, pixel].narrow(-3, pixel * stride, taps).copy_(rows)
        return copy.reshape(blocks * 2 * bundle, *lead, window, bundles * bundle).movedim(-1, 1)

    return kept(w, ("strips", bundle, bundles, stride), make)


def dense_residual(residual):
    """residual (N, K, *out) as memory (N, *out, K) that TMA can read."""
    memory = channels_innermost(residual).contiguous()
    return memory.clone() if memory.data_ptr() % 16 else memory


def folded_input(problem, memory, padded, pixels):
    """The copy behind ``geometry.fold_width``: (N, ..., pixels, padded), zero where there is padding."""
    return packed(memory, pixels, padded, problem.before[-1])


def folded_weight(w, padded):
    """w (K, C, ..., S) as (K, ..., 1, S * padded channels) with a pitch of whole 16 bytes, and that pitch."""
    out_channels, channels, *taps = w.shape
    pitch = round_up(taps[-1] * padded, 16 // w.element_size())

    def make():
        copy = w.new_zeros((out_channels, *taps[:-1], pitch))
        window = copy[..., :taps[-1] * padded].unflatten(-1, (taps[-1], padded))
        window[..., :channels] = channels_innermost(w)
        return copy

    return kept(w, ("folded", padded), make), pitch
