// RUN: triton-opt %s -split-input-file --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' | FileCheck %s

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

  // With a cache policy as well, the policy comes after the mask.
  // CHECK-LABEL: llvm.func @multicast_with_policy
  // CHECK: %[[POLICY:.*]] = llvm.inline_asm {{.*}}createpolicy.fractional.L2::evict_last.L2::evict_first.b64 $0, 0.5
  // CHECK: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [$1], [$2, {$3, $4, $5, $6}], [$7], {$8, $9}, $10, $11;"
  // CHECK-SAME: %arg8, %arg7, %{{[0-9]+}}, %[[POLICY]] :
  tt.func @multicast_with_policy(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                                 %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {cachePolicy = #ttng.cache_policy<l2_primary = evict_last, l2_secondary = evict_first, l2_fraction = 5.000000e-01 : f32>, multicast} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// The policy is the last operand, and the descriptor's coordinates and offsets stand where they stand without one.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @policy
  // CHECK: %[[POLICY:.*]] = llvm.inline_asm {{.*}}createpolicy.fractional.L2::evict_first.b64 $0, 1
  // CHECK: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint [$1], [$2, {$3, $4, $5, $6}], [$7], {$8, $9}, $10;"
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %{{[0-9]+}}, %{{[0-9]+}}, %arg4, %arg3, %{{[0-9]+}}, %arg8, %arg7, %[[POLICY]] :
  tt.func @policy(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                  %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {cachePolicy = #ttng.cache_policy<l2_primary = evict_first, l2_secondary = evict_unchanged, l2_fraction = 1.000000e+00 : f32>} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
