"""Tiles whose steps are divided between programs: each stores its sums, and who comes last adds those of all, in their order.

So nobody waits for another, and a result does not depend on who that was.
"""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl

from .epilogue import Output, activate, add_bias, take_columns, write_tile
from .schedule import Schedule


@gluon.jit
def in_blocks(x):
    """A register tensor [rows, columns] of sums as [rows / 16, columns * 16], of blocks of [8, 16].

    A thread has four elements of a block, put side by side, if it has the columns that it has of an accumulator, and a warp all
    of one. So its stores and loads are of 512 bytes each, and nothing moves between threads.
    """
    rows: gl.constexpr = x.shape[0] // 16
    layout: gl.constexpr = gl.BlockedLayout([rows // gl.num_warps(), 4], [1, 32], [gl.num_warps(), 1], [1, 0])
    blocks = x.reshape([rows, 2, 8, x.shape[1] // 16, 2, 4, 2]).permute(0, 1, 3, 2, 5, 4, 6)
    return gl.convert_layout(blocks.reshape([rows, x.shape[1] * 16]), layout)


@gluon.jit
def from_blocks(x):
    rows: gl.constexpr = x.shape[0]
    columns: gl.constexpr = x.shape[1] // 16
    blocks = x.reshape([rows, 2, columns // 16, 8, 4, 2, 2]).permute(0, 1, 3, 2, 5, 4, 6)
    return blocks.reshape([rows * 16, columns])


@aggregate
class Parts:
    """Sums are float32, those of an item behind those of the one before, slab by slab. The result is stored without slabs."""
    sums: gl.tensor
    arrived: gl.tensor  # how many parts of each tile; whoever comes last leaves 0
    y: gl.tensor
    residual: gl.tensor

    @gluon.jit
    def place(self, schedule, item, number, blocks):
        """Where the sums of a slab of an item are, for blocks of that layout."""
        row = gl.arange(0, blocks.shape[0], gl.SliceLayout(1, blocks.type.layout))
        column = gl.arange(0, blocks.shape[1], gl.SliceLayout(0, blocks.type.layout))
        start = item * (schedule.BLOCK_M * schedule.BLOCK_N) + number * (blocks.shape[0] * blocks.shape[1])
        return self.sums + start + row[:, None] * blocks.shape[1] + column[None, :]

    @gluon.jit
    def store(self, schedule, item, number, columns):
        """Store a slab's sums; return them in blocks, for their layout."""
        blocks = in_blocks(columns)
        gl.store(self.place(schedule, item, number, blocks), blocks)
        return blocks

    @gluon.jit
    def comes_last(self, schedule, item):
        """Count an item whose sums are stored."""
        gl.barrier()  # those of all warps
        counter = self.arrived + schedule.tile_of(item)
        last = gl.atomic_add(counter, 1, sem="acq_rel") == schedule.parts - 1
        if last:
            gl.atomic_xchg(counter, 0, sem="relaxed")
        return last


@gluon.jit
def finish_slab(output: Output, parts: Parts, schedule: Schedule, tile, columns, number: gl.constexpr):
    """Of a tile: bias, residual and activation, and into global memory."""
    UNIT: gl.constexpr = 128 // output.y_desc.dtype.primitive_bitwidth  # outputs of a pixel and a group are whole 16 bytes
    layout: gl.constexpr = columns.type.layout
    in_group = schedule.K // UNIT * UNIT
    FIRST: gl.constexpr = number % output.PER_LINE * output.WIDTH  # of its columns
    columns = add_bias(output, schedule, tile, columns, FIRST)
    of_line = gl.arange(0, columns.shape[0], gl.SliceLayout(1, layout))
    row = tile.off_m + number // output.PER_LINE * schedule.LINE + of_line
    column = tile.off_n + FIRST + gl.arange(0, output.WIDTH, gl.SliceLayout(0, layout))
    mask = (row < schedule.rows)[:, None] & (column < in_group)[None, :]
    place = row.to(gl.int64)[:, None] * (in_group * schedule.groups) + (tile.group * in_group + column)[None, :]
    if output.HAS_RESIDUAL:
        columns += gl.load(parts.residual + place, mask=mask, other=0.0).to(gl.float32)
    gl.store(parts.y + place, activate(columns, output.ACTIVATION).to(output.y_desc.dtype), mask=mask)


@gluon.jit
def finish_slabs(output: Output, parts: Parts, schedule: Schedule, item, slabs, FIRST: gl.constexpr):
    """Add up all parts' sums of some slabs of a tile, from number FIRST on, in the layouts of ``slabs``."""
    first = item - item % schedule.parts
    totals = ()
    for j in gl.static_range(len(slabs)):
        totals = totals + (gl.load(parts.place(schedule, first, FIRST + j, slabs[j])), )
    for part in range(1, schedule.parts):
        added = ()
        for j in gl.static_range(len(slabs)):
            added = added + (totals[j] + gl.load(parts.place(schedule, first + part, FIRST + j, slabs[j])), )
        totals = added
    tile = schedule.tile(item)
    for j in gl.static_range(len(slabs)):
        columns = from_blocks(totals[j])
        finish_slab(output, parts, schedule, tile, columns, FIRST + j)


@gluon.jit
def write_part(output: Output, parts: Parts, schedule: Schedule, item, accs):
    slabs = ()
    for k in gl.static_range(len(accs)):
        for j in gl.static_range(accs[k].shape[1] // output.WIDTH):
            slabs = slabs + (parts.store(schedule, item, len(slabs), take_columns(accs[k], j, output.WIDTH)), )
    if parts.comes_last(schedule, item):
        finish_slabs(output, parts, schedule, item, slabs, 0)


@gluon.jit
def write_item(output: Output, parts: Parts, schedule: Schedule, item, accs, i):
    """A tile, or a part of one, from accumulators in registers; slabs are from turn i on. Returns the turn after the last."""
    if schedule.SPLIT:
        write_part(output, parts, schedule, item, accs)
        return i
    else:
        return write_tile(output, schedule, schedule.tile(item), accs, i)
