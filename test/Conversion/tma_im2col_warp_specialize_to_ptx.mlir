// RUN: triton-opt %s --tritongpu-allocate-warp-groups --convert-scf-to-cf --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --triton-tensor-memory-allocation --triton-nvidia-gpu-proxy-fence-insertion=compute-capability=90 --tritongpu-global-scratch-memory-allocation --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' --canonicalize --cse --convert-warp-specialize-to-llvm --convert-nv-gpu-to-llvm --canonicalize --cse --symbol-dce --convert-nvvm-to-llvm | mlir-translate --mlir-to-llvmir | opt -O3 -S | llc -mtriple=nvptx64-nvidia-cuda -mcpu=sm_90a -mattr=+ptx83 | FileCheck %s

// A load in a partition of one warp, beside four default warps. The worker warps give registers back and take the load; the
// default warps wait for the same barrier. The load is issued once, by an elected thread.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

// CHECK-LABEL: .visible .entry specialized(
// CHECK: mbarrier.init.shared::cta.b64 {{\[}}[[BAR:%r[0-9]+]]], 1;
// CHECK: mbarrier.try_wait.parity.shared::cta.b64
// CHECK: setmaxnreg.dec.sync.aligned.u32 24;
// CHECK: elect.sync
// CHECK: @%p{{[0-9]+}} cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
// CHECK-NOT: cp.async.bulk.tensor

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @specialized(%x: !ttng.tensordesc_im2col<64x32xf16, #shared>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16) {
    %zero = arith.constant 0 : i32
    %true = arith.constant true
    %b = ttg.local_alloc : () -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    %m = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.init_barrier %m, 1 : !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttg.warp_specialize(%x, %b, %m, %n, %h, %w, %c, %r, %s) attributes {requestedRegisters = array<i32: 24>}
    default {
      ttng.wait_barrier %m, %zero, %true : !ttg.memdesc<1xi64, #bar, #smem, mutable>
      ttg.warp_yield
    }
    partition0(%px: !ttng.tensordesc_im2col<64x32xf16, #shared>, %pb: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %pm: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %pn: i32, %ph: i32, %pw: i32, %pc: i32, %pr: i16, %ps: i16) num_warps(1) {
      %yes = arith.constant true
      ttng.barrier_expect %pm, 4096, %yes : !ttg.memdesc<1xi64, #bar, #smem, mutable>
      ttng.async_tma_copy_global_to_local %px[%pn, %ph, %pw, %pc] offsets = [%pr, %ps] %pb, %pm, %yes : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
      ttg.warp_return
    } : (!ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, !ttg.memdesc<1xi64, #bar, #smem, mutable>, i32, i32, i32, i32, i16, i16) -> ()
    tt.return
  }
}
