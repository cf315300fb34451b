"""Kernels in Triton's own language: what the compiler pipelines and specializes by itself must run clean as well."""

import pytest
import torch
import triton
import triton.language as tl
import triton_simulator as simulator
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, i < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * n + i, value / tl.sum(value, 0), i < n)


@triton.jit
def pointer_gemm_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + m[:, None] * K + k[None, :], (m < M)[:, None] & (k < K)[None, :], other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], (k < K)[:, None] & (n < N)[None, :], other=0.0)
        acc += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), (m < M)[:, None] & (n < N)[None, :])


@triton.jit
def descriptor_gemm_kernel(a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                           SPECIALIZE: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=SPECIALIZE):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(tl.float16))


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_softmax(arch):
    x, y = torch.randn(5, 300), torch.full((5, 300), float("nan"))
    with simulator.activate(arch, schedules=3):
        softmax_kernel[(5, )](x, y, 300, 512)
    assert torch.allclose(y, x.double().softmax(1).float(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_pointer_gemm(arch, stages):
    a, b, c = torch.randn(100, 80).half(), torch.randn(80, 72).half(), torch.full((100, 72), float("nan")).half()
    with simulator.activate(arch, schedules=3):
        pointer_gemm_kernel[(2, 2)](a, b, c, 100, 72, 80, 64, 64, 32, num_stages=stages)
    expected = a.double() @ b.double()
    assert (c - expected).norm() <= 2**-11 * expected.norm()


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("specialize", [False, True])
def test_descriptor_gemm(arch, stages, specialize):
    a, b, c = torch.randn(128, 192).half(), torch.randn(128, 192).half(), torch.full((128, 128), float("nan")).half()
    descriptors = [TensorDescriptor.from_tensor(t, s) for t, s in ((a, [128, 64]), (b, [128, 64]), (c, [128, 128]))]
    with simulator.activate(arch, schedules=3):
        descriptor_gemm_kernel[(1, 1)](*descriptors, 192, 128, 128, 64, specialize, num_stages=stages, num_warps=8)
    expected = a.double() @ b.double().T
    assert (c - expected).norm() <= 2**-11 * expected.norm()
