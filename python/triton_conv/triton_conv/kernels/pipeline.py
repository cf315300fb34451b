"""Rings of buffers between partitions, and the loads that fill them."""

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
    def create(SLOTS: gl.constexpr):
        fulls = mbarrier.allocate_mbarrier(batch=SLOTS)
        empties = mbarrier.allocate_mbarrier(batch=SLOTS)
        for i in gl.static_range(SLOTS):
            mbarrier.init(fulls.index(i), count=1)
            mbarrier.init(empties.index(i), count=1)
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
class Operands:
    """The descriptors of both operands, and the ring that their blocks go through."""
    x_desc: tma.tensor_descriptor_im2col
    w_desc: tma.tensor_descriptor
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ring: Ring

    @gluon.jit
    def create(x_desc, w_desc, STAGES: gl.constexpr):
        a = gl.allocate_shared_memory(x_desc.dtype, [STAGES] + x_desc.block_shape, x_desc.layout)
        b = gl.allocate_shared_memory(w_desc.dtype, [STAGES] + w_desc.block_shape, w_desc.layout)
        return Operands(x_desc, w_desc, a, b, Ring.create(STAGES))

    @gluon.jit
    def left(self, i):
        return self.a.index(self.ring.slot(i))

    @gluon.jit
    def right(self, i):
        """A block of weights [1, BLOCK_N, BLOCK_K] as the MMA takes it, [BLOCK_K, BLOCK_N]."""
        b = self.b.index(self.ring.slot(i))
        return b.reshape((b.shape[1], b.shape[2])).permute((1, 0))


@gluon.jit
def load_step(operands, schedule, tile, channel, t, r, s, i, RANK: gl.constexpr):
    """One step of the reduction: one tap, one block of channels."""
    operands.ring.wait_empty(i)
    full = operands.ring.full(i)
    mbarrier.expect(full, operands.x_desc.nbytes_per_cta + operands.w_desc.nbytes_per_cta)
    x_channel = tile.group * schedule.C + channel
    w_offset = (s * schedule.dilation_w).to(gl.int16)
    if RANK == 1:
        tma.async_load_im2col(operands.x_desc, [tile.n, tile.w, x_channel], [w_offset], full, operands.left(i))
    else:
        h_offset = (r * schedule.dilation_h).to(gl.int16)
        if RANK == 2:
            tma.async_load_im2col(operands.x_desc, [tile.n, tile.h, tile.w, x_channel], [h_offset, w_offset], full,
                                  operands.left(i))
        else:
            d_offset = (t * schedule.dilation_d).to(gl.int16)
            tma.async_load_im2col(operands.x_desc, [tile.n, tile.d, tile.h, tile.w, x_channel],
                                  [d_offset, h_offset, w_offset], full, operands.left(i))
    tap = (t * schedule.R + r) * schedule.S + s
    row = tile.group * schedule.K + tile.off_n
    tma.async_load(operands.w_desc, [tap, row, channel], full, operands.b.index(operands.ring.slot(i)))


@gluon.jit
def load_partition(schedule: Schedule, operands: Operands, RANK: gl.constexpr):
    """Channels are the outer loop, taps the inner ones: a tap finds in L2 most pixels that the tap before it read."""
    i = 0
    for index in range(gl.program_id(0), schedule.num_tiles(), gl.num_programs(0)):
        tile = schedule.tile(index)
        for channel in range(0, schedule.C, schedule.BLOCK_K):
            for t in range(schedule.T):
                for r in range(schedule.R):
                    for s in range(schedule.S):
                        load_step(operands, schedule, tile, channel, t, r, s, i, RANK)
                        i += 1
