"""The arithmetic of a convolution, without tensors: sizes, the walk of the im2col loads, limits. Every formula is here once.

Spatial dimensions are in the order of the tensor, (D, H, W), (H, W) or (W); all of a problem's tuples have one entry for
each. The formulas are derived in docs/gluon/conv-im2col.rst.
"""

import dataclasses
import functools
import math

# Of the im2col mode, by the number of spatial dimensions: corners (lowest, highest) and the largest offset.
CORNERS = {1: (-32768, 32767), 2: (-128, 127), 3: (-16, 15)}
LARGEST_OFFSET = {1: 65535, 2: 255, 3: 31}
LARGEST_STRIDE = 8
# TMA coordinates are 32-bit, and a tile may reach past the last row.
MOST_ROWS = 2**31 - 1024


def ceil_div(a, b):
    return -(-a // b)


def round_up(a, multiple):
    return ceil_div(a, multiple) * multiple


@dataclasses.dataclass(frozen=True)
class ConvProblem:
    """A forward convolution: x (N, C, *extents) by w (K, C / groups, *taps) into y (N, K, *out)."""

    batch: int
    channels: int
    out_channels: int
    extents: tuple
    taps: tuple
    strides: tuple
    before: tuple  # padding
    after: tuple
    dilations: tuple
    groups: int = 1

    @property
    def rank(self):
        return len(self.extents)

    @functools.cached_property
    def reach(self):
        """How far the last tap is from the first."""
        return tuple((t - 1) * d for t, d in zip(self.taps, self.dilations))

    @functools.cached_property
    def out(self):
        """P = floor((H + before + after - (R - 1) d - 1) / s) + 1, per dimension."""
        return tuple((e + b + a - r - 1) // s + 1
                     for e, b, a, r, s in zip(self.extents, self.before, self.after, self.reach, self.strides))

    @property
    def lower(self):
        return tuple(-b for b in self.before)

    @property
    def upper(self):
        """The tight corner, (P - 1) s + 1 - H - before: the walk ends at the last output's base."""
        return tuple((p - 1) * s + 1 - e - b for p, s, e, b in zip(self.out, self.strides, self.extents, self.before))

    @property
    def group_channels(self):
        return self.channels // self.groups

    @property
    def group_out_channels(self):
        return self.out_channels // self.groups

    @property
    def rows(self):
        """gemm_m: the output pixels."""
        return self.batch * math.prod(self.out)

    @property
    def reduction(self):
        """gemm_k: what an output element sums over."""
        return self.group_channels * math.prod(self.taps)

    @property
    def is_product(self):
        """Whether it is a matrix product: each output pixel reads the input pixel of its own place."""
        return all(sizes == (1, ) * self.rank
                   for sizes in (self.taps, self.strides)) and not any(self.before + self.after)

    @property
    def flops(self):
        return 2 * self.rows * self.out_channels * self.reduction

    def obstacles(self):
        """Why the im2col mode cannot express this problem, as a list of sentences; empty if it can."""
        names = "DHW"[-self.rank:]
        found = []
        low, high = CORNERS[self.rank]
        for name, stride, reach, lower, upper in zip(names, self.strides, self.reach, self.lower, self.upper):
            if stride > LARGEST_STRIDE:
                found.append(f"stride {stride} in {name} is more than {LARGEST_STRIDE}")
            if reach > LARGEST_OFFSET[self.rank]:
                found.append(f"the filter reaches {reach} pixels in {name}, more than {LARGEST_OFFSET[self.rank]}")
            for side, corner in (("before", lower), ("after", upper)):
                if not low <= corner <= high:
                    found.append(f"the padding {side} in {name} needs a corner of {corner}, outside {low} to {high}")
        return found


def fold_width(problem, size):
    """A problem with few channels as one whose channels are the taps of a row; and the padded channels. None if there is none.

    With the last dimension padded in memory, and channels padded so that a stride's step is a multiple of 16 bytes, the
    taps that an output reads in the last dimension are contiguous. Described as a tensor whose pixels overlap, they are
    one pixel of taps * channels channels, and the last dimension has one tap and stride 1 left. ``size`` is the bytes of an
    element.
    """
    taps, stride = problem.taps[-1], problem.strides[-1]
    if problem.groups != 1 or problem.dilations[-1] != 1:
        return None
    padded = next(c for c in range(problem.channels, 16 + problem.channels) if stride * c * size % 16 == 0)
    folded = dataclasses.replace(problem, channels=taps * padded, extents=(*problem.extents[:-1], problem.out[-1]),
                                 taps=(*problem.taps[:-1], 1), strides=(*problem.strides[:-1], 1),
                                 before=(*problem.before[:-1], 0), after=(*problem.after[:-1], 0))
    return folded, padded


def folded_row(problem, padded, size):
    """The pixels of a row of the memory behind ``fold_width``: all windows are inside, and rows are a multiple of 16 bytes."""
    pixels = max((problem.out[-1] - 1) * problem.strides[-1] + problem.taps[-1],
                 problem.extents[-1] + problem.before[-1])
    return next(p for p in range(pixels, pixels + 16) if p * padded * size % 16 == 0)


def in_strips(problem, strip, groups, together=1):
    """A problem with ``strip`` output pixels, side by side in the last dimension, as one; with ``together`` input pixels as one,
    which has all their channels; and other groups.

    Its taps in that dimension are all input pixels that an output pixel of a strip reads, and those that come with them. The
    numbers of output and of input pixels, and what a strip is from the next, must be multiples of these sizes.
    """
    stride, before = strip * problem.strides[-1] // together, ceil_div(problem.before[-1], together)
    window = (strip - 1) * problem.strides[-1] + problem.taps[-1]
    taps = ceil_div(skipped(problem, together) + window, together)
    extent, out = problem.extents[-1] // together, problem.out[-1] // strip
    after = (out - 1) * stride + taps - extent - before
    return dataclasses.replace(problem, channels=problem.channels * together, extents=(*problem.extents[:-1], extent),
                               taps=(*problem.taps[:-1], taps), strides=(*problem.strides[:-1], stride),
                               before=(*problem.before[:-1], before), after=(*problem.after[:-1], after), groups=groups)


def skipped(problem, together):
    """How many of the first input pixels that ``in_strips`` has as one come before what the strip reads."""
    return -problem.before[-1] % together


def split_batch(problem, most_rows=MOST_ROWS):
    """Batches (start, length) whose output pixels can be counted in 32 bits."""
    pixels = math.prod(problem.out)
    if pixels > most_rows:
        raise NotImplementedError(f"one image has {pixels} output pixels; at most {most_rows} can be addressed: "
                                  "split it into parts along one dimension")
    step = max(1, most_rows // max(1, pixels))
    return [(start, min(step, problem.batch - start)) for start in range(0, problem.batch, step)]
