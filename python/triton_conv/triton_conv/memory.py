"""Memory as TMA can read it: what is used in place, what is copied once, and the copies of weights that are kept.

Memory has channels innermost: x (N, *extents, C), w (K, *taps, C), y (N, *out, K).
"""

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.weak import WeakIdKeyDictionary

from . import ahead
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
    launch = ahead.launcher(pack_kernel, grid)
    launch(memory, copy, depth, height, extent, channels, pixels, padded, before, strides[0], x_d, x_h, strides[-2],
           strides[-1], BLOCK=block, num_warps=4, launch_pdl=True)
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


def is_capturing(device):
    """Whether what is done there becomes part of a CUDA graph, instead of being done."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def lasting(make, device):
    """``make()``, whose memory outlives the call.

    It is made by another thread, on the caller's stream. What the caller allocates may come from memory that graphs are to
    overwrite, as while torch.compile makes its own.
    """
    if is_capturing(device):
        return make()
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def run():
        with contextlib.nullcontext() if stream is None else torch.cuda.stream(stream), torch.no_grad():
            return make()

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


class Copy:
    """A copy that all streams may read: others than the one that made it wait for that, each once."""

    def __init__(self, tensor):
        self.tensor, self.streams = tensor, set()
        if tensor.is_cuda:
            stream = torch.cuda.current_stream(tensor.device)
            self.made = stream.record_event()
            self.streams.add(stream.cuda_stream)

    def on_current_stream(self):
        tensor = self.tensor
        if tensor.is_cuda and torch._C._cuda_getCurrentRawStream(tensor.device.index) not in self.streams:
            stream = torch.cuda.current_stream(tensor.device)
            stream.wait_event(self.made)
            tensor.record_stream(stream)  # its memory is not used for anything else before this stream has read it
            self.streams.add(stream.cuda_stream)
        return tensor


def kept(tensor, purpose, make):
    """``make()``, which depends on the tensor alone: kept for each purpose while the tensor lives and is not written to.

    Setting ``.data``, as moving a module does, gives a tensor other memory without a new version. A graph that is captured makes
    its own each time that it is replayed, by when the tensor may have been written to.
    """
    if tensor.is_inference() or torch.compiler.is_compiling() or is_capturing(tensor.device):
        return make()
    now = tensor._version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
    made_from, copies = _copies.get(tensor, (None, {}))
    if made_from != now:
        copies = {}
        _copies[tensor] = now, copies
    if purpose not in copies:
        copies[purpose] = Copy(lasting(make, tensor.device))
    return copies[purpose].on_current_stream()


def whole_weight(w, out_channels):
    """w with more output channels, which are zero."""

    def make():
        memory = channels_innermost(w)
        copy = memory.new_zeros((out_channels, *memory.shape[1:]))
        copy[:len(memory)] = memory
        return copy.movedim(-1, 1)

    return kept(w, ("whole", out_channels), make)


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


def strip_weight(w, bundle, bundles, stride):
    """w (K, C / groups, *taps) for pairs of output pixels: (K * 2 / bundles, bundles * bundle, *taps of a pair).

    Of each block of ``bundles`` bundles, rows are the pixels of a pair by the output channels of a bundle, with all bundles'
    weights side by side.
    """

    def make():
        memory = channels_innermost(w)
        out_channels, *taps, channels = memory.shape
        blocks, window = out_channels // (bundles * bundle), stride + taps[-1]
        copy = w.new_zeros((blocks, 2, bundle, *taps[:-1], window, bundles, bundle))
        block, pixel, row, *lead, tap, column, channel = copy.stride()
        # Of a bundle's rows and channels only those of the same group meet, on a diagonal; a pixel's taps are ``stride`` further on.
        groups = bundle // channels
        places = copy.as_strided(
            (blocks, bundles, groups, channels, 2, *taps, channels),
            (block, column, channels * (row + channel), row, pixel + stride * tap, *lead, tap, channel))
        weights = memory.unflatten(0, (blocks, bundles, groups, channels)).unsqueeze(4)
        places.copy_(weights.expand(places.shape))
        return copy.reshape(blocks * 2 * bundle, *taps[:-1], window, bundles * bundle).movedim(-1, 1)

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
    taps, size = w.shape[-1], w.element_size()
    pixels = next(p for p in range(taps, taps + 16) if p * padded * size % 16 == 0)

    def make():
        return packed(channels_innermost(w), pixels, padded).flatten(-2)

    return kept(w, ("folded", padded), make), pixels * padded
