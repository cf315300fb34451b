"""The forward convolution: persistent, in partitions for loads, MMAs and stores."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..heuristics import MOST_COLUMNS
from . import mma_sm90, mma_sm100
from .epilogue import Output, store_in_turns_partition, store_partition
from .parts import Parts
from .pipeline import Operands, Ring, Strips, Tickets, load_partition
from .schedule import Schedule

COUNTERS = gl.constexpr(MOST_COLUMNS)  # behind them are the flag of sums that are not finite, and how many have read it
SIZES = ("rows K C groups Z P Q T R S stride_d stride_h stride_w before_d before_h before_w dilation_d dilation_h "
         "dilation_w parts").split()


@gluon.jit
def in_turns(schedule: Schedule, operands: Operands, even: Output, odd: Output, RANK: gl.constexpr):
    turns = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(turns.index(i), count=1)
    gl.warp_specialize([(mma_sm90.mma_in_turns_partition, (schedule, operands, even, turns, gl.constexpr(0))),
                        (mma_sm90.mma_in_turns_partition, (schedule, operands, odd, turns, gl.constexpr(1))),
                        (load_partition, (schedule, operands, RANK, gl.constexpr(2))),
                        (store_in_turns_partition, (schedule, operands.tickets, even, odd))], [4, 1, 1], [240, 24, 24])


@gluon.jit(do_not_specialize=SIZES)
def fprop_kernel(x_desc, w_desc, y_desc, residual_desc, bias, counter, sums, y, residual, rows, K, C, groups, Z, P, Q,
                 T, R, S, stride_d, stride_h, stride_w, before_d, before_h, before_w, dilation_d, dilation_h,
                 dilation_w, parts, RANK: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
                 STRIP: gl.constexpr, TAPS: gl.constexpr, STEP: gl.constexpr, TOGETHER: gl.constexpr,
                 SKIPPED: gl.constexpr, GROUP_M: gl.constexpr, SPLIT: gl.constexpr, HOPPER: gl.constexpr,
                 IN_TURNS: gl.constexpr, STAGES: gl.constexpr, RESIDENT: gl.constexpr, PASSING: gl.constexpr,
                 DRAWN: gl.constexpr, SLABS: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
                 ACTIVATION: gl.constexpr, FLAGGED: gl.constexpr):
    flag = counter + COUNTERS
    schedule = Schedule(rows, K, C, groups, Z, P, Q, T, R, S, stride_d, stride_h, stride_w, before_d, before_h,
                        before_w, dilation_d, dilation_h, dilation_w, parts, BLOCK_M, BLOCK_N, x_desc.block_shape[1],
                        GROUP_M, RESIDENT > 0, x_desc.block_shape[0], SPLIT)
    READERS: gl.constexpr = 2 if HOPPER else 3
    strips = Strips.create(STRIP, TAPS, STEP, TOGETHER, SKIPPED, x_desc.nbytes_per_cta // x_desc.block_shape[0])
    WEIGHT_ROWS: gl.constexpr = BLOCK_N if STRIP == 1 else w_desc.block_shape[1]
    operands = Operands.create(x_desc, w_desc, Tickets.create(counter, READERS, DRAWN), WEIGHT_ROWS,
                               BLOCK_M // x_desc.block_shape[0], strips, STAGES, RESIDENT, PASSING)
    gdc_wait()  # up to here this ran beside the kernel before it
    gdc_launch_dependents()
    # Not a ring of its own where slabs are not used: a barrier that no partition takes would share its memory.
    ring = operands.ring if SPLIT else Ring.create(SLABS)
    output = Output.create(y_desc, residual_desc, bias, flag, SLABS, HAS_BIAS, HAS_RESIDUAL, ACTIVATION, FLAGGED, STRIP,
                           BLOCK_M, BLOCK_N, ring)
    STORE_REGISTERS: gl.constexpr = 24 if gl.num_warps() == 8 else 40  # with 4 warps ptxas spills some of 24
    of_parts = Parts(sums, counter, y, residual)
    if IN_TURNS:
        odd = Output.create(y_desc, residual_desc, bias, flag, SLABS, HAS_BIAS, HAS_RESIDUAL, ACTIVATION, FLAGGED,
                            STRIP, BLOCK_M, BLOCK_N, Ring.create(SLABS))
        in_turns(schedule, operands, output, odd, RANK)
    elif HOPPER:
        gl.warp_specialize([(mma_sm90.mma_partition, (schedule, operands, output, of_parts)),
                            (load_partition, (schedule, operands, RANK, gl.constexpr(1))),
                            (store_partition, (schedule, operands.tickets, output))], [1, 1], [24, STORE_REGISTERS])
    else:
        accumulators = mma_sm100.Accumulators.create(schedule.BLOCK_M, schedule.BLOCK_N)
        gl.warp_specialize([(mma_sm100.epilogue_partition, (schedule, operands, output, of_parts, accumulators)),
                            (mma_sm100.mma_partition, (schedule, operands, accumulators)),
                            (load_partition, (schedule, operands, RANK, gl.constexpr(1))),
                            (store_partition, (schedule, operands.tickets, output))], [1, 1, 1],
                           [24, 24, STORE_REGISTERS])
