// RUN: triton-opt %s --gluon-inline | FileCheck %s

// A helper that takes an im2col descriptor, as Gluon's front end makes of a called function, ends in its caller with the
// caller's operands in the helper's places: the two offsets are exchanged by the call, and so must they be here.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: tt.func public @caller
  // CHECK-NOT: tt.call
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5, %arg6] offsets = [%arg8, %arg7] %arg1, %arg2, %{{.*}} : !ttng.tensordesc_im2col<64x32xf16, #shared>
  // CHECK-NOT: tt.call
  // CHECK: tt.return
  tt.func public @caller(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                         %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16) {
    tt.call @helper(%d, %b, %m, %n, %h, %w, %c, %s, %r) : (!ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, !ttg.memdesc<1xi64, #bar, #smem, mutable>, i32, i32, i32, i32, i16, i16) -> ()
    tt.return
  }

  tt.func private @helper(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                          %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16) attributes {noinline = false} {
    %true = arith.constant true
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %true : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
