"""From the accumulator to global memory: bias, residual and activation, in slabs of columns that leave by TMA.

A slab's slot goes from the threads that write it to the partition that stores it, and back. With a residual it comes back
with the residual of the slab that is to be written next, loaded by TMA: an empty slot is then one that was refilled.
"""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from .pipeline import Ring, Tickets, as_matrix, slice_of
from .schedule import Schedule


@aggregate
class Output:
    """Where the result goes. Descriptors are of [groups, rows, K], and slabs of [1, LINE, WIDTH]."""
    y_desc: tma.tensor_descriptor
    residual_desc: tma.tensor_descriptor
    bias: gl.tensor
    flag: gl.tensor
    slabs: gl.tuple
    ring: Ring
    WIDTH: gl.constexpr
    HAS_BIAS: gl.constexpr
    HAS_RESIDUAL: gl.constexpr
    ACTIVATION: gl.constexpr
    FLAGGED: gl.constexpr  # set the flag if a sum is not finite
    STRIP: gl.constexpr  # output pixels of a row
    PER_LINE: gl.constexpr  # slabs
    PER_TILE: gl.constexpr

    @gluon.jit
    def create(y_desc, residual_desc, bias, flag, SLABS: gl.constexpr, HAS_BIAS: gl.constexpr,
               HAS_RESIDUAL: gl.constexpr, ACTIVATION: gl.constexpr, FLAGGED: gl.constexpr, STRIP: gl.constexpr,
               BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, ring):
        WIDTH: gl.constexpr = y_desc.block_shape[2]
        PER_LINE: gl.constexpr = BLOCK_N // WIDTH
        PER_TILE: gl.constexpr = BLOCK_M // y_desc.block_shape[1] * PER_LINE * STRIP
        # Where each slab of a tile is always in the same slot, that is known when the kernel is compiled, and has a buffer of its own.
        BUFFERS: gl.constexpr = SLABS if PER_TILE % SLABS == 0 else 1
        SHAPE: gl.constexpr = [SLABS // BUFFERS] + y_desc.block_shape[1:]
        slabs = ()
        for _ in gl.static_range(BUFFERS):
            slabs = slabs + (gl.allocate_shared_memory(y_desc.dtype, SHAPE, as_matrix(y_desc.layout)), )
        return Output(y_desc, residual_desc, bias, flag, slabs, ring, WIDTH, HAS_BIAS, HAS_RESIDUAL, ACTIVATION,
                      FLAGGED, STRIP, PER_LINE, PER_TILE)

    @gluon.jit
    def slab(self, i, slot: gl.constexpr):
        """The buffer [LINE, WIDTH] of turn i. ``slot`` is its slot if that is known when the kernel is compiled."""
        if len(self.slabs) == self.ring.SLOTS:
            return self.slabs[slot].index(0)
        else:
            return self.slabs[0].index(i % self.ring.SLOTS)

    @gluon.jit
    def place(self, schedule, tile, j):
        """Of slab j of a tile in global memory, as the descriptors of output and residual see it."""
        line = j // self.PER_LINE
        column = j % self.PER_LINE * self.WIDTH
        if self.STRIP > 1:
            return [line, tile.off_m, tile.group * schedule.K + tile.off_n + column]
        return [tile.group, tile.off_m + line * schedule.LINE, tile.off_n + column]


@gluon.jit
def activate(x, ACTIVATION: gl.constexpr):
    if ACTIVATION == "relu":
        # A comparison, since a maximum would lose NaN.
        x = gl.where(x < 0, 0.0, x)
    elif ACTIVATION == "silu":
        x = x / (1 + gl.exp(-x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + gl.erf(x * 0.7071067811865476))
    return x


@gluon.jit
def add_bias(output: Output, schedule: Schedule, tile, columns, first):
    """To columns of a tile, which begin at ``first``."""
    if output.HAS_BIAS:
        column = tile.off_n + first + gl.arange(0, columns.shape[1], gl.SliceLayout(0, columns.type.layout))
        bias = gl.load(output.bias + tile.group * schedule.K + column, mask=column < schedule.K, other=0.0)
        columns += bias.to(gl.float32)[None, :]
    return columns


@gluon.jit
def write_slab(output: Output, schedule: Schedule, tile, pieces, j, i, slab):
    """Slab j of a line of a tile into ``slab``, the buffer of turn i: columns of accumulators [LINE, WIDTH], or pieces of that
    width."""
    PIECE: gl.constexpr = output.WIDTH // len(pieces)
    if output.FLAGGED:
        poison = pieces[0] * 0.0  # NaN where a sum is not finite
        for p in gl.static_range(1, len(pieces)):
            poison += pieces[p] * 0.0
        rows = gl.sum(poison, 1)
        gl.store(output.flag + gl.zeros_like(rows).to(gl.int32), 1, mask=rows != 0)
    biased = ()
    for p in gl.static_range(len(pieces)):
        biased = biased + (add_bias(output, schedule, tile, pieces[p], j * output.WIDTH + p * PIECE), )
    if output.HAS_RESIDUAL:
        output.ring.wait_refilled(i)
    else:
        output.ring.wait_empty(i)
    for p in gl.static_range(len(pieces)):
        columns = biased[p]
        place = slice_of(slab, p, PIECE, 1)
        if output.HAS_RESIDUAL:
            columns += place.load(columns.type.layout).to(gl.float32)
        place.store(activate(columns, output.ACTIVATION).to(output.y_desc.dtype))
    fence_async_shared()
    mbarrier.arrive(output.ring.full(i))


@gluon.jit
def take_columns(x, j: gl.constexpr, WIDTH: gl.constexpr):
    """Columns j * WIDTH to (j + 1) * WIDTH of a register tensor, by halving: no data moves between threads."""
    HALF: gl.constexpr = x.shape[1] // 2
    if WIDTH == x.shape[1]:
        return x
    else:
        low, high = x.reshape([x.shape[0], 2, HALF]).permute(0, 2, 1).split()
        if j * WIDTH < HALF:
            return take_columns(low, j, WIDTH)
        else:
            return take_columns(high, j - HALF // WIDTH, WIDTH)


@gluon.jit
def write_tile(output: Output, schedule: Schedule, tile, accs, i):
    """Accumulators [LINE, columns] in registers, line by line, by slabs from turn i on; returns the turn after the last.

    In strips there is one for each pixel; or with narrow groups for each pair of pixels and bundle of channels, with both pixels'
    columns, and a slab is a pixel.
    """
    BUNDLES: gl.constexpr = len(accs) * 2 // output.STRIP
    slabs = ()
    if output.STRIP > 1 and len(accs) != output.STRIP:
        for pixel in gl.static_range(output.STRIP):
            pieces = ()
            for bundle in gl.static_range(BUNDLES):
                acc = accs[pixel // 2 * BUNDLES + bundle]
                pieces = pieces + (take_columns(acc, pixel % 2, acc.shape[1] // 2), )
            slabs = slabs + (pieces, )
    else:
        for part in gl.static_range(len(accs)):
            for j in gl.static_range(accs[part].shape[1] // output.WIDTH):
                slabs = slabs + ((take_columns(accs[part], j, output.WIDTH), ), )
    for number in gl.static_range(len(slabs)):
        slab = output.slab(i + number, number % output.ring.SLOTS)
        write_slab(output, schedule, tile, slabs[number], number % output.PER_LINE, i + number, slab)
    return i + len(slabs)


@gluon.jit
def refill(output: Output, schedule: Schedule, index, j: gl.constexpr, i):
    """Load the residual of slab j of a tile into the slot of turn i; past the last tile, nothing."""
    there = index < schedule.num_items()
    tile = schedule.tile(gl.minimum(index, schedule.num_items() - 1))
    empty = output.ring.empty(i)
    mbarrier.expect(empty, output.residual_desc.nbytes_per_cta, pred=there)
    slab = output.slab(i, j % output.ring.SLOTS)
    tma.async_load(output.residual_desc, output.place(schedule, tile, j), empty, slab, pred=there)


@gluon.jit
def first_refills(output: Output, schedule: Schedule, index):
    if output.HAS_RESIDUAL:
        for slot in gl.static_range(output.ring.SLOTS):
            refill(output, schedule, index, slot, slot)


@gluon.jit
def store_tile(output: Output, schedule: Schedule, tickets: Tickets, index, turn, i):
    """Store a tile's slabs from turn i of their ring on, and give their slots back, each while the next one is stored. Returns
    the ticket of ``turn``, that of the tile whose slabs come next in these slots: with a residual, the last slots get
    that tile's."""
    PER_TILE: gl.constexpr = output.PER_TILE
    SLOTS: gl.constexpr = output.ring.SLOTS
    LAG: gl.constexpr = 1 if SLOTS > 1 else 0
    tile = schedule.tile(index)
    for j in gl.static_range(PER_TILE + LAG):
        if j < PER_TILE:
            output.ring.wait_full(i + j)
            slab = output.slab(i + j, j % SLOTS)
            tma.async_store(output.y_desc, output.place(schedule, tile, j), slab)
        if j >= LAG:
            tma.store_wait(LAG if j < PER_TILE else 0)
            if j - LAG == PER_TILE - (SLOTS if output.HAS_RESIDUAL else 1):
                index = tickets.take(turn)
            if output.HAS_RESIDUAL:
                refill(output, schedule, index, (j - LAG + SLOTS) % PER_TILE, i + j - LAG + SLOTS)
            else:
                mbarrier.arrive(output.ring.empty(i + j - LAG))
    return index


@gluon.jit
def store_partition(schedule: Schedule, tickets: Tickets, output: Output):
    i = 0
    turn = 0
    index = tickets.take(turn)
    if not schedule.SPLIT:
        first_refills(output, schedule, index)
    while index < schedule.num_items():
        turn += 1
        if schedule.SPLIT:  # parts leave no slabs
            index = tickets.take(turn)
        else:
            index = store_tile(output, schedule, tickets, index, turn, i)
            i += output.PER_TILE


@gluon.jit
def store_in_turns_partition(schedule: Schedule, tickets: Tickets, even: Output, odd: Output):
    """For two writers that take tiles in turns, each with slots of its own."""
    i = 0
    turn = 1
    index = tickets.take(0)
    other = tickets.take(1)
    first_refills(even, schedule, index)
    first_refills(odd, schedule, other)
    while index < schedule.num_items():
        index = store_tile(even, schedule, tickets, index, turn + 1, i)
        if other < schedule.num_items():
            other = store_tile(odd, schedule, tickets, other, turn + 2, i)
        turn += 2
        i += even.PER_TILE
