// RUN: triton-opt %s --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' | FileCheck %s

// The same block for both programs of a cluster: one of them issues, to the cluster's shared memory, and the mask of the
// receivers stands last, after the offsets.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, CGALayout = [[0, 0]]}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @multicast
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg5, %{{.*}} : i32
  // CHECK: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [$1], [$2, {$3, $4, $5, $6}], [$7], {$8, $9}, $10;"
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]], %[[W]], %arg4, %arg3, %{{[0-9]+}}, %arg8, %arg7, %{{[0-9]+}} :
  tt.func @multicast(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                     %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {multicast} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
