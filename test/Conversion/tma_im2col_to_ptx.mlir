// RUN: triton-opt %s --tritongpu-allocate-warp-groups --convert-scf-to-cf --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --triton-tensor-memory-allocation --triton-nvidia-gpu-proxy-fence-insertion=compute-capability=90 --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' --canonicalize --cse --convert-warp-specialize-to-llvm --convert-nv-gpu-to-llvm --canonicalize --cse --symbol-dce --convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | opt -O3 -S | llc -mtriple=nvptx64-nvidia-cuda -mcpu=sm_90a -mattr=+ptx83 | FileCheck %s
// RUN: triton-opt %s --tritongpu-allocate-warp-groups --convert-scf-to-cf --allocate-shared-memory-nv='compute-capability=100 ptx-version=86' --triton-tensor-memory-allocation --triton-nvidia-gpu-proxy-fence-insertion=compute-capability=100 --convert-triton-gpu-to-llvm='compute-capability=100 ptx-version=86' --canonicalize --cse --convert-warp-specialize-to-llvm --convert-nv-gpu-to-llvm --canonicalize --cse --symbol-dce --convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | opt -O3 -S | llc -mtriple=nvptx64-nvidia-cuda -mcpu=sm_100a -mattr=+ptx86 | FileCheck %s

// What reaches ptxas. Coordinates and offsets are parameters, so that each has a name: the instruction must take them
// innermost first, {c, w, h, d, n} and {w, h, d}, under a predicate, with the barrier's address between the two lists.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {

  // CHECK-LABEL: .visible .entry rank3(
  // CHECK-DAG: ld.param{{.*}}b32 [[N:%r[0-9]+]], [rank3_param_1];
  // CHECK-DAG: ld.param{{.*}}b32 [[W:%r[0-9]+]], [rank3_param_2];
  // CHECK-DAG: ld.param{{.*}}b32 [[C:%r[0-9]+]], [rank3_param_3];
  // CHECK-DAG: ld.param{{.*}}b16 [[OW:%rs[0-9]+]], [rank3_param_4];
  // CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, {{\[}}[[BAR:%r[0-9]+]]], 4096;
  // CHECK: @%p{{[0-9]+}} cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {[[C]], [[W]], [[N]]}], {{\[}}[[BAR]]], {[[OW]]};
  tt.func public @rank3(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %n: i32, %w: i32, %c: i32, %ow: i16) {
    %true = arith.constant true
    %zero = arith.constant 0 : i32
    %b = ttg.local_alloc : () -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    %m = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.init_barrier %m, 1 : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.barrier_expect %m, 4096, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %true : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    ttng.wait_barrier %m, %zero, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    tt.return
  }

  // CHECK-LABEL: .visible .entry rank4(
  // CHECK-DAG: ld.param{{.*}}b32 [[N:%r[0-9]+]], [rank4_param_1];
  // CHECK-DAG: ld.param{{.*}}b32 [[H:%r[0-9]+]], [rank4_param_2];
  // CHECK-DAG: ld.param{{.*}}b32 [[W:%r[0-9]+]], [rank4_param_3];
  // CHECK-DAG: ld.param{{.*}}b32 [[C:%r[0-9]+]], [rank4_param_4];
  // CHECK-DAG: ld.param{{.*}}b16 [[OH:%rs[0-9]+]], [rank4_param_5];
  // CHECK-DAG: ld.param{{.*}}b16 [[OW:%rs[0-9]+]], [rank4_param_6];
  // CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, {{\[}}[[BAR:%r[0-9]+]]], 4096;
  // CHECK: @%p{{[0-9]+}} cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {[[C]], [[W]], [[H]], [[N]]}], {{\[}}[[BAR]]], {[[OW]], [[OH]]};
  tt.func public @rank4(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16) {
    %true = arith.constant true
    %zero = arith.constant 0 : i32
    %b = ttg.local_alloc : () -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    %m = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.init_barrier %m, 1 : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.barrier_expect %m, 4096, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %true : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    ttng.wait_barrier %m, %zero, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    tt.return
  }

  // CHECK-LABEL: .visible .entry rank5(
  // CHECK-DAG: ld.param{{.*}}b32 [[N:%r[0-9]+]], [rank5_param_1];
  // CHECK-DAG: ld.param{{.*}}b32 [[Z:%r[0-9]+]], [rank5_param_2];
  // CHECK-DAG: ld.param{{.*}}b32 [[H:%r[0-9]+]], [rank5_param_3];
  // CHECK-DAG: ld.param{{.*}}b32 [[W:%r[0-9]+]], [rank5_param_4];
  // CHECK-DAG: ld.param{{.*}}b32 [[C:%r[0-9]+]], [rank5_param_5];
  // CHECK-DAG: ld.param{{.*}}b16 [[OZ:%rs[0-9]+]], [rank5_param_6];
  // CHECK-DAG: ld.param{{.*}}b16 [[OH:%rs[0-9]+]], [rank5_param_7];
  // CHECK-DAG: ld.param{{.*}}b16 [[OW:%rs[0-9]+]], [rank5_param_8];
  // CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, {{\[}}[[BAR:%r[0-9]+]]], 4096;
  // CHECK: @%p{{[0-9]+}} cp.async.bulk.tensor.5d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {[[C]], [[W]], [[H]], [[Z]], [[N]]}], {{\[}}[[BAR]]], {[[OW]], [[OH]], [[OZ]]};
  tt.func public @rank5(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %n: i32, %z: i32, %h: i32, %w: i32, %c: i32, %oz: i16, %oh: i16, %ow: i16) {
    %true = arith.constant true
    %zero = arith.constant 0 : i32
    %b = ttg.local_alloc : () -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    %m = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.init_barrier %m, 1 : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.barrier_expect %m, 4096, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d[%n, %z, %h, %w, %c] offsets = [%oz, %oh, %ow] %b, %m, %true : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    ttng.wait_barrier %m, %zero, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    tt.return
  }
}
