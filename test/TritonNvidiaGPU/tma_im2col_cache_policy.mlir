// RUN: triton-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// A cache policy is an attribute of the load, and takes the place of the older ones for modifier and eviction.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: tt.func @policy
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5] offsets = [%arg6] %arg1, %arg2, %arg7 {cachePolicy = #ttng.cache_policy<l2_primary = evict_first, l2_secondary = evict_unchanged, l2_fraction = 1.000000e+00 : f32>} :
  tt.func @policy(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                  %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %p {cachePolicy = #ttng.cache_policy<l2_primary = evict_first, l2_secondary = evict_unchanged, l2_fraction = 1.000000e+00 : f32>} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @legacy(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                  %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    // expected-error @+1 {{op use cachePolicy instead of legacy cache/evict attributes}}
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {evict = 2 : i32} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @volatile(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                  %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    // expected-error @+1 {{op volatile TMA loads are not supported}}
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {isVolatile = true} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
