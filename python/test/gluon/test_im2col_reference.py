"""The reference against arithmetic that does not walk: the input pixel of an output pixel and a tap."""

import itertools
import random

import pytest
from im2col_reference import sources


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_walk_from_the_first_corner_is_an_im2col_matrix(rank):
    rng = random.Random(rank)
    for _ in range(60):
        images = rng.randint(1, 3)
        extents, taps = ([rng.randint(1, 7) for _ in range(rank)], [rng.randint(1, 3) for _ in range(rank)])
        strides, dilations = ([rng.randint(1, 4) for _ in range(rank)], [rng.randint(1, 3) for _ in range(rank)])
        before, after = ([rng.randint(0, 3) for _ in range(rank)] for _ in range(2))
        reach = [(t - 1) * d for t, d in zip(taps, dilations)]
        outs = [(e + b + a - r - 1) // s + 1 for e, b, a, r, s in zip(extents, before, after, reach, strides)]
        if min(outs) < 1:
            continue
        lower, upper = [-b for b in before], [a - r for a, r in zip(after, reach)]
        shape = (images, *extents, 8)
        outputs = list(itertools.product(range(images), *map(range, outs)))
        first = rng.randrange(len(outputs))
        for tap in itertools.product(*map(range, taps)):
            expected = []
            for n, *output in outputs[first:]:
                pixel = [o * s - b + t * d for o, s, b, t, d in zip(output, strides, before, tap, dilations)]
                expected.append((n, *pixel) if all(0 <= p < e for p, e in zip(pixel, extents)) else None)
            n, *output = outputs[first]
            start = (n, *(o * s - b for o, s, b in zip(output, strides, before)))
            offsets = [t * d for t, d in zip(tap, dilations)]
            past_the_end = 3
            found = sources(shape, lower, upper, strides, start, offsets, len(expected) + past_the_end)
            assert found == expected + [None] * past_the_end
