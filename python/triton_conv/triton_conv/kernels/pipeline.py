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
    def create(SLOTS: gl.constexpr, CONSUMERS: gl.constexpr = 1, FILLS: gl.constexpr = 1):
        """CONSUMERS arrivals empty a slot, and FILLS fill it."""
        fulls = mbarrier.allocate_mbarrier(batch=SLOTS)
        empties = mbarrier.allocate_mbarrier(batch=SLOTS)
        for i in gl.static_range(SLOTS):
            mbarrier.init(fulls.index(i), count=FILLS)
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
    """The tiles of a program, in turns: whoever is free draws the next tile, since not all multiprocessors are equally fast.

    The first is that of the program's number; the others are drawn from a counter in global memory. The load partition
    draws; the others read, each ticket READERS of them. A ticket past the last tile ends all.
    """
    counter: gl.tensor
    numbers: gl.shared_memory_descriptor
    ring: Ring

    @gluon.jit
    def create(counter, READERS: gl.constexpr):
        layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        return Tickets(counter, gl.allocate_shared_memory(gl.int32, [4, 1], layout), Ring.create(4, READERS))

    @gluon.jit
    def publish(self, turn, index):
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        self.ring.wait_empty(turn)
        self.numbers.index(self.ring.slot(turn)).store(gl.full([1], index, gl.int32, layout))
        mbarrier.arrive(self.ring.full(turn))

    @gluon.jit
    def draw(self, num_tiles):
        """The next tile. The last draw of the launch leaves the counter at 0."""
        drawn = gl.atomic_add(self.counter, 1, sem="relaxed")
        if drawn == num_tiles - 1:
            gl.atomic_xchg(self.counter, 0, sem="relaxed")
        return drawn + gl.num_programs(0)

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

    With RESIDENT, all weights of a block of output channels stay in shared memory, that many blocks at most, and only
    pixels go through the ring.
    """
    x_desc: tma.tensor_descriptor_im2col
    w_desc: tma.tensor_descriptor
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ring: Ring
    weights: Ring
    tickets: Tickets
    RESIDENT: gl.constexpr

    @gluon.jit
    def create(x_desc, w_desc, tickets, STAGES: gl.constexpr, RESIDENT: gl.constexpr):
        a = gl.allocate_shared_memory(x_desc.dtype, [STAGES] + x_desc.block_shape, x_desc.layout)
        BLOCKS: gl.constexpr = RESIDENT if RESIDENT > 0 else STAGES
        b = gl.allocate_shared_memory(w_desc.dtype, [BLOCKS] + w_desc.block_shape, w_desc.layout)
        return Operands(x_desc, w_desc, a, b, Ring.create(STAGES), Ring.create(1, 1, BLOCKS), tickets, RESIDENT)

    @gluon.jit
    def left(self, i):
        return self.a.index(self.ring.slot(i))

    @gluon.jit
    def right(self, i, step):
        """A block of weights [1, BLOCK_N, BLOCK_K] as the MMA takes it, [BLOCK_K, BLOCK_N]."""
        b = self.b.index(step if self.RESIDENT > 0 else self.ring.slot(i))
        return b.reshape((b.shape[1], b.shape[2])).permute((1, 0))

    @gluon.jit
    def await_weights(self, column, kept, turn):
        """Before a tile's first MMA, all MMAs before it being over: the weights of its block of output channels, ``column``.

        ``kept`` is the column whose weights are there, -1 for none. Returns the turn of the weights' ring.
        """
        if self.RESIDENT > 0:
            if column != kept:
                if kept >= 0:
                    mbarrier.arrive(self.weights.empty(turn - 1))
                self.weights.wait_full(turn)
                turn += 1
        return turn


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
def load_resident_weights(operands, schedule, tile, turn):
    """All weights of a block of output channels, in the order of the steps."""
    operands.weights.wait_empty(turn)
    full = operands.weights.full(turn)
    taps = schedule.T * schedule.R * schedule.S
    row = tile.group * schedule.K + tile.off_n
    for step in range(operands.RESIDENT):
        if step < schedule.num_steps():
            mbarrier.expect(full, operands.w_desc.nbytes_per_cta)
            tma.async_load(operands.w_desc, [step % taps, row, step // taps * schedule.BLOCK_K], full,
                           operands.b.index(step))
        else:
            mbarrier.arrive(full)


@gluon.jit
def load_partition(schedule: Schedule, operands: Operands, RANK: gl.constexpr, ENDS: gl.constexpr):
    """Channels are the outer loop, taps the inner ones: a tap finds in L2 most pixels that the tap before it read.

    ENDS is how many tickets past the last tile are given out.
    """
    i = 0
    turn = 0
    weights_turn = 0
    kept = -1
    index = gl.program_id(0)
    while index < schedule.num_tiles():
        operands.tickets.publish(turn, index)
        turn += 1
        tile = schedule.tile(index)
        index = operands.tickets.draw(schedule.num_tiles())
        if operands.RESIDENT > 0:
            if tile.column != kept:
                load_resident_weights(operands, schedule, tile, weights_turn)
                weights_turn += 1
            kept = tile.column
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
                            tap = (t * schedule.R + r) * schedule.S + s
                            tma.async_load(operands.w_desc,
                                           [tap, tile.group * schedule.K + tile.off_n, channel], full,
                                           operands.b.index(operands.ring.slot(i)))
                        load_pixels(operands, schedule, tile, channel, t, r, s, full, i, RANK)
                        i += 1
    for _ in gl.static_range(ENDS):
        operands.tickets.publish(turn, index)
        turn += 1
