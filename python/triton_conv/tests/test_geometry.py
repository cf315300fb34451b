"""The formulas against brute force, on thousands of problems, without a GPU."""

import dataclasses
import itertools
import math
import random

import pytest
from im2col_reference import sources
from triton_conv import heuristics
from triton_conv.geometry import MOST_ROWS, ConvProblem, fold_width, folded_row, in_strips, skipped, split_batch


def random_problem(rng, rank, largest=9):
    while True:
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        problem = ConvProblem(rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 9), many(1, largest), many(1, 4), many(1, 4),
                              many(0, 3), many(0, 3), many(1, 3))  # yapf: disable
        if all(e + b + a > r for e, b, a, r in zip(problem.extents, problem.before, problem.after, problem.reach)):
            return problem


def bases(problem):
    """By definition: the input pixel that tap 0 reads for each output, in order, by trying every start."""
    places = [[start for start in range(-before, extent + after - reach, stride)] for extent, before, after, reach,
              stride in zip(problem.extents, problem.before, problem.after, problem.reach, problem.strides)]
    return [(n, *base) for n in range(problem.batch) for base in itertools.product(*places)]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_walk_visits_every_output_once(rank):
    rng = random.Random(rank)
    for _ in range(1500):
        problem = random_problem(rng, rank)
        starts = bases(problem)
        assert problem.rows == len(starts)
        taps = [rng.randrange(t) for t in problem.taps]
        offsets = [t * d for t, d in zip(taps, problem.dilations)]
        shape = (problem.batch, *problem.extents, problem.channels)
        walked = sources(shape, problem.lower, problem.upper, problem.strides, (0, *problem.lower), offsets,
                         problem.rows)
        for (n, *base), row in zip(starts, walked):
            pixel = [b + o for b, o in zip(base, offsets)]
            inside = all(0 <= p < e for p, e in zip(pixel, problem.extents))
            assert row == ((n, *pixel) if inside else None)


def test_products():
    product = ConvProblem(2, 8, 12, (9, 7), (1, 1), (1, 1), (0, 0), (0, 0), (1, 3))
    assert product.is_product and product.out == product.extents
    for changes in ({"taps": (1, 2)}, {"strides": (2, 1)}, {"before": (0, 1)}, {"after": (1, 0)}):
        assert not dataclasses.replace(product, **changes).is_product


def test_sizes():
    problem = ConvProblem(2, 8, 12, (9, 7), (3, 2), (2, 1), (1, 0), (1, 3), (1, 2), groups=4)
    assert problem.out == (5, 8) and problem.rows == 80 and problem.reduction == 2 * 6
    assert problem.flops == 2 * 80 * 12 * 12
    assert (problem.group_channels, problem.group_out_channels) == (2, 3)


@pytest.mark.parametrize("rank, changes, message", [
    (2, {"strides": (9, 1)}, "stride 9 in H is more than 8"),
    (3, {"taps": (1, 1, 33), "extents": (5, 5, 40)}, "reaches 32 pixels in W, more than 31"),
    (2, {"before": (0, 129)}, "padding before in W needs a corner of -129"),
    (3, {"before": (17, 0, 0)}, "padding before in D needs a corner of -17"),
    (1, {"taps": (65537, ), "extents": (65540, )}, "reaches 65536 pixels in W, more than 65535"),
])
def test_obstacles(rank, changes, message):
    values = dict(batch=1, channels=8, out_channels=8, extents=(5, ) * rank, taps=(1, ) * rank, strides=(1, ) * rank,
                  before=(0, ) * rank, after=(0, ) * rank, dilations=(1, ) * rank)
    assert ConvProblem(**values).obstacles() == []
    assert any(message in sentence for sentence in ConvProblem(**values | changes).obstacles())


@pytest.mark.parametrize("size", [2, 4])
def test_folding_the_width(size):
    """Every element that an output's taps read in the last dimension is at its place in the window."""
    rng = random.Random(size)
    for _ in range(1000):
        problem = random_problem(rng, rng.choice([1, 2, 3]))
        fold = fold_width(problem, size)
        if problem.dilations[-1] != 1:
            assert fold is None
            continue
        folded, padded = fold
        pixels = folded_row(problem, padded, size)
        step, taps = problem.strides[-1] * padded, problem.taps[-1]
        assert padded >= problem.channels and step * size % 16 == 0 and pixels * padded * size % 16 == 0
        assert folded.out == problem.out and folded.channels == taps * padded
        for q in range(problem.out[-1]):
            for s in range(taps):
                element = q * step + s * padded  # of a row of the memory, whose pixel 0 is that of the padding
                assert element == (q * problem.strides[-1] + s) * padded and element + padded <= pixels * padded
        assert problem.before[-1] + problem.extents[-1] <= pixels


def test_strips_of_pixels():
    """Each output pixel of a strip finds what it reads in the strip's window, whose walk visits every strip once; as many input
    pixels as it must has a window, several of them as one or not."""
    rng = random.Random(0)
    done = dict.fromkeys((1, 2, 4), 0)
    while min(done.values()) < 500:
        problem, strip, together = random_problem(rng, rng.choice([1, 2, 3])), rng.choice([2, 4,
                                                                                           8]), rng.choice([1, 2, 4])
        stride = problem.strides[-1]
        if (problem.out[-1] % strip or problem.dilations[-1] != 1 or problem.extents[-1] % together
                or strip * stride % together):
            continue
        done[together] += 1
        strips = in_strips(problem, strip, 1, together)
        assert strips.rows * strip == problem.rows and strips.channels == problem.channels * together
        begins = [begin for begin in bases(strips) for _ in range(strip)]
        for number, ((n, *base), (m, *first)) in enumerate(zip(bases(problem), begins)):
            assert (m, *first[:-1]) == (n, *base[:-1])
            ahead = base[-1] - first[-1] * together
            assert ahead == skipped(problem, together) + number % strip * stride
            assert 0 <= ahead and ahead + problem.taps[-1] <= strips.taps[-1] * together
        assert skipped(problem, together) < together and ahead + problem.taps[-1] > (strips.taps[-1] - 1) * together


def test_tiles_of_strips():
    rng = random.Random(1)
    chosen = 0
    for _ in range(6000):
        size, rank = rng.choice([2, 4]), rng.choice([1, 2, 3])
        channels = rng.choice([1, 2, 3, 4, 8, 16, 32])
        groups = rng.choice([1, 8, 16, 32])
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        problem = ConvProblem(1, channels * groups, channels * groups * rng.randint(1, 2), many(5, 30), many(1, 5),
                              many(1, 3), many(0, 2), many(0, 2), many(1, 2), groups)
        found = heuristics.choose_strips(problem, size, 132)
        if found is None:
            continue
        chosen += 1
        strips, tile = found
        assert groups > 1 and problem.group_out_channels == channels and channels * size <= 32
        assert problem.out[-1] % tile.strip == 0 and strips.rows * tile.strip == problem.rows
        assert strips.taps[-1] == tile.taps + (tile.strip // 2 - 1) * tile.step and tile.together == 0
        assert math.prod(strips.taps[:-1]) * tile.taps <= tile.resident
        assert strips.group_channels == strips.group_out_channels == tile.block_k == tile.block_n == 128 // size
        buffers = tile.block_m * (tile.stages + tile.slabs) + tile.resident * tile.weight_rows
        assert tile.stages >= 3 and buffers * 128 + 1024 <= 227 * 1024
    assert chosen > 100


def test_tiles_of_strips_of_few_channels():
    rng = random.Random(2)
    chosen = set()
    for _ in range(20000):
        size, rank, strip = rng.choice([2, 4]), rng.choice([1, 2, 3]), rng.choice(heuristics.STRIPS)
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        problem = ConvProblem(1, rng.choice([8, 16, 24, 32, 64, 128]),
                              rng.choice([rng.randint(1, 32), rng.randint(33, 200)]),
                              (*many(5, 30)[1:], rng.choice([15, 16, 24])), many(1, 5), many(1, 3), many(0, 2),
                              many(0, 2), many(1, 2), rng.choice([1, 1, 1, 2]))
        tile = heuristics.make_strips(problem, size, strip)
        if tile is None:
            continue
        chosen.add((tile.strip, tile.together, tile.block_n))
        assert problem.groups == 1 and problem.out[-1] % strip == 0 and strip * tile.block_n <= 256
        assert tile.together * problem.channels * size == 128 and tile.weight_channels == problem.channels
        assert math.prod(problem.taps) <= tile.resident // tile.taps * tile.taps and tile.taps == problem.taps[-1]
        buffers = tile.block_m * (128 * tile.stages + tile.width * size * tile.slabs)
        weights = tile.resident // tile.taps * tile.taps * tile.block_n * problem.channels * size
        assert tile.stages >= 4 and buffers + weights + 1024 <= 227 * 1024
        assert tile.block_n % tile.width == 0 and tile.width * size <= 128
    assert chosen == {(strip, together, block_n)
                      for strip, together, block_n in itertools.product(heuristics.STRIPS, (1, 2, 4), (16, 32, 64))
                      if strip * block_n <= 256}


def test_splitting_a_batch():
    problem = ConvProblem(7, 8, 8, (1000, 1000), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    assert split_batch(problem) == [(0, 7)]
    assert split_batch(problem, 2 * 10**6) == [(0, 2), (2, 2), (4, 2), (6, 1)]
    large = ConvProblem(1, 1, 1, (2**16, 2**16), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1))
    with pytest.raises(NotImplementedError, match=f"4294967296 output pixels; at most {MOST_ROWS}"):
        split_batch(large)


def test_tiles_fit_and_do_not_mix_groups():
    rng = random.Random(0)
    in_parts = 0
    for _ in range(3000):
        size, groups = rng.choice([2, 4]), rng.choice([1, 1, 2, 4])
        channels = rng.randint(1, 20) * 32 // size if groups > 1 else rng.randint(1, 700)
        problem = ConvProblem(rng.randint(1, 8), channels * groups, 8 * groups * rng.randint(1, 80), (rng.randint(1, 99), ),
                              (3, ), (1, ), (1, ), (1, ), (1, ), groups)  # yapf: disable
        tile = heuristics.choose(problem, size, 132)
        pixels, weights = (tile.block_k * size * rows for rows in (tile.block_m, tile.block_n))
        slabs = tile.line * tile.width * size * tile.slabs * (2 if tile.in_turns else 1)
        stages = tile.stages // tile.lines
        blocks = tile.resident or stages
        assert stages >= 3 and stages * pixels + blocks * weights + slabs + 1024 <= 227 * 1024
        assert tile.block_k * size in (32, 64, 128) and slabs >= 8 * 1024 and tile.block_n % tile.width == 0
        assert tile.width * size <= 128 and tile.slabs <= tile.block_n // tile.width * tile.lines
        assert not tile.drawn or heuristics.num_tiles(problem, tile) > heuristics.grid(problem, tile, 132)
        assert tile.parts == 1 or (not tile.drawn and not tile.resident and not tile.in_turns
                                   and heuristics.num_tiles(problem, tile) * tile.parts <= 132)
        in_parts += tile.parts > 1
        columns = heuristics.num_columns(problem, tile)
        assert not tile.resident or (heuristics.grid(problem, tile, 132) % columns == 0 and columns <= 64)
        assert 1 <= heuristics.grid(problem, tile, 132) <= min(132, heuristics.num_tiles(problem, tile) * tile.parts)
        assert groups == 1 or channels % tile.block_k == 0
        assert tile.block_k * size == 128 or math.ceil(
            channels / tile.block_k) * tile.block_k * size <= 128 or groups > 1
    assert in_parts > 100
