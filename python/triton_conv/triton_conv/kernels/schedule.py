"""Which tile a program computes, or which part of its reduction, in which order, and where the loads begin."""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl


@aggregate
class Tile:
    """A tile, or a line of one: its place in the output matrix, and the base position of its first pixel."""
    off_m: gl.tensor
    off_n: gl.tensor  # within the group
    group: gl.tensor
    n: gl.tensor
    d: gl.tensor
    h: gl.tensor
    w: gl.tensor


@aggregate
class Schedule:
    """The sizes of a convolution, as the kernels need them, and the order of its tiles.

    Programs take items: tiles, or with SPLIT ``parts`` of the steps of each.

    All sizes are run-time values, so that one compiled kernel serves all problems of a rank. Dimensions that the rank does
    not have count 1. K and C are those of one group.
    """
    rows: gl.tensor
    K: gl.tensor
    C: gl.tensor
    groups: gl.tensor
    Z: gl.tensor
    P: gl.tensor
    Q: gl.tensor
    T: gl.tensor
    R: gl.tensor
    S: gl.tensor
    stride_d: gl.tensor
    stride_h: gl.tensor
    stride_w: gl.tensor
    before_d: gl.tensor
    before_h: gl.tensor
    before_w: gl.tensor
    dilation_d: gl.tensor
    dilation_h: gl.tensor
    dilation_w: gl.tensor
    parts: gl.tensor
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    COLUMNS: gl.constexpr  # whether a program's tiles are all of one block of output channels
    LINE: gl.constexpr  # pixels that one load brings: all of a tile, or a part if these are no power of two
    SPLIT: gl.constexpr

    @gluon.jit
    def blocks_m(self):
        """Blocks of output pixels."""
        return gl.cdiv(self.rows, self.BLOCK_M)

    @gluon.jit
    def blocks_n(self):
        """Blocks of output channels; none crosses groups."""
        return gl.cdiv(self.K, self.BLOCK_N) * self.groups

    @gluon.jit
    def num_items(self):
        """Of all programs, or of those that share a column."""
        tiles = self.blocks_m() if self.COLUMNS else self.blocks_m() * self.blocks_n()
        return tiles * self.parts if self.SPLIT else tiles

    @gluon.jit
    def tile_of(self, item):
        return item // self.parts if self.SPLIT else item

    @gluon.jit
    def first_item(self):
        return gl.program_id(0) // self.blocks_n() if self.COLUMNS else gl.program_id(0)

    @gluon.jit
    def num_first_items(self):
        return gl.num_programs(0) // self.blocks_n() if self.COLUMNS else gl.num_programs(0)

    @gluon.jit
    def counter(self):
        """Which counter the other tiles are drawn from."""
        return gl.program_id(0) % self.blocks_n() if self.COLUMNS else 0

    @gluon.jit
    def steps_of_tile(self):
        return gl.cdiv(self.C, self.BLOCK_K) * self.T * self.R * self.S

    @gluon.jit
    def steps_before(self, part):
        """Parts differ by a step at most."""
        return self.steps_of_tile() * part // self.parts

    @gluon.jit
    def first_step(self, item):
        return self.steps_before(item % self.parts) if self.SPLIT else 0

    @gluon.jit
    def num_steps(self, item):
        if self.SPLIT:
            part = item % self.parts
            return self.steps_before(part + 1) - self.steps_before(part)
        else:
            return self.steps_of_tile()

    @gluon.jit
    def place(self, off_m, off_n, group):
        q = off_m % self.Q
        line = off_m // self.Q
        p = line % self.P
        plane = line // self.P
        z = plane % self.Z
        return Tile(off_m, off_n, group, plane // self.Z, z * self.stride_d - self.before_d,
                    p * self.stride_h - self.before_h, q * self.stride_w - self.before_w)

    @gluon.jit
    def line(self, tile, j):
        """Line j of a tile. Past the last row it is that row: nothing of it is stored, but loads must begin somewhere."""
        return self.place(gl.minimum(tile.off_m + j * self.LINE, self.rows - 1), tile.off_n, tile.group)

    @gluon.jit
    def tile(self, item):
        """That of an item. Tiles are in groups of GROUP_M block rows, so that those in flight share their operands in L2."""
        index = self.tile_of(item)
        blocks_m = self.blocks_m()
        blocks_n = self.blocks_n()
        if self.COLUMNS:
            off_m = index * self.BLOCK_M
            block_n = gl.program_id(0) % blocks_n
        else:
            first = index // (self.GROUP_M * blocks_n) * self.GROUP_M
            height = gl.minimum(blocks_m - first, self.GROUP_M)
            within = index % (self.GROUP_M * blocks_n)
            off_m = (first + within % height) * self.BLOCK_M
            block_n = within // height
        of_group = gl.cdiv(self.K, self.BLOCK_N)
        return self.place(off_m, block_n % of_group * self.BLOCK_N, block_n // of_group)
