"""Every operation against torch on random data, and whole kernels against float64."""

import kernels
import pytest
import torch
import triton_simulator as simulator
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton_simulator.memory import Allocation, GlobalMemory

SIZE = kernels.SIZE.value


@pytest.fixture(autouse=True)
def simulated():
    with simulator.activate("sm_90", seed=1):
        yield


def random_integers(dtype, generator):
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -2**40), min(info.max, 2**40), (SIZE, ), generator=generator).to(dtype)
    x[:4] = torch.tensor([info.min, info.max, 0, 1], dtype=dtype)
    return x


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8], ids=str)
def test_integers(dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = random_integers(dtype, generator), random_integers(dtype, generator)
    y[y == 0] = 3
    y[:2] = 3  # no overflow of the division of the least number by -1
    y[y == -1] = 5
    out, flags = torch.zeros((14, SIZE), dtype=dtype), torch.zeros((6, SIZE), dtype=torch.int32)
    kernels.integer_kernel[(1, )](x, y, out, flags, num_warps=1)
    shift = (y & 7).to(dtype)
    expected = [
        x + y, x - y, x * y,
        torch.div(x, y, rounding_mode="trunc"),
        torch.fmod(x, y), x & y, x | y, x ^ y, x << shift, x >> shift,
        torch.maximum(x, y),
        torch.minimum(x, y),
        torch.where(x < y, x, y), -x
    ]
    for row, (found, wanted) in enumerate(zip(out, expected)):
        assert torch.equal(found, wanted.to(dtype)), row
    for found, wanted in zip(flags, (x < y, x <= y, x > y, x >= y, x == y, x != y)):
        assert torch.equal(found, wanted.int())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_floats(dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(SIZE, generator=generator).to(dtype) for _ in range(2))
    x[:3] = torch.tensor([float("inf"), float("nan"), -0.0])
    out, flags = torch.zeros((8, SIZE), dtype=dtype), torch.zeros((4, SIZE), dtype=torch.int32)
    kernels.float_kernel[(1, )](x, y, out, flags, num_warps=1)
    number_wins = [torch.where(x.isnan(), y, f(x, y)) for f in (torch.maximum, torch.minimum)]
    for row, wanted in enumerate([x + y, x - y, x * y, *number_wins, torch.where(x < y, x, y), -x, x.abs()]):
        assert torch.equal(out[row].nan_to_num(nan=12.5), wanted.nan_to_num(nan=12.5)), row
    for found, wanted in zip(flags, (x < y, x == y, x != y, x >= y)):
        assert torch.equal(found, wanted.int())


def test_math():
    x = torch.rand(SIZE) * 4 + 0.1
    out = torch.zeros((13, SIZE))
    kernels.math_kernel[(1, )](x, out, num_warps=1)
    d = x.double()
    expected = [
        d.exp(),
        d.exp2(),
        d.log(),
        d.log2(),
        d.sqrt(),
        d.sin(),
        d.cos(),
        d.floor(),
        d.ceil(),
        d.rsqrt(), d * d + d, d / (d + 1),
        torch.erf(d)
    ]
    for row, wanted in enumerate(expected):
        assert torch.allclose(out[row].double(), wanted, rtol=1e-6, atol=1e-6), row


CASTS = [(torch.float32, torch.bfloat16), (torch.float32, torch.float16), (torch.bfloat16, torch.float32),
         (torch.float32, torch.float8_e4m3fn), (torch.float32, torch.float8_e5m2), (torch.float8_e4m3fn, torch.float32),
         (torch.float32, torch.int32), (torch.int32, torch.float32), (torch.int32, torch.int8),
         (torch.int8, torch.int64), (torch.uint8, torch.int32), (torch.int64, torch.int16),
         (torch.float16, torch.bfloat16)]


@pytest.mark.parametrize("source, target", CASTS, ids=str)
def test_casts(source, target):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(SIZE, generator=generator) * 50).to(source)
    out = torch.zeros(SIZE, dtype=target)
    kernels.cast_kernel[(1, )](x, out, num_warps=1)
    assert torch.equal(out.view(torch.uint8), x.to(target).view(torch.uint8))


def test_shapes():
    x = torch.randint(-50, 50, (16, 8)).float()
    out = torch.zeros((6, SIZE))
    kernels.shape_kernel[(1, )](x, out, num_warps=1)
    assert torch.equal(out[0], x.T.reshape(-1))
    assert torch.equal(out[1], x.reshape(16, 4, 2).flip(2).reshape(-1))
    assert torch.equal(out[2, :16], x.sum(1))
    assert torch.equal(out[3, :8], x.max(0).values)
    assert torch.equal(out[4].reshape(16, 8), x.sum(1, keepdim=True).expand(16, 8))
    assert out[5, 0] == x.sum()


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32], ids=str)
def test_memory(dtype):
    n = 100
    x = torch.randint(-50, 50, (SIZE, )).to(dtype)
    out = torch.full((5, SIZE), -1).to(dtype)
    kernels.memory_kernel[(1, )](x, out, n, num_warps=1)
    i = torch.arange(SIZE)
    assert torch.equal(out[0], torch.where(i < n, x, 7))
    assert torch.equal(out[1], torch.where(i % 2 == 0, x.flip(0), -1))
    for lane in range(4):
        assert out[2, lane] == i[i % 4 == lane].sum() - 1
        assert out[3, lane] == i[(i % 4 == lane) & (i < n)].max()
    assert out[4, 0] == x[0]


def test_control_flow():
    x = torch.randint(0, 1000, (50, ), dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    kernels.control_kernel[(1, 3)](x, out, 27, num_warps=1)
    total = sum(int(v) // 3 if v % 2 == 0 else -(int(v) % 7) for v in x[:27])
    assert out.tolist() == [total, 111, 3, 27 * 1000003 & 0x7FFFFFFF]


def test_views():
    x = torch.randn(16, 32)
    out = torch.zeros(1024 + 512)
    kernels.views_kernel[(1, )](x, out, num_warps=1)
    assert torch.equal(out[:512].reshape(16, 32), x + 1)
    assert torch.equal(out[512:640].reshape(8, 16), x[8:, 16:])
    assert torch.equal(out[1024:].reshape(32, 16), x.T)


def test_views_know_their_place():
    """By which the simulator tells whether two accesses meet: also behind dimensions of extent 1 that come and go."""
    buffer = Allocation("buffer", "shared memory", (3, 16, 8), torch.float32, 0).view()
    slot = buffer.index(1, "here")
    part = slot.reshape((1, 16, 8)).narrow((0, 8, 0), (1, 8, 8))
    assert part.box == ((1, 2), (8, 16), (0, 8)) and part.data.shape == (1, 8, 8)
    assert part.index(0, "here").permute((1, 0)).narrow((2, 0), (4, 8)).box == ((1, 2), (8, 16), (2, 6))
    assert buffer.narrow((0, 4, 0), (1, 4, 8)).reshape((4, 8)).narrow((1, 0), (1, 8)).box == ((0, 1), (5, 6), (0, 8))
    assert slot.reshape((8, 16)).narrow((0, 0), (1, 16)).box == slot.box  # more than it is, where rows are split


def test_the_nearest_tensor_is_the_one_that_is_read_in_part():
    """Also where another one ends closer to an end of what is read: x begins 1000 bytes behind y here."""
    buffer = torch.zeros(6000, dtype=torch.uint8)
    memory = GlobalMemory([])
    memory.ranges = [(1000, 2000, buffer, "y"), (3000, 7000, buffer, "x")]
    reads = {
        (2996, 6996): "x, .* 4 bytes before the start",
        (2990, 2996): "x, .* 10 bytes before the start",
        (6000, 7008): "x, .* 8 bytes past the end",
        (2000, 2016): "y, .* 16 bytes past the end",
    }
    for (lowest, highest), words in reads.items():
        with pytest.raises(simulator.OutOfBounds, match=words):
            memory.find(lowest, highest, "here", "a read")


def test_collectives():
    x = torch.randint(-50, 50, (SIZE, ), dtype=torch.int32)
    index = torch.randint(0, SIZE, (SIZE, ), dtype=torch.int32)
    index[:10] = x[:10].abs()
    before, out = index.clone(), torch.zeros((8, SIZE), dtype=torch.int32)
    kernels.collective_kernel[(1, )](x, index, out, num_warps=1)
    assert torch.equal(out[0], x.cumsum(0).int())
    assert torch.equal(out[1], x.flip(0).cumsum(0).flip(0).int())
    assert torch.equal(out[2], x[before.long()])
    assert torch.equal(out[3], torch.bincount(before, minlength=SIZE).int())
    assert torch.equal(out[4], x.clamp(-3, 7))
    assert torch.equal(out[5], before)
    assert torch.equal(index, torch.where(before == x, torch.arange(SIZE, dtype=torch.int32), before))
    assert out[6, 0] == x[0] * (x[0] + 1) + 1
    assert torch.equal(out[7], x[before.long()])


def test_high_product():
    x, y = (torch.randint(0, 2**32, (SIZE, )) for _ in range(2))
    out = torch.zeros(SIZE, dtype=torch.int64).to(torch.uint32)
    kernels.high_product_kernel[(1, )](x.to(torch.uint32), y.to(torch.uint32), out, num_warps=1)
    assert out.to(torch.int64).tolist() == [int(a) * int(b) >> 32 for a, b in zip(x, y)]


def test_async_copies():
    x, y = torch.randn(SIZE), torch.zeros(SIZE)
    kernels.copy_async_kernel[(1, )](x, y, 100, False, num_warps=1)
    assert torch.equal(y, x + torch.where(torch.arange(SIZE) < 100, x, 0))
    with pytest.raises(simulator.Race, match="read before a write has landed"):
        kernels.copy_async_kernel[(1, )](x, y, 100, True, num_warps=1)


def tensor_descriptor(tensor, block, swizzle=None):
    kind = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
    name = str(tensor.dtype).removeprefix("torch.")
    layout = gl.NVMMASharedLayout.get_default_for(block, getattr(gl, kind.get(name, name)))
    return TensorDescriptor.from_tensor(tensor, block, layout)


def test_tma_reduction():
    x, y = torch.randn(16, 32), torch.randn(16, 32)
    expected = y.clone()
    expected[3:, 8:] += x[:13, :24]
    kernels.reduce_store_kernel[(1, )](tensor_descriptor(x, [16, 32]), tensor_descriptor(y, [16, 32]), num_warps=1)
    assert torch.equal(y, expected)


def test_descriptor_made_on_the_device():
    x, y = torch.randn(17, 36), torch.full((16, 32), float("nan"))
    kernels.device_descriptor_kernel[(1, )](x, tensor_descriptor(y, [16, 32]), 17, 36, num_warps=1)
    expected = torch.zeros(16, 32)
    expected[:13, :28] = x[4:, 8:]
    assert torch.equal(y, expected)


def test_register_products():
    x, y = torch.randn(16, 32).half(), torch.zeros(16, 16)
    kernels.register_products_kernel[(1, )](x, y, num_warps=4)
    expected = x.double() @ x.double().T + 1
    assert (y - expected).norm() < 1e-6 * expected.norm()


def truncated_to_tf32(x):
    return (x.view(torch.int32) & -8192).view(torch.float32)


OPERANDS = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", OPERANDS, ids=str)
@pytest.mark.parametrize("in_registers", [False, True])
def test_wgmma(dtype, in_registers):
    if in_registers and dtype.itemsize == 1:
        in_registers = False
    k = 128 // dtype.itemsize
    a, b, y = torch.randn(64, k).to(dtype), torch.randn(32, k).to(dtype), torch.zeros(64, 32)
    kernels.wgmma_kernel[(1, )](tensor_descriptor(a, [64, k]), tensor_descriptor(b, [32, k]), y, in_registers,
                                num_warps=4)
    if dtype == torch.float32:
        a, b = truncated_to_tf32(a), truncated_to_tf32(b)
    expected = a.double() @ b.double().T
    assert (y - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize("use", ["store", "compare", "clamp", "sum"])
def test_an_accumulator_that_was_waited_for(use):
    a, b, y = torch.randn(64, 64).bfloat16(), torch.randn(32, 64).bfloat16(), torch.full((64, 32), float("nan"))
    kernels.waited_accumulator_kernel[(1, )](tensor_descriptor(a, [64, 64]), tensor_descriptor(b, [32, 64]), y, use,
                                             num_warps=4)
    product = a.double() @ b.double().T
    expected = {"store": product, "compare": product.relu(), "clamp": product.clamp(-1, 1),
                "sum": product + product.sum(1, keepdim=True)}[use]  # yapf: disable
    assert (y - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("dtype", OPERANDS, ids=str)
def test_tcgen05(dtype):
    k = 128 // dtype.itemsize
    a, b, y = torch.randn(128, k).to(dtype), torch.randn(32, k).to(dtype), torch.zeros(128, 32)
    with simulator.activate("sm_100"):
        kernels.tcgen05_kernel[(1, )](tensor_descriptor(a, [128, k]), tensor_descriptor(b, [32, k]), y, num_warps=4)
    if dtype == torch.float32:
        a, b = truncated_to_tf32(a), truncated_to_tf32(b)
    expected = 2 * (a.double() @ b.double().T) + 1
    assert (y - expected).norm() < 1e-6 * expected.norm()


def test_narrow_floats_saturate():
    x = torch.tensor([1e6, -1e6, float("inf"), 460.0, 500.0, 60000.0, float("nan"), 0.3] * 16)
    for dtype, largest in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
        out = torch.zeros(SIZE, dtype=dtype)
        kernels.cast_kernel[(1, )](x, out, num_warps=1)
        found = out.float()
        assert found[0] == largest and found[1] == -largest and found[2] == largest and found[6].isnan()
        assert torch.equal(found[5], torch.tensor(min(60000.0, largest)).to(dtype).float())


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("dtype, m, n, k", [(torch.bfloat16, 128, 64, 256), (torch.float16, 100, 72, 200),
                                            (torch.bfloat16, 64, 8, 8)])
def test_pipelined_gemm(dtype, m, n, k, stages):
    a, b, y = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.full((m, n), float("nan")).to(dtype)

    def descriptor(tensor, block):
        layout = gl.NVMMASharedLayout.get_default_for(block, getattr(gl, str(dtype).removeprefix("torch.")))
        return TensorDescriptor.from_tensor(tensor, block, layout)

    grid = (-(-m // 64), -(-n // 32))
    kernels.pipelined_gemm[grid](descriptor(a, [64, 64]), descriptor(b, [32, 64]), descriptor(y, [64, 32]), -(-k // 64),
                                 stages, num_warps=4)
    expected = a.double() @ b.double().T
    assert (y - expected).norm() <= 2**-8 * expected.norm()
