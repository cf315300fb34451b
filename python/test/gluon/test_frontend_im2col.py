"""The IR that each form of the im2col load becomes, and what wrong use is told. Nothing here needs a GPU."""

import inspect
import re

import pytest
import torch
from triton import CompilationError
from triton._filecheck import run_filecheck, run_parser
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import ampere
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

TARGETS = [GPUTarget("cuda", 90, 32), GPUTarget("cuda", 100, 32)]


def im2col(rank=4, block=(16, 16), dtype=torch.float16, swizzle=32):
    x = torch.empty((2, *[8] * (rank - 2), 16), dtype=dtype)
    return TensorDescriptorIm2Col.from_tensor(x, list(block), gl.NVMMASharedLayout(swizzle, 8 * dtype.itemsize, 2),
                                              pixel_box_lower_corner=[0] * (rank - 2),
                                              pixel_box_upper_corner=[0] * (rank - 2))


def tiled():
    return TensorDescriptor.from_tensor(torch.empty((64, 64), dtype=torch.float16), [16, 16],
                                        gl.NVMMASharedLayout(32, 16, 2))


def check(kernel, *args, **kwargs):
    for target in TARGETS:
        module = run_parser(kernel, args, kwargs, target)
        run_filecheck(kernel.__name__, module.str_nodebug(), inspect.getsource(kernel.fn))


@gluon.jit
def ranks_kernel(w_desc, hw_desc, dhw_desc):
    # CHECK: tt.func public @ranks_kernel
    # CHECK-SAME: %[[W:arg[0-9]+]]: !ttng.tensordesc_im2col<16x16xf16, #shared>
    # CHECK-SAME: %[[HW:arg[0-9]+]]: !ttng.tensordesc_im2col<16x16xf16, #shared>
    # CHECK-SAME: %[[DHW:arg[0-9]+]]: !ttng.tensordesc_im2col<16x16xf16, #shared>
    # CHECK: %[[BLOCK:.*]] = ttg.local_alloc : () -> !ttg.memdesc<16x16xf16, #shared, #smem, mutable>
    block = gl.allocate_shared_memory(w_desc.dtype, w_desc.block_shape, w_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    # CHECK-DAG: %[[N3:.*]] = arith.constant 1 : i32
    # CHECK-DAG: %[[W3:.*]] = arith.constant 2 : i32
    # CHECK-DAG: %[[C3:.*]] = arith.constant 3 : i32
    # CHECK-DAG: %[[O3:.*]] = arith.constant 4 : i16
    # CHECK: ttng.async_tma_copy_global_to_local %[[W]][%[[N3]], %[[W3]], %[[C3]]] offsets = [%[[O3]]] %[[BLOCK]],
    tma.async_load_im2col(w_desc, [1, 2, 3], [4], bar, block)
    # CHECK-DAG: %[[N4:.*]] = arith.constant 5 : i32
    # CHECK-DAG: %[[H4:.*]] = arith.constant 6 : i32
    # CHECK-DAG: %[[W4:.*]] = arith.constant 7 : i32
    # CHECK-DAG: %[[C4:.*]] = arith.constant 8 : i32
    # CHECK-DAG: %[[OH4:.*]] = arith.constant 9 : i16
    # CHECK-DAG: %[[OW4:.*]] = arith.constant 10 : i16
    # CHECK: ttng.async_tma_copy_global_to_local %[[HW]][%[[N4]], %[[H4]], %[[W4]], %[[C4]]]
    # CHECK-SAME: offsets = [%[[OH4]], %[[OW4]]] %[[BLOCK]],
    tma.async_load_im2col(hw_desc, [5, 6, 7, 8], [9, 10], bar, block)
    # CHECK-DAG: %[[N5:.*]] = arith.constant 11 : i32
    # CHECK-DAG: %[[D5:.*]] = arith.constant 12 : i32
    # CHECK-DAG: %[[H5:.*]] = arith.constant 13 : i32
    # CHECK-DAG: %[[W5:.*]] = arith.constant 14 : i32
    # CHECK-DAG: %[[C5:.*]] = arith.constant 15 : i32
    # CHECK-DAG: %[[OD5:.*]] = arith.constant 16 : i16
    # CHECK-DAG: %[[OH5:.*]] = arith.constant 17 : i16
    # CHECK-DAG: %[[OW5:.*]] = arith.constant 18 : i16
    # CHECK: ttng.async_tma_copy_global_to_local %[[DHW]][%[[N5]], %[[D5]], %[[H5]], %[[W5]], %[[C5]]]
    # CHECK-SAME: offsets = [%[[OD5]], %[[OH5]], %[[OW5]]] %[[BLOCK]],
    tma.async_load_im2col(dhw_desc, [11, 12, 13, 14, 15], [16, 17, 18], bar, block)


def test_ranks():
    check(ranks_kernel, im2col(3), im2col(4), im2col(5))


@gluon.jit
def run_time_kernel(desc, n, h, w, c, r, s, pred):
    # CHECK: tt.func public @run_time_kernel(%[[DESC:arg0]]:
    # CHECK-SAME: %[[N:[a-z0-9_]+]]: i32{{[^%]*}}, %[[H:[a-z0-9_]+]]: i32{{[^%]*}}, %[[W:[a-z0-9_]+]]: i32{{[^%]*}}, %[[C:[a-z0-9_]+]]: i32{{[^%]*}}, %[[R:[a-z0-9_]+]]: i32{{[^%]*}}, %[[S:[a-z0-9_]+]]: i32{{[^%]*}}, %[[P:[a-z0-9_]+]]: i32
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    # CHECK: %[[BAR:.*]] = tt.call @{{.*}}allocate_mbarrier
    bar = mbarrier.allocate_mbarrier()
    # CHECK-DAG: %[[R16:.*]] = arith.trunci %[[R]] : i32 to i16
    # CHECK-DAG: %[[S16:.*]] = arith.trunci %[[S]] : i32 to i16
    # CHECK-DAG: %[[PRED:.*]] = arith.cmpi ne, %[[P]],
    # CHECK: ttng.async_tma_copy_global_to_local %[[DESC]][%[[N]], %[[H]], %[[W]], %[[C]]] offsets = [%[[R16]], %[[S16]]] %{{.*}}, %[[BAR]], %[[PRED]]
    tma.async_load_im2col(desc, [n, h, w, c], [r.to(gl.int16), s.to(gl.int16)], bar, block, pred != 0)


def test_run_time_values():
    check(run_time_kernel, im2col(), 20, 30, 40, 50, 60, 70, 80)


@gluon.jit
def mixed_kernel(desc, h):
    # CHECK: tt.func public @mixed_kernel(%[[DESC:arg0]]:
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    TAP: gl.constexpr = 2
    # CHECK-DAG: %[[TAP:.*]] = arith.constant 2 : i16
    # CHECK-DAG: %[[S16:.*]] = arith.trunci
    # CHECK: ttng.async_tma_copy_global_to_local %[[DESC]][{{.*}}] offsets = [%[[TAP]], %[[S16]]]
    tma.async_load_im2col(desc, [0, h, -3, 0], [TAP, h.to(gl.int16)], bar, block)


def test_constants_among_run_time_values():
    check(mixed_kernel, im2col(), 20)


@gluon.jit
def buffers_kernel(desc, i):
    # CHECK: %[[RING:.*]] = ttg.local_alloc : () -> !ttg.memdesc<3x16x16xf16, #shared
    ring = gl.allocate_shared_memory(desc.dtype, [3, desc.block_shape[0], desc.block_shape[1]], desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=3)
    # CHECK-DAG: %[[BAR:.*]] = ttg.memdesc_index %{{.*}} : !ttg.memdesc<3x1xi64
    # CHECK-DAG: %[[BLOCK:.*]] = ttg.memdesc_index %[[RING]][%{{.*}}] : !ttg.memdesc<3x16x16xf16,
    # CHECK: ttng.async_tma_copy_global_to_local {{.*}} offsets = [{{.*}}] %[[BLOCK]], %[[BAR]], %true
    tma.async_load_im2col(desc, [0, 0, 0, 0], [0, 0], bars.index(i), ring.index(i))


def test_a_ring_of_buffers():
    check(buffers_kernel, im2col(), 2)


@gluon.jit
def types_kernel(a_desc, b_desc, c_desc, d_desc):
    # CHECK: tt.func public @types_kernel
    # CHECK-SAME: !ttng.tensordesc_im2col<16x32xf8E4M3FN, #[[A:shared[0-9]*]]>
    # CHECK-SAME: !ttng.tensordesc_im2col<64x64xbf16, #[[B:shared[0-9]*]]>
    # CHECK-SAME: !ttng.tensordesc_im2col<8x4xf32, #[[C:shared[0-9]*]]>
    # CHECK-SAME: !ttng.tensordesc_im2col<1024x16xsi8, #[[D:shared[0-9]*]]>
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    d = gl.allocate_shared_memory(d_desc.dtype, d_desc.block_shape, d_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    # CHECK: !ttng.tensordesc_im2col<16x32xf8E4M3FN, #[[A]]>, !ttg.memdesc<1xi64, {{.*}}> -> !ttg.memdesc<16x32xf8E4M3FN, #[[A]],
    tma.async_load_im2col(a_desc, [0, 0, 0, 0], [0, 0], bar, a)
    # CHECK: !ttng.tensordesc_im2col<64x64xbf16, #[[B]]>, !ttg.memdesc<1xi64, {{.*}}> -> !ttg.memdesc<64x64xbf16, #[[B]],
    tma.async_load_im2col(b_desc, [0, 0, 0, 0], [0, 0], bar, b)
    # CHECK: !ttng.tensordesc_im2col<8x4xf32, #[[C]]>, !ttg.memdesc<1xi64, {{.*}}> -> !ttg.memdesc<8x4xf32, #[[C]],
    tma.async_load_im2col(c_desc, [0, 0, 0, 0], [0, 0], bar, c)
    # CHECK: !ttng.tensordesc_im2col<1024x16xsi8, #[[D]]>, !ttg.memdesc<1xi64, {{.*}}> -> !ttg.memdesc<1024x16xi8, #[[D]],
    tma.async_load_im2col(d_desc, [0, 0, 0, 0], [0, 0], bar, d)


def test_types_and_layouts():
    check(types_kernel, im2col(4, (16, 32), torch.float8_e4m3fn, 32), im2col(4, (64, 64), torch.bfloat16, 128),
          im2col(4, (8, 4), torch.float32, 0), im2col(4, (1024, 16), torch.int8, 0))


@gluon.jit
def load_kernel(desc, COORDINATES: gl.constexpr, OFFSETS: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr,
                DTYPE: gl.constexpr):
    block = gl.allocate_shared_memory(DTYPE, SHAPE, LAYOUT)
    bar = mbarrier.allocate_mbarrier()
    tma.async_load_im2col(desc, COORDINATES, OFFSETS, bar, block)


@gluon.jit
def first_name_kernel(desc, COORDINATES: gl.constexpr, OFFSETS: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr,
                      DTYPE: gl.constexpr):
    block = gl.allocate_shared_memory(DTYPE, SHAPE, LAYOUT)
    bar = mbarrier.allocate_mbarrier()
    tma.async_copy_global_to_shared_im2col(desc, COORDINATES, OFFSETS, bar, block)


LAYOUT = gl.NVMMASharedLayout(32, 16, 2)
USE = dict(COORDINATES=(1, 2, 3, 4), OFFSETS=(5, 6), SHAPE=[16, 16], LAYOUT=LAYOUT, DTYPE=gl.float16)


def parse(kernel, desc, **use):
    return run_parser(kernel, (desc, ), {**USE, **use}, TARGETS[0]).str_nodebug()


def test_the_first_name():
    """``async_copy_global_to_shared_im2col`` is the same load where it is still there, and names the new one where not."""
    new = parse(load_kernel, im2col())
    assert "offsets = [" in new
    try:
        old = parse(first_name_kernel, im2col())
    except CompilationError as error:
        assert "async_copy_global_to_shared_im2col has been removed; call async_load_im2col instead" in str(error)
    else:
        assert old.replace("first_name_kernel", "load_kernel") == new


@pytest.mark.parametrize("desc, use, message", [
    (tiled, {}, "expected 2 coordinates, but got 4"),
    (im2col, {"COORDINATES": (1, 2)}, "IM2COL mode requires at least 3D coordinates, but got 2D"),
    (im2col, {"COORDINATES": (1, 2, 3)}, "IM2COL mode with 3D coordinates requires 1 offsets, but got 2"),
    (im2col, {"COORDINATES": (1, 2, 3, 4, 5)}, "IM2COL mode with 5D coordinates requires 3 offsets, but got 2"),
    (im2col, {"COORDINATES": (1, 2, 3, 4, 5, 6)}, "IM2COL mode supports at most 5D coordinates, but got 6D"),
    (im2col, {"OFFSETS": ()}, "IM2COL mode requires offsets to be provided"),
    (im2col, {"OFFSETS": (1, )}, "IM2COL mode with 4D coordinates requires 2 offsets, but got 1"),
    (im2col, {"OFFSETS": (1, 2, 3)}, "IM2COL mode with 4D coordinates requires 2 offsets, but got 3"),
    (im2col, {"SHAPE": [32, 16]}, "descriptor block with 256 elements tensor with 512 elements"),
    (im2col, {"LAYOUT": gl.NVMMASharedLayout(0, 16, 2)}, "TMA descriptor layout must match shared layout"),
    (im2col, {"LAYOUT": gl.NVMMASharedLayout(32, 16, 2, transposed=True)}, "TMA descriptor layout must match shared layout"),
    (im2col, {"LAYOUT": gl.SwizzledSharedLayout(1, 1, 1, [1, 0])}, "TMA descriptor must have NVMMA shared layout"),
    (im2col, {"DTYPE": gl.bfloat16}, "descriptor element type 'f16' and tensor element type 'bf16'"),
    (im2col, {"DTYPE": gl.float32}, "descriptor element type 'f16' and tensor element type 'f32'"),
])  # yapf: disable
def test_wrong_use_is_refused_by_the_verifier(desc, use, message, capfd):
    with pytest.raises(RuntimeError):
        parse(load_kernel, desc(), **use)
    stderr = capfd.readouterr().err
    assert message in stderr
    assert re.search(r"test_frontend_im2col.py:\d+:\d+: error: 'ttng.async_tma_copy_global_to_local' op", stderr)


@gluon.jit
def tiled_load_kernel(desc):
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    tma.async_load(desc, [0, 0], bar, block)


@gluon.jit
def store_kernel(desc):
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    tma.async_store(desc, [0, 0], block)


@gluon.jit
def wide_offset_kernel(desc, r):
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    tma.async_load_im2col(desc, [0, 0, 0, 0], [r, r], bar, block)


@pytest.mark.parametrize("kernel, args, message", [
    (tiled_load_kernel, (), "IM2COL mode requires at least 3D coordinates, but got 2D"),
    (store_kernel, (), "must be Tensor descriptor type"),
    (wide_offset_kernel, (3, ), "must be variadic of 16-bit signless integer, but got 'i32'"),
])
def test_other_uses_of_the_descriptor_are_refused(kernel, args, message, capfd):
    with pytest.raises(RuntimeError):
        run_parser(kernel, (im2col(), *args), {}, TARGETS[0])
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("use, message", [
    ({"OFFSETS": (1.5, 0)}, "Unsupported offset type: <class 'float'>"),
    ({"OFFSETS": ("1", 0)}, "Unsupported offset type: <class 'str'>"),
    ({"COORDINATES": (0.5, 0, 0, 0)}, "async_load_im2col"),
])  # yapf: disable
def test_values_of_other_types_are_refused_by_the_front_end(use, message):
    with pytest.raises(CompilationError, match=re.escape(message)):
        parse(load_kernel, im2col(), **use)


@gluon.jit
def multicast_kernel(desc):
    # CHECK: tt.func public @multicast_kernel
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    # CHECK: ttng.async_tma_copy_global_to_local %arg0[{{.*}}] offsets = [{{.*}}] {{[^{]*}} {multicast} :
    tma.async_load_im2col(desc, [0, 0, 0, 0], [0, 0], bar, block, multicast=True)
    # CHECK: ttng.async_tma_copy_global_to_local %arg0[{{.*}}] offsets = [{{.*}}] %{{[^{]*}}, %true{{[_0-9]*}} :
    tma.async_load_im2col(desc, [0, 0, 0, 0], [0, 0], bar, block)


def test_multicast():
    """A block that a cluster shares, by a layout that gives all programs the same."""
    desc = im2col()
    desc.layout = gl.NVMMASharedLayout(32, 16, 2, cga_layout=[[0, 0]])
    check(multicast_kernel, desc, num_ctas=2)


@gluon.jit
def policy_kernel(desc, POLICY: gl.constexpr):
    block = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    bar = mbarrier.allocate_mbarrier()
    # CHECK: ttng.async_tma_copy_global_to_local %arg0[{{.*}}] offsets = [{{.*}}]
    # CHECK-SAME: {cachePolicy = #ttng.cache_policy<l2_primary = evict_first, l2_secondary = evict_unchanged, l2_fraction = 5.000000e-01 : f32>}
    tma.async_load_im2col(desc, [0, 0, 0, 0], [0, 0], bar, block, cache_policy=POLICY)


@pytest.mark.skipif(not hasattr(ampere, "CachePolicy"), reason="this Triton has no cache policies")
def test_cache_policy():
    check(policy_kernel, im2col(), ampere.CachePolicy(l2=ampere.FractionalEvictionPolicy("evict_first", 0.5)))
