"""Forward, both gradients and the walks that they take, in PyTorch: what the kernels do, without hardware.

Tensors have channels last: x is (N, [D, [H,]] W, C), w is (K, [T, [R,]] S, C), y is (N, [Z, [P,]] Q, K). ``before`` and
``after`` are the padding; all arguments have one entry a spatial dimension.
"""

import itertools
import math

import torch
from im2col_reference import sources


def load(x, lower, upper, strides, offsets):
    """All rows of an im2col matrix for one tap, one after the other, as loads from the first base position bring them."""
    last = [extent - 1 + corner for extent, corner in zip(x.shape[1:-1], upper)]
    count = x.shape[0] * math.prod((l - low) // step + 1 for l, low, step in zip(last, lower, strides))
    fill = torch.zeros_like(x[(0, ) * (x.ndim - 1)])
    rows = sources(x.shape, lower, upper, strides, (0, *lower), offsets, count)
    return torch.stack([fill if row is None else x[row] for row in rows])


def out_extents(extents, taps, strides, before, after, dilations):
    return [(e + b + a - (t - 1) * d - 1) // s + 1
            for e, t, s, b, a, d in zip(extents, taps, strides, before, after, dilations)]


def fprop_walk(taps, strides, before, after, dilations):
    """The corners of a forward convolution, and the offset of each tap."""
    lower = [-b for b in before]
    upper = [a - (t - 1) * d for a, t, d in zip(after, taps, dilations)]
    offsets = {tap: [r * d for r, d in zip(tap, dilations)] for tap in itertools.product(*map(range, taps))}
    return lower, upper, strides, offsets


def fprop(x, w, strides, before, after, dilations):
    extents, taps = x.shape[1:-1], w.shape[1:-1]
    lower, upper, steps, offsets = fprop_walk(taps, strides, before, after, dilations)
    y = sum(load(x, lower, upper, steps, offset) @ w[(slice(None), *tap)].T for tap, offset in offsets.items())
    return y.reshape(x.shape[0], *out_extents(extents, taps, strides, before, after, dilations), w.shape[0])


def wgrad(dy, x, taps, strides, before, after, dilations):
    lower, upper, steps, offsets = fprop_walk(taps, strides, before, after, dilations)
    dw = torch.empty(dy.shape[-1], *taps, x.shape[-1], dtype=x.dtype)
    for tap, offset in offsets.items():
        dw[(slice(None), *tap)] = dy.reshape(-1, dy.shape[-1]).T @ load(x, lower, upper, steps, offset)
    return dw


def residue_class(a, extent, out, taps, stride, before, dilation):
    """What the input pixels h = a, a + stride, ... need: how many they are, the corners of the walk over the output's
    gradient, and the offset of each tap that reaches them."""
    count = len(range(a, extent, stride))
    common = math.gcd(dilation, stride)
    every = stride // common  # taps so far apart reach the same pixels
    first = next((r for r in range(every) if (r * dilation - a - before) % stride == 0), taps)
    reaching = range(first, taps, every)
    step = dilation // common
    lower = (a + before - first * dilation) // stride - (len(reaching) - 1) * step
    offsets = {tap: (len(reaching) - 1 - i) * step for i, tap in enumerate(reaching)}
    return count, lower, lower + count - out, offsets


def dgrad(dy, w, extents, strides, before, dilations):
    dx = torch.zeros(dy.shape[0], *extents, w.shape[-1], dtype=dy.dtype)
    for start in itertools.product(*map(range, strides)):
        classes = [
            residue_class(*dimension)
            for dimension in zip(start, extents, dy.shape[1:-1], w.shape[1:-1], strides, before, dilations)
        ]
        counts, lower, upper, offsets = zip(*classes)
        if 0 in counts:
            continue
        part = torch.zeros(dy.shape[0] * math.prod(counts), w.shape[-1], dtype=dy.dtype)  # also where no tap reaches
        for tap in itertools.product(*offsets):
            offset = [of_tap[r] for of_tap, r in zip(offsets, tap)]
            part += load(dy, lower, upper, [1] * len(extents), offset) @ w[(slice(None), *tap)]
        places = (slice(None), *(slice(a, None, s) for a, s in zip(start, strides)))
        dx[places] = part.reshape(dy.shape[0], *counts, -1)
    return dx
