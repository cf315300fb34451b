// RUN: triton-opt %s --tritongpu-allocate-warp-groups --convert-scf-to-cf --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --triton-tensor-memory-allocation --triton-nvidia-gpu-proxy-fence-insertion=compute-capability=90 --tritongpu-global-scratch-memory-allocation --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' --canonicalize --cse --convert-warp-specialize-to-llvm --convert-nv-gpu-to-llvm --canonicalize --cse --symbol-dce --convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | opt -O3 -S | llc -mtriple=nvptx64-nvidia-cuda -mcpu=sm_90a -mattr=+ptx83 | FileCheck %s

// A small convolution from end to end: three taps of a filter, one block of pixels and of channels. In order: a barrier
// that expects both operands, the im2col load under it with the tap as offset {w = 1, h = r}, the load of the weights
// under the same barrier, the wait, the MMAs and their end, the result to shared memory, the proxy fence, the store.

// CHECK-LABEL: .visible .entry conv(
// CHECK-DAG: ld.param{{.*}}b32 [[Q:%r[0-9]+]], [conv_param_5];
// CHECK-DAG: ld.param{{.*}}b32 [[H:%r[0-9]+]], [conv_param_4];
// CHECK-DAG: ld.param{{.*}}b32 [[N:%r[0-9]+]], [conv_param_3];
// CHECK: mbarrier.init.shared::cta.b64 {{\[}}[[BAR:%r[0-9]+]]], 1;
// CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, {{\[}}[[BAR]]], 12288;
// CHECK: cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {%r{{[0-9]+}}, [[Q]], [[H]], [[N]]}], {{\[}}[[BAR]]], {%rs{{[0-9]+}}, %rs{{[0-9]+}}};
// CHECK: cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes {{.*}}, {{\[}}[[BAR]]];
// CHECK: mbarrier.try_wait.parity.shared::cta.b64 complete, {{\[}}[[BAR]]],
// CHECK: wgmma.fence.sync.aligned;
// CHECK-COUNT-4: wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16
// CHECK: wgmma.wait_group.sync.aligned 0;
// CHECK: stmatrix.sync.aligned
// CHECK: fence.proxy.async.shared::cta;
// CHECK: cp.async.bulk.tensor.2d.global.shared::cta.bulk_group
// CHECK: cp.async.bulk.commit_group;
// CHECK: cp.async.bulk.wait_group.read

#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 32, 16]}>
#operand = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#turned = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = true, elementBitWidth = 16}>
#result = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @conv(%x: !ttng.tensordesc_im2col<64x64xf16, #operand>, %w: !tt.tensordesc<32x64xf16, #operand>, %y: !tt.tensordesc<64x32xf16, #result>, %n: i32, %h: i32, %q: i32) {
    %zeros = arith.constant dense<0.000000e+00> : tensor<64x32xf32, #mma>
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c3 = arith.constant 3 : i32
    %c32 = arith.constant 32 : i32
    %one = arith.constant 1 : i16
    %true = arith.constant true
    %a = ttg.local_alloc : () -> !ttg.memdesc<64x64xf16, #operand, #smem, mutable>
    %b = ttg.local_alloc : () -> !ttg.memdesc<32x64xf16, #operand, #smem, mutable>
    %c = ttg.local_alloc : () -> !ttg.memdesc<64x32xf16, #result, #smem, mutable>
    %m = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.init_barrier %m, 1 : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    %sum = scf.for %r = %c0 to %c3 step %c1 iter_args(%acc = %zeros) -> (tensor<64x32xf32, #mma>)  : i32 {
      ttng.barrier_expect %m, 12288, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
      %tap = arith.trunci %r : i32 to i16
      ttng.async_tma_copy_global_to_local %x[%n, %h, %q, %c0] offsets = [%tap, %one] %a, %m, %true : !ttng.tensordesc_im2col<64x64xf16, #operand>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x64xf16, #operand, #smem, mutable>
      %row = arith.muli %r, %c32 : i32
      ttng.async_tma_copy_global_to_local %w[%row, %c0] %b, %m, %true : !tt.tensordesc<32x64xf16, #operand>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x64xf16, #operand, #smem, mutable>
      %phase = arith.andi %r, %c1 : i32
      ttng.wait_barrier %m, %phase, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
      %bt = ttg.memdesc_trans %b {order = array<i32: 1, 0>} : !ttg.memdesc<32x64xf16, #operand, #smem, mutable> -> !ttg.memdesc<64x32xf16, #turned, #smem, mutable>
      %dot = ttng.warp_group_dot %a, %bt, %acc, %true {inputPrecision = 0 : i32, isAsync = true} : !ttg.memdesc<64x64xf16, #operand, #smem, mutable> * !ttg.memdesc<64x32xf16, #turned, #smem, mutable> -> tensor<64x32xf32, #mma>
      %done = ttng.warp_group_dot_wait %dot {pendings = 0 : i32} : tensor<64x32xf32, #mma>
      scf.yield %done : tensor<64x32xf32, #mma>
    }
    %half = arith.truncf %sum : tensor<64x32xf32, #mma> to tensor<64x32xf16, #mma>
    ttg.local_store %half, %c : tensor<64x32xf16, #mma> -> !ttg.memdesc<64x32xf16, #result, #smem, mutable>
    ttng.fence_async_shared {bCluster = false}
    ttng.async_tma_copy_local_to_global %y[%c0, %c0] %c : !tt.tensordesc<64x32xf16, #result>, !ttg.memdesc<64x32xf16, #result, #smem, mutable>
    ttng.async_tma_store_wait {pendings = 0 : i32, read_only}
    tt.return
  }
}
