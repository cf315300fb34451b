"""Rings of buffers between partitions, the order of tiles that goes through one, and the loads that fill the operands'."""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from .schedule import Schedule

try:  # since Triton 3.9
    from triton.experimental.gluon.language.nvidia.ampere import CachePolicy, FractionalEvictionPolicy
    EVICT_FIRST = gl.constexpr(CachePolicy(l2=FractionalEvictionPolicy("evict_first", 1.0)))
except ImportError:
    EVICT_FIRST = None


@aggregate
class Ring:
    """Slots that a producer fills and a consumer empties, with two mbarriers each. Turn i is in slot i % SLOTS.

    A wait names the parity of the phase that must be complete: that of the round for a full slot, and for an empty one that
    of the round before, so that the producer's first round does not wait.
    """
    fulls: gl.shared_memory_descriptor
    empties: gl.shared_memory_descriptor
    SLOTS: gl.constexpr

    @gluon.jit
    def create(SLOTS: gl.constexpr, CONSUMERS: gl.constexpr = 1):
        fulls = mbarrier.allocate_mbarrier(batch=SLOTS)
        empties = mbarrier.allocate_mbarrier(batch=SLOTS)
        for i in gl.static_range(SLOTS):
            mbarrier.init(fulls.index(i), count=1)
            mbarrier.init(empties.index(i), count=CONSUMERS)
        return Ring(fulls, empties, SLOTS)

    @gluon.jit
    def full(self, i):
        return self.fulls.index(i % self.SLOTS)

    @gluon.jit
    def empty(self, i):
        return self.empties.index(i % self.SLOTS)

    @gluon.jit
    def wait_full(self, i):
        mbarrier.wait(self.fulls.index(i % self.SLOTS), i // self.SLOTS & 1)

    @gluon.jit
    def wait_empty(self, i):
        mbarrier.wait(self.empties.index(i % self.SLOTS), i // self.SLOTS & 1 ^ 1)

    @gluon.jit
    def wait_refilled(self, i):
        """Where a consumer gives slots back with something in them, the first round as well: an empty slot is one refilled."""
        mbarrier.wait(self.empties.index(i % self.SLOTS), i // self.SLOTS & 1)


@aggregate
class Tickets:
    """The tiles of a program, in turns. The load partition gives them out; the others read, each ticket READERS of them. A
    ticket past the last tile ends all.

    The first is that of the program's number. With DRAWN, whoever is free draws the next from counters in global memory,
    since not all multiprocessors get the same share of its bandwidth. Otherwise programs keep step, and neighbors that
    load the same blocks at the same time share what comes from L2.
    """
    counter: gl.tensor
    numbers: gl.shared_memory_descriptor
    ring: Ring
    DRAWN: gl.constexpr

    @gluon.jit
    def create(counter, READERS: gl.constexpr, DRAWN: gl.constexpr):
        layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        return Tickets(counter, gl.allocate_shared_memory(gl.int32, [4, 1], layout), Ring.create(4, READERS), DRAWN)

    @gluon.jit
    def publish(self, turn, index):
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        self.ring.wait_empty(turn)
        self.numbers.index(turn % self.ring.SLOTS).store(gl.full([1], index, gl.int32, layout))
        mbarrier.arrive(self.ring.full(turn))

    @gluon.jit
    def next(self, schedule, index):
        """The tile after ``index``. There is a draw for each tile, and the last one leaves the counter at 0."""
        if not self.DRAWN:
            return index + schedule.num_first_items()
        counter = self.counter + schedule.counter()
        drawn = gl.atomic_add(counter, 1, sem="relaxed")
        if drawn == schedule.num_items() - 1:
            gl.atomic_xchg(counter, 0, sem="relaxed")
        return drawn + schedule.num_first_items()

    @gluon.jit
    def take(self, turn):
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        self.ring.wait_full(turn)
        index = gl.max(self.numbers.index(turn % self.ring.SLOTS).load(layout), 0)
        mbarrier.arrive(self.ring.empty(turn))
        return index


@aggregate
class Strips:
    """A row has several output PIXELS, in UNITS with accumulators of their own. A unit has TAPS in the last dimension, and the
    next one begins STEP input pixels later. A load is in SLICES of channels, each an MMA of its own. With one pixel there
    are no strips.

    Of few channels: a unit is a pixel, and a slice an input pixel; SKIPPED of those in the first load are of no use.
    Of narrow groups, PAIRED: a unit is two pixels, and a slice of the one input pixel a bundle of groups, whose sums are apart.
    """
    PIXELS: gl.constexpr
    TAPS: gl.constexpr
    STEP: gl.constexpr
    SLICES: gl.constexpr
    SKIPPED: gl.constexpr
    PAIRED: gl.constexpr
    UNITS: gl.constexpr
    LOADS: gl.constexpr  # of a strip, for a line of the filter

    @gluon.jit
    def create(PIXELS: gl.constexpr, TAPS: gl.constexpr, STEP: gl.constexpr, TOGETHER: gl.constexpr,
               SKIPPED: gl.constexpr, BLOCK_BYTES: gl.constexpr):
        """BLOCK_BYTES is that of a load's channels; those of a bundle have 32."""
        if PIXELS == 1:
            return Strips(1, 1, 1, 1, 0, False, 1, 1)
        elif TOGETHER == 0:
            return Strips(PIXELS, TAPS, STEP, BLOCK_BYTES // 32, 0, True, PIXELS // 2, TAPS + (PIXELS // 2 - 1) * STEP)
        else:
            return Strips(PIXELS, TAPS, STEP, TOGETHER, SKIPPED, False, PIXELS,
                          (SKIPPED + TAPS + (PIXELS - 1) * STEP + TOGETHER - 1) // TOGETHER)


@gluon.constexpr_function
def largest_power_of_two(n):
    """The largest of at most n."""
    return 1 << (n.bit_length() - 1)


@gluon.constexpr_function
def steps_together(strips, STAGES):
    """How many input pixels of strips have buffers of their own: of as many loads, the code is there for each."""
    return next(steps for steps in (3, 2, 1) if strips.LOADS.value % steps == 0 and STAGES % steps == 0)


@gluon.constexpr_function
def as_matrix(layout, transposed=False):
    """The layout of a descriptor's block [1, rows, columns] as one of [rows, columns] or of [columns, rows]; TMA takes buffers
    without the dimension of 1."""
    return gl.NVMMASharedLayout(layout.swizzle_byte_width, layout.element_bitwidth, 2, transposed)


@gluon.jit
def slice_of(x, j: gl.constexpr, WIDTH: gl.constexpr, dim: gl.constexpr):
    """Slice j of a buffer, of WIDTH; the buffer itself if that is all of it."""
    if WIDTH == x.shape[dim]:
        return x
    else:
        return x.slice(j * WIDTH, WIDTH, dim=dim)


@gluon.jit
def allocate_weights(w_desc, BLOCKS: gl.constexpr, COLUMNS: gl.constexpr):
    """Buffers for blocks of weights as the MMA takes them, [BLOCK_K, columns], one for each part of the columns."""
    PART: gl.constexpr = largest_power_of_two(COLUMNS)
    part = gl.allocate_shared_memory(w_desc.dtype, [BLOCKS, w_desc.block_shape[2], PART],
                                     as_matrix(w_desc.layout, transposed=True))
    if COLUMNS == PART:
        return (part, )
    else:
        return (part, ) + allocate_weights(w_desc, BLOCKS, COLUMNS - PART)


@gluon.jit
def allocate_taps(w_desc, LINES: gl.constexpr, COLUMNS: gl.constexpr, TAPS: gl.constexpr):
    """Buffers for the weights of strips, one for each tap of a line of the filter."""
    taps = ()
    for _ in gl.static_range(TAPS):
        taps = taps + allocate_weights(w_desc, LINES, COLUMNS)
    return taps


@aggregate
class Operands:
    """The descriptors of both operands, and the ring that their blocks go through.

    A turn of the ring is a line of a tile's pixels; its first line comes with a block of weights. That is in parts, each with a
    power of two of the tile's columns, since tensors have such sizes. With RESIDENT, all weights of a column of tiles stay
    in shared memory, that many blocks at most, and only pixels go through the ring. Strips have such weights, a part a tap.

    Each line and each part has buffers of its own, and so have some input pixels of strips that follow each other: the time
    that a view takes to compile grows with what it can be a view of.
    """
    x_desc: tma.tensor_descriptor | tma.tensor_descriptor_im2col
    w_desc: tma.tensor_descriptor
    a: gl.tuple
    b: gl.tuple
    ring: Ring
    weights: gl.shared_memory_descriptor
    tickets: Tickets
    BLOCK_BYTES: gl.constexpr  # of weights
    LINES: gl.constexpr  # of a tile
    strips: Strips
    RESIDENT: gl.constexpr
    PASSING: gl.constexpr  # pixels are not to push others out of L2

    @gluon.jit
    def create(x_desc, w_desc, tickets, BLOCK_N: gl.constexpr, LINES: gl.constexpr, strips, STAGES: gl.constexpr,
               RESIDENT: gl.constexpr, PASSING: gl.constexpr):
        TURNS: gl.constexpr = LINES * steps_together(strips, STAGES)
        A_SHAPE: gl.constexpr = [STAGES // TURNS] + x_desc.block_shape
        a = ()
        for _ in gl.static_range(TURNS):
            a = a + (gl.allocate_shared_memory(x_desc.dtype, A_SHAPE, x_desc.layout), )
        if strips.PIXELS > 1:
            b = allocate_taps(w_desc, RESIDENT // strips.TAPS, BLOCK_N, strips.TAPS)
        else:
            b = allocate_weights(w_desc, RESIDENT if RESIDENT > 0 else STAGES // LINES, BLOCK_N)
        BLOCK_BYTES: gl.constexpr = w_desc.nbytes_per_cta * (BLOCK_N // w_desc.block_shape[1])
        ring = Ring.create(STAGES)
        weights = ring.fulls  # not used, but a barrier that no partition takes would share its memory with other buffers
        if RESIDENT > 0:
            weights = mbarrier.allocate_mbarrier()
            mbarrier.init(weights, count=RESIDENT // strips.TAPS * strips.TAPS)
        return Operands(x_desc, w_desc, a, b, ring, weights, tickets, BLOCK_BYTES, LINES, strips, RESIDENT, PASSING)

    @gluon.jit
    def pixels(self, i, j: gl.constexpr = 0):
        """The line [LINE, BLOCK_K] of turn i + j, where i is a step's first, or that of steps together."""
        TURNS: gl.constexpr = len(self.a)
        return self.a[j % TURNS].index((i + j // TURNS * TURNS) % self.ring.SLOTS // TURNS)

    @gluon.jit
    def block(self, i):
        """Which block of weights comes with turn i, a step's first line."""
        return i % self.ring.SLOTS // self.LINES

    @gluon.jit
    def columns(self, i, step, part: gl.constexpr = 0):
        """A part [BLOCK_K, columns] of the weights of a step whose first line is turn i."""
        return self.b[part].index(step if self.RESIDENT > 0 else self.block(i))

    @gluon.jit
    def await_weights(self):
        if self.RESIDENT > 0:
            mbarrier.wait(self.weights, 0)


@aggregate
class Walk:
    """A place in a tile's reduction: a block of channels and a tap, by its number and as offsets."""
    channel: gl.tensor
    tap: gl.tensor
    d: gl.tensor
    h: gl.tensor
    w: gl.tensor

    @gluon.jit
    def begin(schedule, step):
        taps = schedule.T * schedule.R * schedule.S
        tap = step % taps
        line = tap // schedule.S
        return Walk(step // taps * schedule.BLOCK_K, tap, line // schedule.R * schedule.dilation_d,
                    line % schedule.R * schedule.dilation_h, tap % schedule.S * schedule.dilation_w)

    @gluon.jit
    def next(self, schedule):
        """Channels change last: a tap finds in L2 most pixels that the tap before it read.

        Without loops inside each other, since one warp has to load as fast as tensor cores multiply.
        """
        w = self.w + schedule.dilation_w
        over_w = w == schedule.S * schedule.dilation_w
        h = self.h + gl.where(over_w, schedule.dilation_h, 0)
        over_h = h == schedule.R * schedule.dilation_h
        d = self.d + gl.where(over_h, schedule.dilation_d, 0)
        over_d = d == schedule.T * schedule.dilation_d
        return Walk(self.channel + gl.where(over_d, schedule.BLOCK_K, 0), gl.where(over_d, 0, self.tap + 1),
                    gl.where(over_d, 0, d), gl.where(over_h, 0, h), gl.where(over_w, 0, w))


@gluon.jit
def load_line(operands, schedule, line, walk, i, j: gl.constexpr, RANK: gl.constexpr):
    """A line's pixels into turn i + j. Of rank 0 is a matrix product, whose rows are pixels one after the other."""
    x_channel = line.group * schedule.C + walk.channel
    w_offset = walk.w.to(gl.int16)
    bar = operands.ring.full(i + j)
    pixels = operands.pixels(i, j)
    if RANK == 0:
        if operands.PASSING:
            tma.async_load(operands.x_desc, [line.off_m, x_channel], bar, pixels, cache_policy=EVICT_FIRST)
        else:
            tma.async_load(operands.x_desc, [line.off_m, x_channel], bar, pixels)
    elif RANK == 1:
        tma.async_load_im2col(operands.x_desc, [line.n, line.w, x_channel], [w_offset], bar, pixels)
    elif RANK == 2:
        tma.async_load_im2col(operands.x_desc, [line.n, line.h, line.w, x_channel], [walk.h.to(gl.int16), w_offset],
                              bar, pixels)
    else:
        tma.async_load_im2col(operands.x_desc, [line.n, line.d, line.h, line.w, x_channel],
                              [walk.d.to(gl.int16), walk.h.to(gl.int16), w_offset], bar, pixels)


@gluon.jit
def load_weights(operands, tap, row, channel, bar, block):
    """All columns of a block, by boxes of the descriptor's columns."""
    BOX: gl.constexpr = operands.w_desc.block_shape[1]
    for j in gl.static_range(len(operands.b)):
        part = operands.b[j].index(block).permute((1, 0))
        for k in gl.static_range(part.shape[0] // BOX):
            tma.async_load(operands.w_desc, [tap, row, channel], bar, slice_of(part, k, BOX, 0))
            row += BOX


@gluon.jit
def load_resident_weights(operands, schedule):
    """All weights of the program's column of tiles, in the order in which they are multiplied."""
    tile = schedule.tile(0)
    row = tile.group * schedule.K + tile.off_n
    taps = schedule.T * schedule.R * schedule.S
    for block in range(operands.RESIDENT):
        tap = block % taps
        channel = block // taps * schedule.BLOCK_K
        if channel < schedule.C:
            mbarrier.expect(operands.weights, operands.BLOCK_BYTES)
            load_weights(operands, tap, row, channel, operands.weights, block)
        else:
            mbarrier.arrive(operands.weights)


@gluon.jit
def load_taps(operands, schedule):
    """All weights of strips, by lines of the filter."""
    TAPS: gl.constexpr = operands.strips.TAPS
    tile = schedule.tile(0)
    row = tile.group * schedule.K * 2 // operands.strips.SLICES if operands.strips.PAIRED else tile.off_n
    for line in range(operands.RESIDENT // TAPS):
        for tap in gl.static_range(TAPS):
            if line < schedule.T * schedule.R:
                mbarrier.expect(operands.weights, operands.BLOCK_BYTES)
                tma.async_load(operands.w_desc, [line * TAPS + tap, row, 0], operands.weights,
                               operands.b[tap].index(line).permute((1, 0)))
            else:
                mbarrier.arrive(operands.weights)


@gluon.jit
def load_step(operands, schedule, lines, walk, i, first: gl.constexpr, RANK: gl.constexpr):
    """A tile's lines and weights for one tap and one block of channels, into turns from i + first on."""
    for j in gl.static_range(operands.LINES):
        operands.ring.wait_empty(i + first + j)
        full = operands.ring.full(i + first + j)
        if j > 0 or operands.RESIDENT > 0:
            mbarrier.expect(full, operands.x_desc.nbytes_per_cta)
        else:
            mbarrier.expect(full, operands.x_desc.nbytes_per_cta + operands.BLOCK_BYTES)
            row = lines[0].group * schedule.K + lines[0].off_n
            load_weights(operands, walk.tap, row, walk.channel, full, operands.block(i))
        load_line(operands, schedule, lines[j], walk, i, first + j, RANK)


@gluon.jit
def load_partition(schedule: Schedule, operands: Operands, RANK: gl.constexpr, ENDS: gl.constexpr):
    """ENDS is how many tickets past the last tile are given out."""
    STEPS: gl.constexpr = len(operands.a) // operands.LINES
    if operands.strips.PIXELS > 1:
        load_taps(operands, schedule)
    elif operands.RESIDENT > 0:
        load_resident_weights(operands, schedule)
    i = 0
    turn = 0
    index = schedule.first_item()
    while index < schedule.num_items():
        operands.tickets.publish(turn, index)
        turn += 1
        tile = schedule.tile(index)
        lines = (tile, )
        for j in gl.static_range(1, operands.LINES):
            lines = lines + (schedule.line(tile, j), )
        walk = Walk.begin(schedule, schedule.first_step(index))
        for _ in range(schedule.num_steps(index) // STEPS):
            for j in gl.static_range(STEPS):
                load_step(operands, schedule, lines, walk, i, j * operands.LINES, RANK)
                walk = walk.next(schedule)
            i += STEPS * operands.LINES
        # Not earlier: at the end of the launch, a tile drawn ahead would wait here while other programs have none.
        index = operands.tickets.next(schedule, index)
    for _ in gl.static_range(ENDS):
        operands.tickets.publish(turn, index)
        turn += 1
