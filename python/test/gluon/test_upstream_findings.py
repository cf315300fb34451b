"""Today's behavior of Triton where docs/gluon/upstream-findings.md says that it should change."""

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def compiled(kernel, signature, arch=90):
    return triton.compile(GluonASTSource(kernel, signature), target=GPUTarget("cuda", arch, 32)).asm


@gluon.jit
def alias_kernel(out, n):
    now = gl.to_tensor(0)
    before = now
    for _ in range(n):
        before = now
        now = now + 1
    gl.store(out, before)


@gluon.jit
def own_value_kernel(out, n):
    now = gl.to_tensor(0)
    before = gl.to_tensor(0)
    for _ in range(n):
        before = now
        now = now + 1
    gl.store(out, before)


@pytest.mark.parametrize("kernel, carried", [(alias_kernel, False), (own_value_kernel, True)])
def test_a_loop_loses_an_alias(kernel, carried):
    ttgir = compiled(kernel, {"out": "*i32", "n": "i32"})["ttgir"]
    assert ("scf.for" in ttgir) == carried


@gluon.jit
def mma_kernel(a_desc, b_desc, y_desc):
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    y = gl.allocate_shared_memory(y_desc.dtype, y_desc.block_shape, y_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [0, 0], bar, a)
    tma.async_load(b_desc, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    acc = blackwell.allocate_tensor_memory(gl.float32, [128, 64], blackwell.TensorMemoryLayout((128, 64), col_stride=1))
    blackwell.tcgen05_mma(a, b.permute((1, 0)), acc, use_acc=False)
    y.store(acc.load().to(y_desc.dtype))
    fence_async_shared()
    tma.async_store(y_desc, [0, 0], y)
    tma.store_wait(0)


def test_an_mma_without_barriers_does_not_wait():

    def desc(rows):
        layout = gl.NVMMASharedLayout.get_default_for([rows, 64], gl.bfloat16)
        tensor = torch.empty((rows, 64), dtype=torch.bfloat16)
        return TensorDescriptor.from_tensor(tensor, [rows, 64], layout).__mangle__()

    ptx = compiled(mma_kernel, {"a_desc": desc(128), "b_desc": desc(64), "y_desc": desc(128)}, arch=100)["ptx"]
    assert "tcgen05.mma" in ptx and "tcgen05.ld" in ptx
    assert "tcgen05.commit" not in ptx


@gluon.jit
def store_index(x, i: gl.constexpr):
    gl.store(x + i, i)


@gluon.jit
def registers_kernel(x, COUNT: gl.constexpr):
    gl.warp_specialize([(store_index, (x, gl.constexpr(0))), (store_index, (x, gl.constexpr(1))),
                        (store_index, (x, gl.constexpr(2))), (store_index, (x, gl.constexpr(3)))], [4, 4, 4],
                       [COUNT, COUNT, COUNT])


@pytest.mark.parametrize("count, granted", [(64, True), (168, False)])
def test_register_requests_that_do_not_fit_are_dropped(count, granted):
    signature = {"x": "*i32", "COUNT": "constexpr"}
    source = GluonASTSource(registers_kernel, signature, {"COUNT": count})
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert ("setmaxnreg" in ptx) == granted
