"""Problem and device to the shape of a launch: a table and a rule, no search."""

import dataclasses

from .geometry import ceil_div

SHARED_BYTES = 227 * 1024
SLAB_BYTES = 16 * 1024
BARRIER_BYTES = 1024
WIDEST_SWIZZLE = 128
TURN_COLUMNS = 32


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
    group_m: int = 4  # 0: a column of tiles after another
    resident: int = 0  # as many weight blocks as stay in shared memory; 0: they go through the stages


@dataclasses.dataclass(frozen=True)
class Shape:
    """A tile shape with its costs, fitted to an H200 in units of a step of the smallest at 64 channels."""
    block_m: int
    block_n: int
    slabs: int
    step_cost: float
    end_cost: float
    in_turns: bool = False


SHAPES = [Shape(128, 128, 2, 1.0, 3.3), Shape(256, 128, 2, 1.95, 8.5), Shape(256, 64, 1, 1.4, 4.0)]

# Built and tested, not measured, so not chosen yet; bench/shapes.py measures them.
IN_TURNS = Shape(128, 128, 1, 1.0, 0.0, in_turns=True)
WIDE = Shape(128, 256, 2, 1.95, 8.5)


def block_of_channels(problem, size):
    """The channels of a step: 128 bytes, or less where a group has less or where 128 bytes would reach into the next group."""
    block = WIDEST_SWIZZLE // size
    while block > 32 // size and (block // 2 >= problem.group_channels or
                                  (problem.groups > 1 and problem.group_channels % block)):
        block //= 2
    return block


def num_tiles(problem, shape):
    return ceil_div(problem.rows, shape.block_m) * ceil_div(problem.group_out_channels, shape.block_n) * problem.groups


def make_tile(shape, block_k, size):
    """As many stages as shared memory holds beside the slabs."""
    stage = size * block_k * (shape.block_m + shape.block_n)
    width, slabs, writers = SLAB_BYTES // (size * shape.block_m), shape.slabs, 1
    if shape.in_turns:  # half as many threads write a slab, and more columns than these would not fit their registers
        width, slabs, writers = TURN_COLUMNS, width // TURN_COLUMNS, 2
    stages = (SHARED_BYTES - writers * slabs * size * shape.block_m * width - BARRIER_BYTES) // stage
    return Tile(shape.block_m, shape.block_n, block_k, width, min(stages, 12), slabs, shape.in_turns)


def num_steps(problem, block_k):
    return problem.reduction // problem.group_channels * ceil_div(problem.group_channels, block_k)


RESIDENT_BLOCKS = (9, 27)  # filters of 3x3 and 3x3x3: few sizes, so that few kernels are compiled


def make_resident(tile, problem, size):
    """The tile with the weights in shared memory throughout, where a group has one block of output channels and few steps."""
    steps = num_steps(problem, tile.block_k)
    if tile.in_turns or problem.group_out_channels > tile.block_n:
        return tile
    for blocks in RESIDENT_BLOCKS:
        left = (SHARED_BYTES - BARRIER_BYTES - tile.slabs * size * tile.block_m * tile.width -
                blocks * size * tile.block_n * tile.block_k)
        stages = left // (size * tile.block_m * tile.block_k)
        if steps <= blocks and stages >= 3:
            return dataclasses.replace(tile, stages=min(stages, 12), resident=blocks, group_m=0)
    return tile


def choose(problem, size, multiprocessors):
    """The tile whose busiest program is done first: the tiles that it gets, times what one costs."""
    block_k = block_of_channels(problem, size)
    steps = num_steps(problem, block_k)
    share = block_k * size / WIDEST_SWIZZLE

    def cost(shape):
        turns = ceil_div(num_tiles(problem, shape), multiprocessors)
        return turns * (steps * max(share, 0.5) * shape.step_cost + shape.end_cost)

    return make_resident(make_tile(min(SHAPES, key=cost), block_k, size), problem, size)


@dataclasses.dataclass(frozen=True)
class DirectTile:
    """The shape of a launch on the CUDA cores: rows, groups, and channels of a group; ``vector`` groups are in one thread."""
    block_m: int
    block_g: int
    block_n: int
    block_k: int
    vector: int


def power_of_two(n):
    """The smallest power of two of at least n."""
    return 1 << (n - 1).bit_length()


@dataclasses.dataclass(frozen=True)
class GroupedTile:
    """The shape of a launch on narrow groups: rows, bundles of groups, and the output channels of a bundle."""
    block_m: int
    bundles: int
    block_n: int


BUNDLE = 16  # channels


def choose_grouped(problem, size):
    """64 output channels a program; None where groups do not fill bundles, or elements are not of 16 bits."""
    channels, out_channels = problem.group_channels, problem.group_out_channels
    block_n = BUNDLE // channels * out_channels if channels < BUNDLE else 0
    if size != 2 or channels not in (1, 2, 4, 8) or block_n not in (8, 16, 32, 64):
        return None
    if problem.channels % 4 or problem.out_channels % 8:
        return None
    return GroupedTile(64, min(64 // block_n, 4, power_of_two(ceil_div(problem.channels, BUNDLE))), block_n)


def choose_direct(problem):
    """Eight elements a thread in a load, about 64 output channels a program, and two rows a thread where registers allow."""
    block_n, block_k = (min(power_of_two(channels), 8)
                        for channels in (problem.group_out_channels, problem.group_channels))
    block_g = min(power_of_two(problem.groups), 64 // block_n, 32 * 8 // max(block_n, block_k))
    vector = min(block_g, 8 // max(block_n, block_k))
    across = block_g // vector
    rows = 2 if block_n * block_k <= 16 else 1
    return DirectTile(4 * (32 // across) * rows, block_g, block_n, block_k, vector)
