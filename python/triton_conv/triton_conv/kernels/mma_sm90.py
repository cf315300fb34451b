"""Hopper: wgmma adds to registers of the warps that issue it, so the MMA partition also writes the slabs.

There are two ways. In the first, all warps share a tile, and the tensor cores rest while its slabs are written. In the
second, two partitions of four warps take tiles in turns, and one multiplies while the other writes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from .epilogue import Output, write_tile
from .pipeline import Operands
from .schedule import Schedule


@gluon.jit
def accumulator(schedule: Schedule, dtype: gl.constexpr):
    K_OF_MMA: gl.constexpr = 256 // dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, schedule.BLOCK_N, K_OF_MMA])
    return gl.zeros([schedule.BLOCK_M, schedule.BLOCK_N], gl.float32, layout)


@gluon.jit
def multiply(schedule: Schedule, operands: Operands, acc, i):
    """All steps of a tile, from turn i of the operands' ring; the last MMA may still be running."""
    for step in range(schedule.num_steps()):
        operands.ring.wait_full(i)
        acc = warpgroup_mma(operands.left(i), operands.right(i, step), acc, use_acc=step > 0, is_async=True)
        # Nothing tells when a wgmma has read its operands, but the one before has once only the newest is running.
        acc = warpgroup_mma_wait(1, deps=(acc, ))
        mbarrier.arrive(operands.ring.empty(gl.maximum(i - 1, 0)), pred=step > 0)
        i += 1
    return acc


@gluon.jit
def mma_partition(schedule: Schedule, operands: Operands, output: Output):
    acc = accumulator(schedule, operands.x_desc.dtype)
    i = 0
    slab = 0
    turn = 0
    operands.await_weights()
    index = operands.tickets.take(turn)
    while index < schedule.num_tiles():
        acc = multiply(schedule, operands, acc, i)
        i += schedule.num_steps()
        acc = warpgroup_mma_wait(0, deps=(acc, ))
        mbarrier.arrive(operands.ring.empty(i - 1))
        slab = write_tile(output, schedule, schedule.tile(index), acc, slab)
        turn += 1
        index = operands.tickets.take(turn)


@gluon.jit
def mma_in_turns_partition(schedule: Schedule, operands: Operands, output: Output, turns, ODD: gl.constexpr):
    """Every second tile. ``turns`` has a barrier for each of the two: the other one arrives when it has issued its MMAs.

    Without that order one would wait for a turn of the operands' ring of which the round before is not over, and take the
    parity of an older one for it.
    """
    acc = accumulator(schedule, operands.x_desc.dtype)
    steps = schedule.num_steps()
    turn = 0
    slab = 0
    operands.await_weights()
    index = operands.tickets.take(ODD)
    while index < schedule.num_tiles():
        if ODD:
            mbarrier.wait(turns.index(1), turn & 1)
        else:
            mbarrier.wait(turns.index(0), turn & 1 ^ 1)  # the first does not wait
        first_step = (2 * turn + ODD) * steps
        acc = multiply(schedule, operands, acc, first_step)
        mbarrier.arrive(turns.index(1 - ODD))
        acc = warpgroup_mma_wait(0, deps=(acc, ))
        mbarrier.arrive(operands.ring.empty(first_step + steps - 1))
        slab = write_tile(output, schedule, schedule.tile(index), acc, slab)
        turn += 1
        index = operands.tickets.take(2 * turn + ODD)
