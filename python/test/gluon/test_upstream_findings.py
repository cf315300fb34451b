"""Today's behavior of Triton where docs/gluon/upstream-findings.md says that it should change."""

import signal
import subprocess
import sys

import pytest
import torch
import triton
from triton._filecheck import run_parser
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col


def compiled(kernel, signature, arch=90, constants=None, **options):
    return triton.compile(GluonASTSource(kernel, signature, constants), target=GPUTarget("cuda", arch, 32),
                          options=options).asm


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
    ptx = compiled(registers_kernel, signature, constants={"COUNT": count})["ptx"]
    assert ("setmaxnreg" in ptx) == granted


def im2col(rank=4, block=(16, 16), dtype=torch.float16, swizzle=32, padding="zero"):
    x = torch.empty((2, *[8] * (rank - 2), 64), dtype=dtype)
    return TensorDescriptorIm2Col.from_tensor(x, list(block), gl.NVMMASharedLayout(swizzle, 8 * dtype.itemsize, 2),
                                              padding, pixel_box_lower_corner=[0] * (rank - 2),
                                              pixel_box_upper_corner=[0] * (rank - 2))


@gluon.jit
def im2col_kernel(desc, OFFSETS: gl.constexpr, SHAPE: gl.constexpr):
    block = gl.allocate_shared_memory(desc.dtype, SHAPE, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    tma.async_load_im2col(desc, [0, 0, 0, 0], OFFSETS, bar, block)


def parsed(desc, offsets=(0, 0), shape=None):
    module = run_parser(im2col_kernel, (desc, offsets, shape or desc.block_shape), target=GPUTarget("cuda", 90, 32))
    return next(line for line in module.str_nodebug().split("\n") if "async_tma_copy_global_to_local" in line), module


def test_the_type_of_an_im2col_descriptor_has_no_rank():
    line, _ = parsed(im2col(rank=5))
    assert line.count("%c0_i32") == 4 and "!ttng.tensordesc_im2col<16x16xf16, #shared>" in line


@pytest.mark.parametrize("offset, encoded", [(65536, "%c0_i16"), (65537, "%c1_i16"), (-1, "%c-1_i16"),
                                             (256, "%c256_i16")])
def test_constant_offsets_past_their_limit_are_taken(offset, encoded):
    line, _ = parsed(im2col(), (offset, 7))
    assert f"offsets = [{encoded}, %c7_i16]" in line


def test_a_result_of_another_shape_with_as_many_elements_is_taken():
    line, module = parsed(im2col(), shape=[8, 32])
    assert "tensordesc_im2col<16x16xf16" in line and "-> !ttg.memdesc<8x32xf16" in line
    assert module.verify()


def test_nan_for_8_bit_floats_is_taken():
    assert im2col(block=(16, 32), dtype=torch.float8_e5m2, padding="nan").padding == "nan"


@gluon.jit
def tap_kernel(desc, r):
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    tma.async_load_im2col(desc, [0, 0, 0, 0], [r.to(gl.int16), 0], bar, block)


def test_a_tap_of_1_does_not_compile():
    run_parser(tap_kernel, (im2col(), 2))
    with pytest.raises(triton.CompilationError, match="'constexpr' object has no attribute 'to'|no attribute"):
        run_parser(tap_kernel, (im2col(), 1))


def load_compiled(block):
    signature = {"desc": im2col(block=block, swizzle=0).__mangle__(), "OFFSETS": "constexpr", "SHAPE": "constexpr"}
    return compiled(im2col_kernel, signature, constants={"OFFSETS": (0, 0), "SHAPE": list(block)})


def test_1024_pixels_compile():
    assert "cp.async.bulk.tensor.4d" in load_compiled((1024, 16))["ptx"]


@gluon.jit
def ring_kernel(desc, n, SLOTS: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    ring = gl.allocate_shared_memory(desc.dtype, [SLOTS] + desc.block_shape, desc.layout)
    for i in range(n):
        for j in gl.static_range(16):
            tma.async_load(desc, [0, 0], bar, ring.index((i + j) % SLOTS))


def test_views_of_large_rings_compile_slowly():
    layout = gl.NVMMASharedLayout.get_default_for([128, 64], gl.bfloat16)
    desc = TensorDescriptor.from_tensor(torch.empty((128, 64), dtype=torch.bfloat16), [128, 64], layout).__mangle__()
    seconds = []
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.always_compile = True
        triton.knobs.compilation.listener = lambda times, **_: seconds.append(dict(times.lowering_stages)["llir"] / 1e6)
        for slots in (1, 12) * 2:
            compiled(ring_kernel, {"desc": desc, "n": "i32", "SLOTS": "constexpr"}, constants={"SLOTS": slots})
    slow = min(seconds[1::2]) > 8 * min(seconds[::2])
    assert slow == triton.__version__.startswith("3.9")


ABORTS = {
    "4 rows of a swizzled layout": (lambda: parsed(im2col(block=(4, 16))), "Illegal shared layout"),
    "2048 pixels": (lambda: load_compiled((2048, 16)), "getTMABlockShape failed"),
}  # yapf: disable


@pytest.mark.parametrize("name", ABORTS)
def test_the_compiler_aborts(name):
    result = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
    assert result.returncode == -signal.SIGABRT
    assert ABORTS[name][1] in result.stderr


@gluon.jit
def one_more_dimension_kernel(desc, LAYOUT: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    block = gl.allocate_shared_memory(desc.dtype, [desc.block_shape[1], desc.block_shape[2]], LAYOUT)
    tma.async_load(desc, [0, 0, 0], bar, block.reshape((1, block.shape[0], block.shape[1])))


@pytest.mark.parametrize("bases", [[], [[1, 0]], [[0, 0]]])
def test_a_block_of_a_cluster_takes_no_dimension_of_1_for_tma(bases, capfd):
    layouts = [gl.NVMMASharedLayout(64, 16, 2 + more, cga_layout=[[0] * more + basis for basis in bases])
               for more in (0, 1)]  # yapf: disable
    desc = TensorDescriptor.from_tensor(torch.empty((1, 64, 32), dtype=torch.bfloat16), [1, 64, 32], layouts[1])
    signature = {"desc": desc.__mangle__(), "LAYOUT": "constexpr"}
    constants = {"LAYOUT": layouts[0]}
    if bases:
        with pytest.raises(RuntimeError, match="error encountered during parsing"):
            compiled(one_more_dimension_kernel, signature, constants=constants, num_ctas=2)
        assert "TMA descriptor must have NVMMA shared layout" in capfd.readouterr().err
    else:
        ptx = compiled(one_more_dimension_kernel, signature, constants=constants)["ptx"]
        assert "cp.async.bulk.tensor.3d" in ptx


if __name__ == "__main__":
    ABORTS[sys.argv[1]][0]()
