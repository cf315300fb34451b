"""The TMA im2col load in plain Python, written from its definition and from nothing else."""

from itertools import islice


def walk(shape, lower, upper, strides, start):
    """Yield the base positions ``(n, [d,] [h,] w)`` of a load, without end.

    ``shape`` is that of the tensor, ``(N, [D,] [H,] W, C)``; ``start`` is the first base position. The walk moves in
    the last dimension first. A dimension runs up to ``extent - 1 + upper``, inclusive, in steps of its stride, and
    begins again at ``lower``; past the end of the first spatial dimension comes the next image.
    """
    n, *base = start
    while True:
        yield (n, *base)
        for dim in reversed(range(len(base))):
            base[dim] += strides[dim]
            if base[dim] <= shape[1 + dim] - 1 + upper[dim]:
                break
            base[dim] = lower[dim]
        else:
            n += 1


def sources(shape, lower, upper, strides, start, offsets, pixels):
    """The positions that a load of ``pixels`` rows reads, in the order of the rows; None where a row is filled."""
    positions = []
    for n, *base in islice(walk(shape, lower, upper, strides, start), pixels):
        position = [b + o for b, o in zip(base, offsets)]
        inside = 0 <= n < shape[0] and all(0 <= p < extent for p, extent in zip(position, shape[1:-1]))
        positions.append((n, *position) if inside else None)
    return positions
