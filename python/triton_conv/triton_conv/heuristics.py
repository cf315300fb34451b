"""Problem and device to the shape of a launch: a table and a rule, no search."""

import dataclasses
import math

from .geometry import ceil_div, in_strips, skipped

SHARED_BYTES = 227 * 1024
SLAB_BYTES = 16 * 1024
BARRIER_BYTES = 1024
WIDEST_SWIZZLE = 128
BUNDLE_BYTES = 32  # the channels of an MMA
BUNDLES = WIDEST_SWIZZLE // BUNDLE_BYTES  # in a block of channels
MOST_STAGES = 12
MOST_OF_TURN = 4096  # elements of a slab


def power_of_two(n):
    """The smallest power of two of at least n."""
    return 1 << (n - 1).bit_length()


def box_of(block):
    """How many of a block's rows or columns are loaded at once: the largest power of two that divides it, since a tensor's sizes
    are powers of two."""
    return block & -block


@dataclasses.dataclass(frozen=True)
class Tile:
    """The shape of a launch: block sizes of the GEMM view, the columns of a slab, and how many buffers there are."""
    block_m: int
    block_n: int
    block_k: int
    width: int
    stages: int
    slabs: int
    in_turns: bool = False  # Hopper: two partitions take tiles in turns, each with ``slabs`` buffers of its own
    group_m: int = 1
    passing: bool = False  # pixels are not to push out of L2 what else is there
    drawn: bool = False  # tiles go to whoever is free, not to all programs by turns
    resident: int = 0  # how many blocks of weights stay in shared memory; 0: they go through the stages
    parts: int = 1  # of the steps of a tile, for as many programs
    strip: int = 1  # output pixels of a row
    taps: int = 1  # of one of these in the last dimension, or of two with narrow groups
    step: int = 1  # input pixels from one to the next
    together: int = 0  # input pixels that a load brings for strips; 0 with narrow groups, one of several bundles
    skipped: int = 0  # of a strip's first load: those before what it reads

    @property
    def weight_rows(self):
        """Of a block of weights: the output channels, or in strips of narrow groups those of a bundle for two pixels."""
        return self.block_n if self.strip == 1 or self.together else 2 * self.block_n // BUNDLES

    @property
    def weight_channels(self):
        """Of a block of weights."""
        return self.block_k // max(1, self.together)

    @property
    def line(self):
        """The rows of a load, all or a part of a tile's."""
        return box_of(self.block_m)

    @property
    def lines(self):
        return self.block_m // self.line


@dataclasses.dataclass(frozen=True)
class Shape:
    """A tile shape with its costs on an H200, in units of a step of tiles in turns. A step of fewer than 128 bytes of channels costs
    as much, since TMA loads row by row.

    Fitted to bench/results/shapes-h200.json and to runs at the power limit, of launches with many tiles. A tile of which only part
    has output channels costs ``partial`` times as much, and ``alone`` times if its group has no other. ``once_cost`` is what a
    launch costs beyond its tiles: in turns, nobody multiplies while the last tile is written.
    """
    block_m: int
    block_n: int
    slabs: int
    step_cost: float
    end_cost: float
    partial: float
    alone: float
    in_turns: bool = False
    once_cost: float = 0.0

    @property
    def for_hopper(self):
        """Accumulators in registers may be in parts, and of few rows, and each partition may have its own."""
        return self.in_turns or self.block_m < 128 or self.block_n != power_of_two(self.block_n)


SQUARE = Shape(128, 128, 2, 1.03, 3.0, 2.0, 2.0)
TALL = Shape(256, 128, 2, 1.95, 5.0, 1.0, 1.35)
WIDE = Shape(128, 256, 2, 1.95, 5.4, 1.0, 1.35)
NARROW = Shape(256, 64, 1, 1.16, 2.6, 1.0, 1.0)
IN_TURNS = Shape(128, 128, 1, 1.0, 1.05, 2.0, 2.0, in_turns=True, once_cost=1.8)
LARGE = Shape(256, 192, 2, 3.0, 6.9, 1.0, 1.35)
BROAD = Shape(128, 320, 2, 2.47, 6.7, 1.0, 1.0)
TALL_IN_TURNS = Shape(192, 128, 2, 1.52, 2.7, 1.0, 1.5, in_turns=True)
SMALL = Shape(64, 64, 1, 0.53, 1.1, 1.0, 1.0)
MEDIUM = Shape(128, 64, 1, 0.64, 1.0, 1.0, 1.0)
SHAPES = [SQUARE, TALL, WIDE, NARROW, IN_TURNS, LARGE, BROAD, TALL_IN_TURNS, SMALL, MEDIUM]


def shapes_for(hopper, activation="none", has_residual=False):
    """Those that a kernel with this epilogue has registers for."""
    if not hopper:
        return [shape for shape in SHAPES if not shape.for_hopper]
    return [shape for shape in SHAPES if not (shape.in_turns and has_residual and activation == "gelu")]


def name_of(tile):
    """As results and progress name it."""
    kinds = [
        " in turns" * tile.in_turns, f" in {tile.parts} parts" * (tile.parts > 1),
        f" in strips of {tile.strip}" * (tile.strip > 1), " resident" * bool(tile.resident), " drawn" * tile.drawn
    ]
    return f"{tile.block_m}x{tile.block_n}{''.join(kinds)}"


def block_of_channels(problem, size):
    """The channels of a step: 128 bytes, or less where a group has less or where 128 bytes would reach into the next group."""
    block = WIDEST_SWIZZLE // size
    while block > 32 // size and (block // 2 >= problem.group_channels or
                                  (problem.groups > 1 and problem.group_channels % block)):
        block //= 2
    return block


def num_columns(problem, shape):
    """Blocks of output channels, over all groups."""
    return ceil_div(problem.group_out_channels, shape.block_n) * problem.groups


def num_tiles(problem, shape):
    return ceil_div(problem.rows, shape.block_m) * num_columns(problem, shape)


def num_steps(problem, block_k):
    return problem.reduction // problem.group_channels * ceil_div(problem.group_channels, block_k)


def make_tile(shape, block_k, size, resident=0):
    """As many stages as shared memory holds beside the slabs and the weights that stay."""
    pixels, weights = size * block_k * shape.block_m, size * block_k * shape.block_n
    line = box_of(shape.block_m)
    whole = SLAB_BYTES // (size * line)
    width, slabs, writers = min(whole, shape.block_n, WIDEST_SWIZZLE // size), shape.slabs, 1
    if shape.in_turns:  # half as many threads write a slab, and one of more elements would not fit their registers
        width = min(width, MOST_OF_TURN // line)
        slabs, writers = whole // width, 2
    left = SHARED_BYTES - BARRIER_BYTES - writers * slabs * size * line * width - resident * weights
    stages = min(left // (pixels if resident else pixels + weights), MOST_STAGES) * (shape.block_m // line)
    return Tile(shape.block_m, shape.block_n, block_k, width, stages, slabs, shape.in_turns, drawn=resident > 0,
                resident=resident)


LARGE_INPUT = 2**25  # bytes; L2 has 50 MB, of which it keeps a part of an input that was just written, if that is not pushed out


def make_streamed(shape, problem, block_k, size):
    """The tile with weights that come with the pixels.

    Programs that run side by side have all columns of a block of rows, which comes from L2 once for neighbors on the chip. With
    many columns that would be too few rows for so many weights.
    """
    group_m = 1 if num_columns(problem, shape) <= 16 else 8
    pixels, results = (problem.rows * channels * size for channels in (problem.channels, problem.out_channels))
    passing = problem.is_product and pixels > LARGE_INPUT and pixels > 2 * results
    return dataclasses.replace(make_tile(shape, block_k, size), group_m=group_m, passing=passing)


RESIDENT_BLOCKS = (2, 9, 27)  # filters of 1x1, 3x3 and 3x3x3: few sizes, so that few kernels are compiled
MOST_COLUMNS = 64
SHORT = 2  # steps


def make_resident(shape, problem, block_k, size, multiprocessors):
    """The tile with weights that stay in shared memory, or None where they are too many or columns too few or many."""
    steps = num_steps(problem, block_k)
    if num_columns(problem, shape) > min(MOST_COLUMNS, multiprocessors):
        return None
    for blocks in RESIDENT_BLOCKS:
        if steps <= blocks:
            tile = make_tile(shape, block_k, size, blocks)
            return tile if tile.stages >= 3 * tile.lines else None
    return None


PARTS = (1, 2, 3, 4, 6, 8, 12, 16)  # of the steps of a tile
PART_COST, SUM_COST = 4.5, 1 / 3000  # of parts of a tile, and of each of its sums that is stored or loaded
LEAST_STEPS = 4  # of a part
MOST_SUMS = 128 * 128  # of a part: what larger tiles exchange takes longer than it saves, and the registers that are left


def possible_parts(problem, shape, block_k, multiprocessors):
    """Into how many parts tiles can be split, so that there is one for each multiprocessor at most."""
    if shape.in_turns or shape.block_m * shape.block_n > MOST_SUMS:
        return PARTS[:1]
    most = max(1, min(multiprocessors // num_tiles(problem, shape), num_steps(problem, block_k) // LEAST_STEPS))
    return tuple(parts for parts in PARTS if parts <= most)


def grid(problem, tile, multiprocessors):
    """Persistent programs; with resident weights equally many for each column of tiles."""
    if not tile.resident:
        return min(num_tiles(problem, tile) * tile.parts, multiprocessors)
    columns = num_columns(problem, tile)
    return min(ceil_div(problem.rows, tile.block_m), multiprocessors // columns) * columns


def cost_of(problem, shape, block_k, parts, multiprocessors):
    """Of the busiest program: the tiles that it gets, times what one costs; or a part of one, and adding up all."""
    steps = num_steps(problem, block_k)
    whole, rest = divmod(problem.group_out_channels, shape.block_n)
    weight = (whole + (shape.partial if whole else shape.alone) *
              (rest > 0)) * problem.groups / num_columns(problem, shape)
    if parts == 1:
        turns = ceil_div(num_tiles(problem, shape), multiprocessors)
        return turns * weight * (steps * shape.step_cost + shape.end_cost) + shape.once_cost
    exchange = PART_COST + (1 + parts) * shape.block_m * shape.block_n * SUM_COST
    return weight * (ceil_div(steps, parts) * shape.step_cost + shape.end_cost) + exchange


STRIPS = (8, 4, 2)  # output pixels
STRIP_ROWS = 128
PIXEL_BYTES = (128, 64, 32)
LEAST_COLUMNS, STRIP_COLUMNS = 16, 256  # of a pixel, and at most of all in a strip
SLABS_BYTES, MOST_SLABS = 32 * 1024, 4


def make_strips(problem, size, strip):
    """The tile with rows of ``strip`` output pixels, for channels of which one pixel or a few are in a load; None where it cannot be.

    All pixels of a strip share the input pixels that are loaded for them; each has an MMA for every tap that it is.
    """
    taps, stride, pixel = problem.taps[-1], problem.strides[-1], problem.channels * size
    if problem.groups != 1 or problem.dilations[-1] != 1 or taps == 1 or pixel not in PIXEL_BYTES:
        return None
    together = WIDEST_SWIZZLE // pixel
    resident = next((blocks for blocks in RESIDENT_BLOCKS if math.prod(problem.taps[:-1]) <= blocks // taps), None)
    if (resident is None or problem.out[-1] % strip or problem.extents[-1] % together or strip * stride % together
            or in_strips(problem, strip, 1, together).obstacles()):
        return None
    block_n = min(max(power_of_two(problem.out_channels), LEAST_COLUMNS), NARROW.block_n)
    if strip * block_n > STRIP_COLUMNS:
        return None
    width = min(block_n, WIDEST_SWIZZLE // size)
    load, slab = STRIP_ROWS * WIDEST_SWIZZLE, STRIP_ROWS * width * size
    left = SHARED_BYTES - BARRIER_BYTES - resident // taps * taps * block_n * pixel
    slabs = min(SLABS_BYTES // slab, MOST_SLABS, strip * block_n // width)
    if left - slabs * slab < 6 * load:
        slabs = 1
    stages = min((left - slabs * slab) // load, MOST_STAGES)
    if stages < 4:
        return None
    return Tile(STRIP_ROWS, block_n, WIDEST_SWIZZLE // size, width, stages, slabs, drawn=True, resident=resident,
                strip=strip, taps=taps, step=stride, together=together, skipped=skipped(problem, together))


def possible_strips(problem, size, multiprocessors):
    """Tiles that only a search takes: the rule does not know what they cost."""
    tiles = [make_strips(problem, size, strip) for strip in STRIPS]
    return [tile for tile in tiles if tile and num_columns(problem, tile) <= min(MOST_COLUMNS, multiprocessors)]


def choose(problem, size, multiprocessors, shapes=SHAPES, may_split=True):
    """The tile whose busiest program is done first.

    Weights stay in shared memory where they make up much of what a step loads, and with them, or where steps are few and
    memory is the limit, programs draw their tiles.
    """
    block_k = block_of_channels(problem, size)
    steps = num_steps(problem, block_k)
    ways = [(shape, parts)
            for shape in shapes
            for parts in possible_parts(problem, shape, block_k, multiprocessors)
            if may_split or parts == 1]
    shape, parts = min(ways, key=lambda way: cost_of(problem, way[0], block_k, way[1], multiprocessors))
    tile = None
    several = parts == 1 and num_tiles(problem, shape) > multiprocessors
    if several and (shape is NARROW or steps <= SHORT):
        tile = make_resident(shape, problem, block_k, size, multiprocessors)
    tile = tile or make_streamed(shape, problem, block_k, size)
    return dataclasses.replace(tile, parts=parts, drawn=several and (tile.resident > 0 or steps <= SHORT))


# Of weights, all of which stay: for pairs of pixels, filters of 3x3, with a stride of 2, and of 3x3x3.
STRIP_BLOCKS = (12, 15, 36)


def choose_strips(problem, size, multiprocessors):
    """A problem of narrow groups with strips of output pixels as rows, and its tile; None where it cannot be.

    A bundle of groups fills an MMA, with the output channels of two pixels side by side as columns. All pixels of a strip share
    the input pixels that are loaded for them.
    """
    bundle, block = BUNDLE_BYTES // size, WIDEST_SWIZZLE // size
    strip = next((strip for strip in (4, 2) if problem.out[-1] % strip == 0), None)
    if (strip is None or problem.groups == 1 or bundle % problem.group_channels
            or problem.group_out_channels != problem.group_channels or problem.channels % block
            or problem.dilations[-1] != 1):
        return None
    strips, pairs = (in_strips(problem, pixels, problem.channels // block) for pixels in (strip, 2))
    steps = num_steps(pairs, block)
    if strips.obstacles() or strips.groups > min(MOST_COLUMNS, multiprocessors) or steps > STRIP_BLOCKS[-1]:
        return None
    resident = next(blocks for blocks in STRIP_BLOCKS if steps <= blocks)
    slabs = 2
    left = SHARED_BYTES - BARRIER_BYTES - WIDEST_SWIZZLE * (slabs * STRIP_ROWS + resident * 2 * bundle)
    stages = min(left // (WIDEST_SWIZZLE * STRIP_ROWS), MOST_STAGES)
    return strips, Tile(STRIP_ROWS, block, block, block, stages, slabs, drawn=True, resident=resident, strip=strip,
                        taps=pairs.taps[-1], step=2 * problem.strides[-1])


@dataclasses.dataclass(frozen=True)
class DirectTile:
    """The shape of a launch on the CUDA cores: rows, groups, and channels of a group; ``vector`` groups are in one thread."""
    block_m: int
    block_g: int
    block_n: int
    block_k: int
    vector: int


def choose_bundle(problem, size):
    """How many channels of narrow groups the tensor cores take together, by a block-diagonal matrix; None where groups do not
    fill bundles. 16 channels, 8 of 4 bytes, are the least."""
    for bundle in (64, 32, 16, 8):
        out_channels = bundle // problem.group_channels * problem.group_out_channels
        if (bundle * size >= 32 and bundle % problem.group_channels == 0 and problem.channels % bundle == 0
                and out_channels * size % 16 == 0):
            return bundle
    return None


def choose_direct(problem):
    """Eight elements a thread in a load, about 64 output channels a program, and two rows a thread where registers allow."""
    block_n, block_k = (min(power_of_two(channels), 8)
                        for channels in (problem.group_out_channels, problem.group_channels))
    block_g = min(power_of_two(problem.groups), 64 // block_n, 32 * 8 // max(block_n, block_k))
    vector = min(block_g, 8 // max(block_n, block_k))
    across = block_g // vector
    rows = 2 if block_n * block_k <= 16 else 1
    return DirectTile(4 * (32 // across) * rows, block_g, block_n, block_k, vector)
