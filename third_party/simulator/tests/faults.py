"""Kernels with one planted fault each, chosen by the constexpr ``FAULT``; without one they are right."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

M: gl.constexpr = gl.constexpr(64)
N: gl.constexpr = gl.constexpr(32)
K: gl.constexpr = gl.constexpr(32)


@gluon.jit
def allocate_bars(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=COUNT)
    for i in gl.static_range(COUNT):
        mbarrier.init(bars.index(i), count=ARRIVALS)
    return bars


# A persistent, warp-specialized matrix product: load, MMA and store partitions over rings of operands and results.


@gluon.jit
def load_partition(a_desc, b_desc, a, b, full, empty, tiles, steps, SLOTS: gl.constexpr, FAULT: gl.constexpr):
    EXTRA: gl.constexpr = 1 if FAULT == "ring one buffer short" else 0
    i = 0
    for tile in range(tiles):
        for step in range(steps):
            slot = i % (SLOTS + EXTRA)
            phase = i // (SLOTS + EXTRA) & 1
            if FAULT == "producer does not wait":
                pass
            elif FAULT == "producer waits for the wrong phase":
                mbarrier.wait(empty.index(slot), phase)
            else:
                mbarrier.wait(empty.index(slot), phase ^ 1)
            bar = full.index(slot)
            if FAULT == "expects one operand less":
                mbarrier.expect(bar, a_desc.nbytes_per_cta)
            elif FAULT == "expects one operand more":
                mbarrier.expect(bar, a_desc.nbytes_per_cta + 2 * b_desc.nbytes_per_cta)
            else:
                mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
            tma.async_load(a_desc, [tile * M, step * K], bar, a.index(slot))
            if FAULT == "forgets a load":
                pass
            else:
                tma.async_load(b_desc, [0, step * K], bar, b.index(slot))
            i += 1


@gluon.jit
def store_partition(y_desc, y, y_full, y_empty, tiles, SLABS: gl.constexpr, FAULT: gl.constexpr):
    for tile in range(tiles):
        slot = tile % SLABS
        phase = tile // SLABS & 1
        if FAULT == "store does not wait":
            pass
        else:
            mbarrier.wait(y_full.index(slot), phase)
        tma.async_store(y_desc, [tile * M, 0], y.index(slot))
        if FAULT == "store buffer freed early":
            tma.store_wait(1)
        elif FAULT == "store left in flight":
            pass
        else:
            tma.store_wait(0)
        if FAULT == "store buffer never freed":
            pass
        else:
            mbarrier.arrive(y_empty.index(slot))
    if FAULT == "store buffer freed early":
        tma.store_wait(0)


@gluon.jit
def hopper_mma_partition(a, b, y, full, empty, y_full, y_empty, tiles, steps, SLOTS: gl.constexpr, SLABS: gl.constexpr,
                         FAULT: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    acc = gl.zeros([M, N], gl.float32, layout)
    i = 0
    for tile in range(tiles):
        for step in range(steps):
            slot = i % SLOTS
            phase = i // SLOTS & 1
            if FAULT == "consumer does not wait":
                pass
            elif FAULT == "consumer waits for the wrong phase":
                mbarrier.wait(full.index(slot), phase ^ 1)
            elif FAULT == "consumer waits twice":
                mbarrier.wait(full.index(slot), phase)
                mbarrier.wait(full.index(slot), phase)
            else:
                mbarrier.wait(full.index(slot), phase)
            acc = warpgroup_mma(a.index(slot), b.index(slot).permute((1, 0)), acc, use_acc=step > 0, is_async=True)
            if FAULT == "operands freed while the MMA reads them":
                acc = warpgroup_mma_wait(1, deps=(acc, ))
            else:
                acc = warpgroup_mma_wait(0, deps=(acc, ))
            if FAULT == "operands never freed":
                pass
            elif FAULT == "operands freed twice":
                mbarrier.arrive(empty.index(slot), count=2)
            else:
                mbarrier.arrive(empty.index(slot))
            i += 1
        slot = tile % SLABS
        phase = tile // SLABS & 1
        if FAULT == "operands freed while the MMA reads them":
            acc = warpgroup_mma_wait(0, deps=(acc, ))
        if FAULT == "result does not wait for a free buffer":
            pass
        else:
            mbarrier.wait(y_empty.index(slot), phase ^ 1)
        y.index(slot).store(acc.to(y.dtype))
        if FAULT == "no fence before the store":
            pass
        else:
            fence_async_shared()
        if FAULT == "result never announced":
            pass
        else:
            mbarrier.arrive(y_full.index(slot))


@gluon.jit
def hopper_gemm(a_desc, b_desc, y_desc, tiles, steps, SLOTS: gl.constexpr, SLABS: gl.constexpr, FAULT: gl.constexpr):
    a = gl.allocate_shared_memory(a_desc.dtype, [SLOTS] + a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [SLOTS] + b_desc.block_shape, b_desc.layout)
    y = gl.allocate_shared_memory(y_desc.dtype, [SLABS] + y_desc.block_shape, y_desc.layout)
    full = allocate_bars(SLOTS, 1)
    empty = allocate_bars(SLOTS, 2 if FAULT == "a barrier expects one arrival too many" else 1)
    y_full = allocate_bars(SLABS, 1)
    y_empty = allocate_bars(SLABS, 1)
    gl.warp_specialize([(hopper_mma_partition,
                         (a, b, y, full, empty, y_full, y_empty, tiles, steps, SLOTS, SLABS, FAULT)),
                        (load_partition, (a_desc, b_desc, a, b, full, empty, tiles, steps, SLOTS, FAULT)),
                        (store_partition, (y_desc, y, y_full, y_empty, tiles, SLABS, FAULT))], [1, 1], [24, 24])


@gluon.jit
def blackwell_mma_partition(a, b, memory, full, empty, acc_full, acc_empty, tiles, steps, SLOTS: gl.constexpr,
                            FAULT: gl.constexpr):
    i = 0
    for tile in range(tiles):
        if FAULT == "accumulator overwritten early":
            pass
        else:
            mbarrier.wait(acc_empty.index(tile % 2), tile // 2 & 1 ^ 1)
        acc = memory.index(tile % 2)
        for step in range(steps):
            slot = i % SLOTS
            mbarrier.wait(full.index(slot), i // SLOTS & 1)
            use_acc = step >= 0 if FAULT == "accumulator never initialized" else step > 0
            if FAULT == "operands freed at issue":
                tcgen05_mma(a.index(slot), b.index(slot).permute((1, 0)), acc, use_acc=use_acc, mbarriers=[])
                mbarrier.arrive(empty.index(slot))
            else:
                tcgen05_mma(a.index(slot),
                            b.index(slot).permute((1, 0)), acc, use_acc=use_acc, mbarriers=[empty.index(slot)])
            i += 1
        if FAULT == "no commit":
            pass
        elif FAULT == "arrives instead of committing":
            mbarrier.arrive(acc_full.index(tile % 2))
        else:
            tcgen05_commit(acc_full.index(tile % 2))


@gluon.jit
def blackwell_epilogue_partition(memory, y, acc_full, acc_empty, y_full, y_empty, tiles, SLABS: gl.constexpr,
                                 FAULT: gl.constexpr):
    for tile in range(tiles):
        if FAULT == "accumulator read early":
            pass
        else:
            mbarrier.wait(acc_full.index(tile % 2), tile // 2 & 1)
        if FAULT == "accumulator freed early":
            mbarrier.arrive(acc_empty.index(tile % 2))
        value = memory.index(tile % 2).load()
        slot = tile % SLABS
        mbarrier.wait(y_empty.index(slot), tile // SLABS & 1 ^ 1)
        y.index(slot).store(value.to(y.dtype))
        fence_async_shared()
        mbarrier.arrive(y_full.index(slot))
        if FAULT != "accumulator freed early":
            mbarrier.arrive(acc_empty.index(tile % 2))


@gluon.jit
def blackwell_gemm(a_desc, b_desc, y_desc, tiles, steps, SLOTS: gl.constexpr, SLABS: gl.constexpr, FAULT: gl.constexpr):
    a = gl.allocate_shared_memory(a_desc.dtype, [SLOTS] + a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [SLOTS] + b_desc.block_shape, b_desc.layout)
    y = gl.allocate_shared_memory(y_desc.dtype, [SLABS] + y_desc.block_shape, y_desc.layout)
    full, empty = allocate_bars(SLOTS, 1), allocate_bars(SLOTS, 1)
    y_full, y_empty = allocate_bars(SLABS, 1), allocate_bars(SLABS, 1)
    acc_full, acc_empty = allocate_bars(2, 1), allocate_bars(2, 1)
    memory_layout: gl.constexpr = TensorMemoryLayout((M, N), col_stride=1)
    memory = allocate_tensor_memory(gl.float32, [2, M, N], memory_layout)
    gl.warp_specialize([(blackwell_epilogue_partition,
                         (memory, y, acc_full, acc_empty, y_full, y_empty, tiles, SLABS, FAULT)),
                        (blackwell_mma_partition,
                         (a, b, memory, full, empty, acc_full, acc_empty, tiles, steps, SLOTS, FAULT)),
                        (load_partition, (a_desc, b_desc, a, b, full, empty, tiles, steps, SLOTS, FAULT)),
                        (store_partition, (y_desc, y, y_full, y_empty, tiles, SLABS, FAULT))], [1, 1, 1], [24, 24, 24])


# One thing each, in one partition.


@gluon.jit
def stores_kernel(y_desc, FAULT: gl.constexpr):
    """Store ones from two slots; then zeros from the first slot, to the same place."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    block = gl.allocate_shared_memory(y_desc.dtype, [2] + y_desc.block_shape, y_desc.layout)
    for i in range(2):
        block.index(i).store(gl.full(y_desc.block_shape, 1, y_desc.dtype, layout))
        fence_async_shared()
        tma.async_store(y_desc, [i * y_desc.block_shape[0], 0], block.index(i))
    if FAULT == "lets three stores go on":  # there are two
        tma.store_wait(3)
    else:
        tma.store_wait(1)
    block.index(0).store(gl.zeros(y_desc.block_shape, y_desc.dtype, layout))
    fence_async_shared()
    tma.async_store(y_desc, [0, 0], block.index(0))
    tma.store_wait(0)


@gluon.jit
def copy_kernel(x_desc, y_desc, FAULT: gl.constexpr):
    """Copy a block through shared memory, twice, adding 1 on the way."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])
    block = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    if FAULT != "barrier not initialized":
        mbarrier.init(bar, count=1)
    if FAULT == "barrier initialized twice":
        mbarrier.init(bar, count=1)
    for i in range(2):
        mbarrier.expect(bar, x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [i * x_desc.block_shape[0], 0], bar, block)
        if FAULT == "invalidated in flight":
            mbarrier.invalidate(bar)
        if FAULT == "load left in flight":
            if i == 0:
                mbarrier.wait(bar, i & 1)
        elif FAULT == "load never waited for":
            pass
        else:
            mbarrier.wait(bar, i & 1)
        if FAULT == "load left in flight":
            if i == 0:
                block.store(block.load(layout) + 1)
        else:
            block.store(block.load(layout) + 1)
        fence_async_shared()
        if FAULT != "load left in flight":
            tma.async_store(y_desc, [i * x_desc.block_shape[0], 0], block)
            if FAULT == "loads over a store in flight":
                tma.store_wait(1)
            else:
                tma.store_wait(0)
    if FAULT == "loads over a store in flight":
        tma.store_wait(0)
    if FAULT == "waits after invalidation":
        mbarrier.invalidate(bar)
        mbarrier.wait(bar, 1)


@gluon.jit
def exchange_kernel(x, y, FAULT: gl.constexpr):
    """One partition writes shared memory, the other reads it."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(exchange_writer, (x, buffer, bar, layout, FAULT)),
                        (exchange_reader, (y, buffer, bar, layout, FAULT))], [4], [24])


@gluon.jit
def exchange_writer(x, buffer, bar, layout: gl.constexpr, FAULT: gl.constexpr):
    value = gl.load(x + gl.arange(0, 128, layout))
    if FAULT == "announced before it is written":
        mbarrier.arrive(bar)
    buffer.store(value)
    if FAULT == "no arrival":
        pass
    elif FAULT == "two arrivals for one":
        mbarrier.arrive(bar)
        mbarrier.arrive(bar, count=2)
    elif FAULT != "announced before it is written":
        mbarrier.arrive(bar)


@gluon.jit
def exchange_reader(y, buffer, bar, layout: gl.constexpr, FAULT: gl.constexpr):
    if FAULT != "reader does not wait":
        mbarrier.wait(bar, 0)
    gl.store(y + gl.arange(0, 128, layout), buffer.load(layout))


@gluon.jit
def global_kernel(x, y, n, FAULT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    mask = i < n
    if FAULT == "reads past the end":
        value = gl.load(x + i)
    elif FAULT == "reads before the start":
        value = gl.load(x + i - 1, mask)
    else:
        value = gl.load(x + i, mask)
    if FAULT == "writes past the end":
        gl.store(y + i + 1, value, mask)
    else:
        gl.store(y + i, value, mask)


@gluon.jit
def early_kernel(x_desc, y, FAULT: gl.constexpr):
    """Launched with launch_pdl: a partition loads by TMA after the wait of the one that started it."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    if FAULT == "stores before it waits for the kernel before":
        gl.store(y, 0.0)
    if FAULT == "never waits for the kernel before":
        pass
    else:
        gdc_wait()
    gdc_launch_dependents()
    block = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = allocate_bars(1, 1).index(0)
    gl.warp_specialize([(early_store, (block, bar, y, layout)), (early_load, (x_desc, block, bar))], [1], [24])


@gluon.jit
def early_load(x_desc, block, bar):
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    tma.async_load(x_desc, [0, 0], bar, block)


@gluon.jit
def early_store(block, bar, y, layout: gl.constexpr):
    mbarrier.wait(bar, 0)
    rows = gl.arange(0, block.shape[0], gl.SliceLayout(1, layout))[:, None]
    gl.store(y + rows * block.shape[1] + gl.arange(0, block.shape[1], gl.SliceLayout(0, layout))[None, :],
             block.load(layout))


@gluon.jit
def unused_barrier_kernel(y, FAULT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if FAULT == "a barrier that nothing uses":
        pass
    else:
        mbarrier.invalidate(bar)
    buffer = gl.allocate_shared_memory(gl.float32, [128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    buffer.store(gl.full([128], 1.0, gl.float32, layout))
    gl.store(y + gl.arange(0, 128, layout), buffer.load(layout))


@gluon.jit
def uninitialized_kernel(y, FAULT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    buffer = gl.allocate_shared_memory(gl.float32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    buffer.index(0).store(gl.full([128], 1.0, gl.float32, layout))
    if FAULT == "reads the other slot":
        value = buffer.index(1).load(layout)
    else:
        value = buffer.index(0).load(layout)
    gl.store(y + gl.arange(0, 128, layout), value)


@gluon.jit
def store_index(x, i: gl.constexpr):
    gl.store(x + i, i)


@gluon.jit
def registers_kernel(x, FAULT: gl.constexpr):
    COUNT: gl.constexpr = 168 if FAULT == "registers exceed the pool" else 64
    gl.warp_specialize([(store_index, (x, gl.constexpr(0))), (store_index, (x, gl.constexpr(1))),
                        (store_index, (x, gl.constexpr(2))), (store_index, (x, gl.constexpr(3)))], [4, 4, 4],
                       [COUNT, COUNT, COUNT])


@gluon.jit
def early_accumulator_kernel(a_desc, b_desc, y_desc, FAULT: gl.constexpr):
    """A product of one step, with operands that threads wrote."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    y = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_shape, y_desc.layout)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [0, 0], bar, a)
    tma.async_load(b_desc, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    acc = gl.zeros([M, N], gl.float32, layout)
    acc = warpgroup_mma(a, b.permute((1, 0)), acc, use_acc=False, is_async=True)
    if FAULT == "accumulator used before it is complete":
        acc = warpgroup_mma_wait(1, deps=(acc, ))
    elif FAULT == "operand overwritten while the MMA reads it":
        b.store(gl.zeros([N, K], b.dtype, gl.BlockedLayout([1, 8], [8, 4], [gl.num_warps(), 1], [1, 0])))
        acc = warpgroup_mma_wait(0, deps=(acc, ))
    else:
        acc = warpgroup_mma_wait(0, deps=(acc, ))
    y.store(acc.to(y.dtype))
    fence_async_shared()
    tma.async_store(y_desc, [0, 0], y)
    tma.store_wait(0)
