"""Rings of buffers between partitions, the order of tiles that goes through one, and the loads that fill the operands'."""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from .schedule import Schedule


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
    def slot(self, i):
        return i % self.SLOTS

    @gluon.jit
    def full(self, i):
        return self.fulls.index(self.slot(i))

    @gluon.jit
    def empty(self, i):
        return self.empties.index(self.slot(i))

    @gluon.jit
    def wait_full(self, i):
        mbarrier.wait(self.full(i), i // self.SLOTS & 1)

    @gluon.jit
    def wait_empty(self, i):
        mbarrier.wait(self.empty(i), i // self.SLOTS & 1 ^ 1)

    @gluon.jit
    def wait_refilled(self, i):
        """Where a consumer gives slots back with something in them, the first round as well: an empty slot is one refilled."""
        mbarrier.wait(self.empty(i), i // self.SLOTS & 1)


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
        self.numbers.index(self.ring.slot(turn)).store(gl.full([1], index, gl.int32, layout))
        mbarrier.arrive(self.ring.full(turn))

    @gluon.jit
    def next(self, schedule, index):
        """The tile after ``index``. There is a draw for each tile, and the last one leaves the counter at 0."""
        if not self.DRAWN:
            return index + schedule.num_first_tiles()
        counter = self.counter + schedule.counter()
        drawn = gl.atomic_add(counter, 1, sem="relaxed")
        if drawn == schedule.num_tiles() - 1:
            gl.atomic_xchg(counter, 0, sem="relaxed")
        return drawn + schedule.num_first_tiles()

    @gluon.jit
    def take(self, turn):
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        self.ring.wait_full(turn)
        index = gl.max(self.numbers.index(self.ring.slot(turn)).load(layout), 0)
        mbarrier.arrive(self.ring.empty(turn))
        return index


@aggregate
class Operands:
    """The descriptors of both operands, and the ring that their blocks go through.

    With RESIDENT, all weights of a column of tiles stay in shared memory, that many blocks at most, and only pixels go
    through the ring.
    """
    x_desc: tma.tensor_descriptor_im2col
    w_desc: tma.tensor_descriptor
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ring: Ring
    weights: gl.shared_memory_descriptor
    tickets: Tickets
    RESIDENT: gl.constexpr

    @gluon.jit
    def create(x_desc, w_desc, tickets, STAGES: gl.constexpr, RESIDENT: gl.constexpr):
        a = gl.allocate_shared_memory(x_desc.dtype, [STAGES] + x_desc.block_shape, x_desc.layout)
        BLOCKS: gl.constexpr = RESIDENT if RESIDENT > 0 else STAGES
        b = gl.allocate_shared_memory(w_desc.dtype, [BLOCKS] + w_desc.block_shape, w_desc.layout)
        ring = Ring.create(STAGES)
        weights = ring.fulls  # not used, but a barrier that no partition takes would share its memory with other buffers
        if RESIDENT > 0:
            weights = mbarrier.allocate_mbarrier()
            mbarrier.init(weights, count=RESIDENT)
        return Operands(x_desc, w_desc, a, b, ring, weights, tickets, RESIDENT)

    @gluon.jit
    def left(self, i):
        return self.a.index(self.ring.slot(i))

    @gluon.jit
    def right(self, i, step):
        """A block of weights [1, BLOCK_N, BLOCK_K] as the MMA takes it, [BLOCK_K, BLOCK_N]."""
        b = self.b.index(step if self.RESIDENT > 0 else self.ring.slot(i))
        return b.reshape((b.shape[1], b.shape[2])).permute((1, 0))

    @gluon.jit
    def await_weights(self):
        if self.RESIDENT > 0:
            mbarrier.wait(self.weights, 0)


@gluon.jit
def load_pixels(operands, schedule, tile, channel, t, r, s, bar, i, RANK: gl.constexpr):
    """One step of the reduction: one tap, one block of channels."""
    x_channel = tile.group * schedule.C + channel
    w_offset = (s * schedule.dilation_w).to(gl.int16)
    if RANK == 1:
        tma.async_load_im2col(operands.x_desc, [tile.n, tile.w, x_channel], [w_offset], bar, operands.left(i))
    else:
        h_offset = (r * schedule.dilation_h).to(gl.int16)
        if RANK == 2:
            tma.async_load_im2col(operands.x_desc, [tile.n, tile.h, tile.w, x_channel], [h_offset, w_offset], bar,
                                  operands.left(i))
        else:
            d_offset = (t * schedule.dilation_d).to(gl.int16)
            tma.async_load_im2col(operands.x_desc, [tile.n, tile.d, tile.h, tile.w, x_channel],
                                  [d_offset, h_offset, w_offset], bar, operands.left(i))


@gluon.jit
def load_resident_weights(operands, schedule):
    """All weights of the program's column of tiles, in the order of the steps."""
    taps = schedule.T * schedule.R * schedule.S
    tile = schedule.tile(0)
    row = tile.group * schedule.K + tile.off_n
    for step in range(operands.RESIDENT):
        if step < schedule.num_steps():
            mbarrier.expect(operands.weights, operands.w_desc.nbytes_per_cta)
            tma.async_load(operands.w_desc, [step % taps, row, step // taps * schedule.BLOCK_K], operands.weights,
                           operands.b.index(step))
        else:
            mbarrier.arrive(operands.weights)


@gluon.jit
def load_partition(schedule: Schedule, operands: Operands, RANK: gl.constexpr, ENDS: gl.constexpr):
    """Channels are the outer loop, taps the inner ones: a tap finds in L2 most pixels that the tap before it read.

    ENDS is how many tickets past the last tile are given out.
    """
    if operands.RESIDENT > 0:
        load_resident_weights(operands, schedule)
    i = 0
    turn = 0
    index = schedule.first_tile()
    while index < schedule.num_tiles():
        operands.tickets.publish(turn, index)
        turn += 1
        tile = schedule.tile(index)
        for channel in range(0, schedule.C, schedule.BLOCK_K):
            for t in range(schedule.T):
                for r in range(schedule.R):
                    for s in range(schedule.S):
                        operands.ring.wait_empty(i)
                        full = operands.ring.full(i)
                        if operands.RESIDENT > 0:
                            mbarrier.expect(full, operands.x_desc.nbytes_per_cta)
                        else:
                            mbarrier.expect(full, operands.x_desc.nbytes_per_cta + operands.w_desc.nbytes_per_cta)
                        load_pixels(operands, schedule, tile, channel, t, r, s, full, i, RANK)
                        if operands.RESIDENT == 0:
                            tap = (t * schedule.R + r) * schedule.S + s
                            tma.async_load(operands.w_desc, [tap, tile.group * schedule.K + tile.off_n, channel], full,
                                           operands.b.index(operands.ring.slot(i)))
                        i += 1
        # Not earlier: at the end of the launch, a tile drawn ahead would wait here while other programs have none.
        index = operands.tickets.next(schedule, index)
    for _ in gl.static_range(ENDS):
        operands.tickets.publish(turn, index)
        turn += 1
