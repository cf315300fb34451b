"""Hopper: wgmma adds to registers of the warps that issue it, so the MMA partition also writes the slabs.

There are two ways. In the first, all warps share a tile, and the tensor cores rest while its slabs are written. In the
second, two partitions of four warps take tiles in turns, and one multiplies while the other writes.
"""

import itertools

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from .epilogue import Output, write_tile
from .parts import Parts, write_item
from .pipeline import Operands, slice_of
from .schedule import Schedule


@gluon.jit
def accumulator(schedule: Schedule, part):
    """For a line's pixels and a part of the tile's columns, whose weights are ``part`` [blocks, BLOCK_K, columns]."""
    K_OF_MMA: gl.constexpr = 256 // part.dtype.primitive_bitwidth
    COLUMNS: gl.constexpr = part.shape[2]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, COLUMNS, K_OF_MMA])
    return gl.zeros([schedule.LINE, COLUMNS], gl.float32, layout)


@gluon.jit
def accumulators(schedule: Schedule, operands: Operands):
    """Line by line, for each part of the columns; in strips for each unit, with narrow groups for each bundle of channels."""
    accs = ()
    if operands.strips.PIXELS > 1:
        for _ in gl.static_range(operands.strips.UNITS * (operands.strips.SLICES if operands.strips.PAIRED else 1)):
            accs = accs + (accumulator(schedule, operands.b[0]), )
    else:
        for _ in gl.static_range(operands.LINES):
            accs = accs + [accumulator(schedule, part) for part in operands.b]
    return accs


@gluon.jit
def begin(operands: Operands, accs, i, step, use_acc):
    """The MMAs of a step whose first line is turn i."""
    PARTS: gl.constexpr = len(operands.b)
    running = ()
    for j in gl.static_range(len(accs)):
        pixels, columns = operands.pixels(i, j // PARTS), operands.columns(i, step, j % PARTS)
        running = running + (warpgroup_mma(pixels, columns, accs[j], use_acc=use_acc, is_async=True), )
    return running


@gluon.jit
def wait(pending: gl.constexpr, accs):
    """Until only so many MMAs are running."""
    waited = warpgroup_mma_wait(pending, deps=accs)
    if len(accs) == 1:
        return (waited, )
    else:
        return waited


@gluon.jit
def release_step(operands: Operands, i, pred=True):
    for line in gl.static_range(operands.LINES):
        mbarrier.arrive(operands.ring.empty(gl.maximum(i + line, 0)), pred=pred)


@gluon.jit
def multiply(operands: Operands, accs, i, steps):
    """All steps of a tile or a part, from turn i of the operands' ring; the last MMAs may still be running.

    Nothing tells when a wgmma has read its operands, but those before have once only the newest are running.
    """
    for step in range(steps):
        for line in gl.static_range(operands.LINES):
            operands.ring.wait_full(i + line)
        accs = wait(len(accs), begin(operands, accs, i, step, step > 0))
        release_step(operands, i - operands.LINES, step > 0)
        i += operands.LINES
    return accs


@gluon.constexpr_function
def tap_of(strips, j, part, unit):
    """Which tap of a unit a slice of load j is; None if it is none."""
    first = j if strips.PAIRED.value else j * strips.SLICES.value + part - strips.SKIPPED.value
    tap = first - unit * strips.STEP.value
    return tap if 0 <= tap < strips.TAPS.value else None


@gluon.constexpr_function
def mmas_of(strips, j):
    """How many there are for load j of strips."""
    slices = itertools.product(range(strips.SLICES.value), range(strips.UNITS.value))
    return sum(tap_of(strips, j, part, unit) is not None for part, unit in slices)


@gluon.jit
def begin_unit(operands: Operands, accs, i, line, j: gl.constexpr, unit: gl.constexpr):
    """The MMAs of load j for a unit, one for each slice that is one of its taps. The accumulators are the unit's."""
    strips: gl.constexpr = operands.strips
    WIDTH: gl.constexpr = operands.x_desc.block_shape[1] // strips.SLICES
    running = ()
    acc = accs[0]
    for part in gl.static_range(strips.SLICES):
        if strips.PAIRED:
            acc = accs[part]
        if tap_of(strips, j, part, unit) is not None:
            a = slice_of(operands.pixels(i, j), part, WIDTH, 1)
            b = operands.columns(i, line, tap_of(strips, j, part, unit))
            b = slice_of(b, part if strips.PAIRED else 0, WIDTH, 0)
            acc = warpgroup_mma(a, b, acc, use_acc=(line > 0) | (tap_of(strips, j, part, unit) > 0), is_async=True)
        if strips.PAIRED:
            running = running + (acc, )
    return running if strips.PAIRED else (acc, )


@gluon.jit
def begin_load(operands: Operands, accs, i, line, j: gl.constexpr):
    """The MMAs of load j of strips."""
    ACCS: gl.constexpr = len(accs) // operands.strips.UNITS
    running = ()
    for unit in gl.static_range(operands.strips.UNITS):
        running = running + begin_unit(operands, accs[unit * ACCS:(unit + 1) * ACCS], i, line, j, unit)
    return running


@gluon.jit
def multiply_strips(schedule: Schedule, operands: Operands, accs, i):
    """As ``multiply``, by lines of the filter."""
    for line in range(schedule.T * schedule.R):
        for j in gl.static_range(operands.strips.LOADS):
            operands.ring.wait_full(i + j)
            accs = wait(mmas_of(operands.strips, j), begin_load(operands, accs, i, line, j))
            release_step(operands, i + j - 1, (line > 0) | (j > 0))
        i += operands.strips.LOADS
    return accs


@gluon.jit
def multiply_item(schedule: Schedule, operands: Operands, accs, i, steps):
    if operands.strips.PIXELS > 1:
        return multiply_strips(schedule, operands, accs, i)
    else:
        return multiply(operands, accs, i, steps)


@gluon.jit
def mma_partition(schedule: Schedule, operands: Operands, output: Output, parts: Parts):
    accs = accumulators(schedule, operands)
    i = 0
    slab = 0
    turn = 0
    operands.await_weights()
    index = operands.tickets.take(turn)
    while index < schedule.num_items():
        steps = schedule.num_steps(index)
        accs = wait(0, multiply_item(schedule, operands, accs, i, steps))
        i += steps * operands.LINES
        release_step(operands, i - operands.LINES)
        slab = write_item(output, parts, schedule, index, accs, slab)
        turn += 1
        index = operands.tickets.take(turn)


@gluon.jit
def mma_in_turns_partition(schedule: Schedule, operands: Operands, output: Output, turns, ODD: gl.constexpr):
    """Every second tile. ``turns`` has a barrier for each of the two: the other one arrives when it has issued its MMAs.

    Without that order one would wait for a turn of the operands' ring of which the round before is not over, and take the
    parity of an older one for it.
    """
    accs = accumulators(schedule, operands)
    steps = schedule.steps_of_tile()  # none is split
    of_tile = steps * operands.LINES
    turn = 0
    slab = 0
    operands.await_weights()
    index = operands.tickets.take(ODD)
    while index < schedule.num_items():
        if ODD:
            mbarrier.wait(turns.index(1), turn & 1)
        else:
            mbarrier.wait(turns.index(0), turn & 1 ^ 1)  # the first does not wait
        i = (2 * turn + ODD) * of_tile
        accs = multiply_item(schedule, operands, accs, i, steps)
        mbarrier.arrive(turns.index(1 - ODD))
        accs = wait(0, accs)
        release_step(operands, i + of_tile - operands.LINES)
        slab = write_tile(output, schedule, schedule.tile(index), accs, slab)
        turn += 1
        index = operands.tickets.take(2 * turn + ODD)
