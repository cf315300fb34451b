"""Each planted fault is diagnosed as what it is, with its line; the same kernels without one are clean and right."""

import faults
import pytest
import torch
import triton_simulator as simulator
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton_simulator import BarrierMisuse, Deadlock, MissingFence, OutOfBounds, Race, SimulationError, Uninitialized

TILES, STEPS = 5, 3
M, N, K = faults.M.value, faults.N.value, faults.K.value


def descriptor(tensor, block):
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16))


def run_gemm(kernel, fault):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn((rows, STEPS * K), generator=generator).bfloat16() for rows in (TILES * M, N))
    y = torch.full((TILES * M, N), float("nan"), dtype=torch.bfloat16)
    kernel[(1, )](descriptor(a, [M, K]), descriptor(b, [N, K]), descriptor(y, [M, N]), TILES, STEPS, 2, 2, fault,
                  num_warps=4)
    expected = a.double() @ b.double().T
    assert (y - expected).norm() <= 2**-8 * expected.norm()


def run_copy(fault):
    x = torch.arange(2 * 16 * 64).reshape(32, 64).remainder(128).bfloat16()
    y = torch.full_like(x, float("nan"))
    faults.copy_kernel[(1, )](descriptor(x, [16, 64]), descriptor(y, [16, 64]), fault, num_warps=4)
    assert torch.equal(y, x + 1)


def run_stores(fault):
    y = torch.full((32, 64), float("nan"), dtype=torch.bfloat16)
    faults.stores_kernel[(1, )](descriptor(y, [16, 64]), fault, num_warps=4)
    assert (y[:16] == 0).all() and (y[16:] == 1).all()


def run_exchange(fault):
    x, y = torch.randn(128), torch.full((128, ), float("nan"))
    faults.exchange_kernel[(1, )](x, y, fault, num_warps=4)
    assert torch.equal(x, y)


def run_global(fault):
    n = 1000
    x, y = torch.randn(n), torch.full((n, ), float("nan"))
    faults.global_kernel[(8, )](x, y, n, fault, num_warps=4)
    assert torch.equal(x, y)


def run_early(fault):
    x, y = torch.randn(16, 64).bfloat16(), torch.full((16, 64), float("nan"), dtype=torch.bfloat16)
    faults.early_kernel[(1, )](descriptor(x, [16, 64]), y, fault, num_warps=4, launch_pdl=True)
    assert torch.equal(x, y)


def run_unused_barrier(fault):
    y = torch.full((128, ), float("nan"))
    faults.unused_barrier_kernel[(1, )](y, fault, num_warps=4)
    assert (y == 1).all()


def run_uninitialized(fault):
    y = torch.full((128, ), float("nan"))
    faults.uninitialized_kernel[(1, )](y, fault, num_warps=4)
    assert (y == 1).all()


def run_step(fault):
    a, b, y = torch.randn(M, K).bfloat16(), torch.randn(N, K).bfloat16(), torch.zeros(M, N).bfloat16()
    faults.early_accumulator_kernel[(1, )](descriptor(a, [M, K]), descriptor(b, [N, K]), descriptor(y, [M, N]), fault,
                                           num_warps=4)
    expected = a.double() @ b.double().T
    assert (y - expected).norm() <= 2**-8 * expected.norm()


def run_registers(fault):
    x = torch.full((4, ), -1, dtype=torch.int32)
    faults.registers_kernel[(1, )](x, fault, num_warps=4)
    assert x.tolist() == [0, 1, 2, 3]


def hopper(fault):
    run_gemm(faults.hopper_gemm, fault)


def blackwell(fault):
    run_gemm(faults.blackwell_gemm, fault)


UNORDERED = (Race, Uninitialized)  # by which the reader comes first, it meets the write or nothing at all

# The kernel, the architecture, the fault, what it must be diagnosed as, and words of the message.
FAULTS = [
    (hopper, "sm_90", "producer does not wait", (Race, BarrierMisuse), "overwrite|over-arrived"),
    (hopper, "sm_90", "producer waits for the wrong phase", Deadlock, "phase parity 0"),
    (hopper, "sm_90", "expects one operand less", UNORDERED, "warp_group_dot"),
    (hopper, "sm_90", "expects one operand more", Deadlock, "2048 bytes missing"),
    (hopper, "sm_90", "forgets a load", Deadlock, "2048 bytes missing"),
    (hopper, "sm_90", "ring one buffer short", SimulationError, "index 2 of .*, which has 2 slots"),
    (hopper, "sm_90", "store does not wait", UNORDERED + (MissingFence, ), "async_tma_copy_local_to_global"),
    (hopper, "sm_90", "store buffer freed early", Race, "overwrite while a read is not known to be over"),
    (hopper, "sm_90", "store left in flight", (Race, SimulationError), "async_tma_copy_local_to_global"),
    (hopper, "sm_90", "store buffer never freed", Deadlock, "wait_barrier"),
    (hopper, "sm_90", "consumer does not wait", UNORDERED, "warp_group_dot"),
    (hopper, "sm_90", "consumer waits for the wrong phase", UNORDERED, "warp_group_dot"),
    (hopper, "sm_90", "consumer waits twice", BarrierMisuse, "orders nothing"),
    (hopper, "sm_90", "operands freed while the MMA reads them", Race, "warp_group_dot"),
    (hopper, "sm_90", "operands never freed", Deadlock, "wait_barrier"),
    (hopper, "sm_90", "operands freed twice", BarrierMisuse, "over-arrived"),
    (hopper, "sm_90", "result does not wait for a free buffer", Race, "overwrite"),
    (hopper, "sm_90", "no fence before the store", MissingFence, "local_store"),
    (hopper, "sm_90", "result never announced", Deadlock, "wait_barrier"),
    (hopper, "sm_90", "a barrier expects one arrival too many", Deadlock, "1 of 2 arrivals missing"),
    (run_registers, "sm_90", "registers exceed the pool", SimulationError, "registers exceed the pool"),
    (blackwell, "sm_100", "accumulator overwritten early", Race, "tc_gen5_mma"),
    (blackwell, "sm_100", "accumulator never initialized", Uninitialized, "tc_gen5_mma"),
    (blackwell, "sm_100", "operands freed at issue", Race, "tc_gen5_mma"),
    (blackwell, "sm_100", "no commit", Deadlock, "wait_barrier"),
    (blackwell, "sm_100", "arrives instead of committing", Race, "tmem_load"),
    (blackwell, "sm_100", "accumulator read early", UNORDERED, "tmem_load"),
    (blackwell, "sm_100", "accumulator freed early", Race, "tc_gen5_mma"),
    (blackwell, "sm_103", "producer does not wait", (Race, BarrierMisuse), "overwrite|over-arrived"),
    (run_copy, "sm_90", "barrier not initialized", BarrierMisuse, "was not initialized"),
    (run_copy, "sm_90", "barrier initialized twice", BarrierMisuse, "initialized already"),
    (run_copy, "sm_90", "invalidated in flight", BarrierMisuse, "invalidat"),
    (run_copy, "sm_90", "load left in flight", SimulationError,
     "without a wait for ttng.async_tma_copy_global_to_local"),
    (run_copy, "sm_90", "load never waited for", Race, "read before a write has landed"),
    (run_copy, "sm_90", "loads over a store in flight", Race, "overwrite while a read is not known to be over"),
    (run_stores, "sm_90", "lets three stores go on", Race, "overwrite while a read is not known to be over"),
    (run_copy, "sm_90", "waits after invalidation", BarrierMisuse, "was invalidated"),
    (run_exchange, "sm_90", "no arrival", Deadlock, "partition0 waits"),
    (run_exchange, "sm_90", "announced before it is written", UNORDERED, "local_load"),
    (run_exchange, "sm_90", "two arrivals for one", BarrierMisuse, "over-arrived"),
    (run_exchange, "sm_90", "reader does not wait", UNORDERED, "local_load"),
    (run_global, "sm_90", "reads past the end", OutOfBounds, "a read of global memory.* 96 bytes past the end"),
    (run_global, "sm_90", "reads before the start", OutOfBounds, "4 bytes before the start"),
    (run_global, "sm_90", "writes past the end", OutOfBounds, "a write of global memory.* 4 bytes past the end"),
    (run_early, "sm_90", "stores before it waits for the kernel before", Race, "tt.store .*used before a gdc_wait"),
    (run_early, "sm_90", "never waits for the kernel before", Race,
     "async_tma_copy_global_to_local.*before a gdc_wait"),
    (run_unused_barrier, "sm_90", "a barrier that nothing uses", BarrierMisuse, "lies over barrier .*not invalidated"),
    (run_uninitialized, "sm_90", "reads the other slot", Uninitialized, "nothing has written"),
    (run_step, "sm_90", "accumulator used before it is complete", SimulationError, "no wait has shown to be complete"),
    (run_step, "sm_90", "operand overwritten while the MMA reads it", Race, "overwrite while a read"),
]


@pytest.mark.parametrize("run, arch, fault, kind, words", FAULTS)
def test_a_fault_is_found_under_any_schedule(run, arch, fault, kind, words):
    for seed in range(3):
        with simulator.activate(arch, seed=seed):
            with pytest.raises(kind, match=words) as raised:
                run(fault)
        assert "faults.py:" in str(raised.value), "no source line"


@pytest.mark.parametrize("run, arch", dict.fromkeys((run, arch) for run, arch, *_ in FAULTS))
def test_without_a_fault_all_is_clean_under_50_schedules(run, arch):
    with simulator.activate(arch, seed=100, schedules=50):
        run("")
