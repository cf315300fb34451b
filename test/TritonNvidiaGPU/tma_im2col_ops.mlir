// RUN: triton-opt %s | triton-opt | FileCheck %s

// An im2col descriptor's block is [pixels, channels], whatever the rank of the tensor behind it: the coordinates and the
// offsets say the rank. What is printed must parse to the same again, hence the second triton-opt.

#shared0 = #ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 8}>
#shared32 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#shared64 = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#shared128 = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 32}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {

  // CHECK-LABEL: tt.func @rank3
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5] offsets = [%arg6] %arg1, %arg2, %arg7 :
  // CHECK-SAME: !ttng.tensordesc_im2col<64x16xbf16, #[[S32:[a-z0-9]+]]>, !ttg.memdesc<1xi64, #{{.*}}, #smem, mutable> -> !ttg.memdesc<64x16xbf16, #[[S32]], #smem, mutable>
  tt.func @rank3(%d: !ttng.tensordesc_im2col<64x16xbf16, #shared32>, %b: !ttg.memdesc<64x16xbf16, #shared32, #smem, mutable>,
                 %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %p : !ttng.tensordesc_im2col<64x16xbf16, #shared32>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x16xbf16, #shared32, #smem, mutable>
    tt.return
  }

  // CHECK-LABEL: tt.func @rank4
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5, %arg6] offsets = [%arg7, %arg8] %arg1, %arg2, %arg9 :
  // CHECK-SAME: !ttng.tensordesc_im2col<128x32xf16, #{{[a-z0-9]+}}>
  tt.func @rank4(%d: !ttng.tensordesc_im2col<128x32xf16, #shared64>, %b: !ttg.memdesc<128x32xf16, #shared64, #smem, mutable>,
                 %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<128x32xf16, #shared64>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<128x32xf16, #shared64, #smem, mutable>
    tt.return
  }

  // CHECK-LABEL: tt.func @rank5
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5, %arg6, %arg7] offsets = [%arg8, %arg9, %arg10] %arg1, %arg2, %arg11 :
  // CHECK-SAME: !ttng.tensordesc_im2col<16x32xf32, #{{[a-z0-9]+}}>
  tt.func @rank5(%d: !ttng.tensordesc_im2col<16x32xf32, #shared128>, %b: !ttg.memdesc<16x32xf32, #shared128, #smem, mutable>,
                 %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %z: i32, %h: i32, %w: i32, %c: i32, %oz: i16, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %z, %h, %w, %c] offsets = [%oz, %oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<16x32xf32, #shared128>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<16x32xf32, #shared128, #smem, mutable>
    tt.return
  }

  // The signedness of an integer is the descriptor's; shared memory holds plain integers.
  // CHECK-LABEL: tt.func @unsigned_bytes
  // CHECK: !ttng.tensordesc_im2col<8x16xui8, #{{[a-z0-9]+}}>, !ttg.memdesc<1xi64, {{.*}}> -> !ttg.memdesc<8x16xi8,
  tt.func @unsigned_bytes(%d: !ttng.tensordesc_im2col<8x16xui8, #shared0>, %b: !ttg.memdesc<8x16xi8, #shared0, #smem, mutable>,
                          %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %p : !ttng.tensordesc_im2col<8x16xui8, #shared0>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<8x16xi8, #shared0, #smem, mutable>
    tt.return
  }
}
