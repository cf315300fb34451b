"""Blackwell: tcgen05 adds to tensor memory. One warp issues the MMAs; while an epilogue partition fetches one accumulator and
writes the slabs, the MMAs of the next tile fill the other."""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
)
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .epilogue import Output, write_slab
from .parts import Parts, finish_slabs
from .pipeline import Operands, Ring
from .schedule import Schedule


@aggregate
class Accumulators:
    memory: tensor_memory_descriptor
    ring: Ring

    @gluon.jit
    def create(BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
        layout: gl.constexpr = TensorMemoryLayout((128, BLOCK_N), col_stride=1)
        return Accumulators(allocate_tensor_memory(gl.float32, [2, BLOCK_M, BLOCK_N], layout), Ring.create(2))

    @gluon.jit
    def acc(self, i):
        return self.memory.index(i % self.ring.SLOTS)


@gluon.jit
def mma_partition(schedule: Schedule, operands: Operands, accumulators: Accumulators):
    i = 0
    turn = 0
    operands.await_weights()
    index = operands.tickets.take(turn)
    while index < schedule.num_items():
        accumulators.ring.wait_empty(turn)
        acc = accumulators.acc(turn)
        for step in range(schedule.num_steps(index)):
            operands.ring.wait_full(i)
            tcgen05_mma(operands.pixels(i), operands.columns(i, step), acc, use_acc=step > 0,
                        mbarriers=[operands.ring.empty(i)])
            i += 1
        tcgen05_commit(accumulators.ring.full(turn))
        turn += 1
        index = operands.tickets.take(turn)


@gluon.jit
def write_slabs(output: Output, schedule: Schedule, tile, acc, slab):
    """All of a tile, from turn ``slab`` on; returns the turn after the last."""
    for j in gl.static_range(output.PER_LINE):
        columns = acc.slice(j * output.WIDTH, output.WIDTH).load()
        write_slab(output, schedule, tile, (columns, ), j, slab + j, output.slab(slab + j, j % output.ring.SLOTS))
    return slab + output.PER_LINE


@gluon.jit
def write_part(output: Output, parts: Parts, schedule: Schedule, item, acc):
    slabs = ()
    for j in gl.static_range(output.PER_LINE):
        slabs = slabs + (parts.store(schedule, item, j, acc.slice(j * output.WIDTH, output.WIDTH).load()), )
    if parts.comes_last(schedule, item):
        for j in gl.static_range(len(slabs)):  # one after the other: a thread has no registers for more
            finish_slabs(output, parts, schedule, item, (slabs[j], ), j)


@gluon.jit
def epilogue_partition(schedule: Schedule, operands: Operands, output: Output, parts: Parts,
                       accumulators: Accumulators):
    turn = 0
    slab = 0
    index = operands.tickets.take(turn)
    while index < schedule.num_items():
        accumulators.ring.wait_full(turn)
        if schedule.SPLIT:
            write_part(output, parts, schedule, index, accumulators.acc(turn))
        else:
            slab = write_slabs(output, schedule, schedule.tile(index), accumulators.acc(turn), slab)
        mbarrier.arrive(accumulators.ring.empty(turn))
        turn += 1
        index = operands.tickets.take(turn)
