"""Hopper: wgmma adds to registers of the warps that issue it, so the MMA partition also writes the slabs."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from .epilogue import Output, take_columns, write_slab
from .pipeline import Operands
from .schedule import Schedule


@gluon.jit
def mma_partition(schedule: Schedule, operands: Operands, output: Output):
    K_OF_MMA: gl.constexpr = 256 // operands.x_desc.dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, schedule.BLOCK_N, K_OF_MMA])
    acc = gl.zeros([schedule.BLOCK_M, schedule.BLOCK_N], gl.float32, layout)
    i = 0
    slab = 0
    for index in range(gl.program_id(0), schedule.num_tiles(), gl.num_programs(0)):
        for step in range(schedule.num_steps()):
            operands.ring.wait_full(i)
            acc = warpgroup_mma(operands.left(i), operands.right(i), acc, use_acc=step > 0, is_async=True)
            # Nothing tells when a wgmma has read its operands, but the one before has once only the newest is running.
            acc = warpgroup_mma_wait(1, deps=(acc, ))
            mbarrier.arrive(operands.ring.empty(gl.maximum(i - 1, 0)), pred=step > 0)
            i += 1
        acc = warpgroup_mma_wait(0, deps=(acc, ))
        mbarrier.arrive(operands.ring.empty(i - 1))
        tile = schedule.tile(index)
        for j in gl.static_range(schedule.BLOCK_N // output.WIDTH):
            write_slab(output, schedule, tile, take_columns(acc, j, output.WIDTH), j, slab)
            slab += 1
