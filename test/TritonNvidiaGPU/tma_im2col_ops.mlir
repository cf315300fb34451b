// RUN: triton-opt %s -split-input-file | triton-opt -split-input-file | FileCheck %s

// An im2col descriptor's block is [pixels, channels], whatever the rank of the tensor behind it: the coordinates and the
// offsets say the rank. What is printed must parse to the same again, hence the second triton-opt.

#shared0 = #ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 8}>
#shared32 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#shared64 = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#shared128 = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 32}>
#s0x8 = #ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 8}>
#s32x8 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 8}>
#s64x8 = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 8}>
#s0x16 = #ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 16}>
#s32x16 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#s64x16 = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#s128x16 = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#s32x32 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 32}>
#s64x32 = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 32}>
#s128x32 = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 32}>
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

  // Every element type that the instruction knows, with every swizzle.
  // CHECK-LABEL: tt.func @types
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x16xsi8, #[[S0X8:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x16xi8, #[[S0X8]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x32xf8E4M3FN, #[[S32X8:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x32xf8E4M3FN, #[[S32X8]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x64xf8E5M2, #[[S64X8:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x64xf8E5M2, #[[S64X8]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x64xsi16, #[[S128X16:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x64xi16, #[[S128X16]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x8xui16, #[[S0X16:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x8xi16, #[[S0X16]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x16xf16, #[[S32X16:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x16xf16, #[[S32X16]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x32xbf16, #[[S64X16:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x32xbf16, #[[S64X16]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x32xsi32, #[[S128X32:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x32xi32, #[[S128X32]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x16xui32, #[[S64X32:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x16xi32, #[[S64X32]], #smem, mutable>
  // CHECK: ttng.async_tma_copy_global_to_local {{.*}}!ttng.tensordesc_im2col<32x8xf32, #[[S32X32:[a-z0-9]+]]>,{{.*}} -> !ttg.memdesc<32x8xf32, #[[S32X32]], #smem, mutable>
  tt.func @types(%m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1,
                 %d0: !ttng.tensordesc_im2col<32x16xsi8, #s0x8>, %b0: !ttg.memdesc<32x16xi8, #s0x8, #smem, mutable>,
                 %d1: !ttng.tensordesc_im2col<32x32xf8E4M3FN, #s32x8>, %b1: !ttg.memdesc<32x32xf8E4M3FN, #s32x8, #smem, mutable>,
                 %d2: !ttng.tensordesc_im2col<32x64xf8E5M2, #s64x8>, %b2: !ttg.memdesc<32x64xf8E5M2, #s64x8, #smem, mutable>,
                 %d3: !ttng.tensordesc_im2col<32x64xsi16, #s128x16>, %b3: !ttg.memdesc<32x64xi16, #s128x16, #smem, mutable>,
                 %d4: !ttng.tensordesc_im2col<32x8xui16, #s0x16>, %b4: !ttg.memdesc<32x8xi16, #s0x16, #smem, mutable>,
                 %d5: !ttng.tensordesc_im2col<32x16xf16, #s32x16>, %b5: !ttg.memdesc<32x16xf16, #s32x16, #smem, mutable>,
                 %d6: !ttng.tensordesc_im2col<32x32xbf16, #s64x16>, %b6: !ttg.memdesc<32x32xbf16, #s64x16, #smem, mutable>,
                 %d7: !ttng.tensordesc_im2col<32x32xsi32, #s128x32>, %b7: !ttg.memdesc<32x32xi32, #s128x32, #smem, mutable>,
                 %d8: !ttng.tensordesc_im2col<32x16xui32, #s64x32>, %b8: !ttg.memdesc<32x16xi32, #s64x32, #smem, mutable>,
                 %d9: !ttng.tensordesc_im2col<32x8xf32, #s32x32>, %b9: !ttg.memdesc<32x8xf32, #s32x32, #smem, mutable>) {
    ttng.async_tma_copy_global_to_local %d0[%n, %w, %c] offsets = [%ow] %b0, %m, %p : !ttng.tensordesc_im2col<32x16xsi8, #s0x8>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x16xi8, #s0x8, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d1[%n, %w, %c] offsets = [%ow] %b1, %m, %p : !ttng.tensordesc_im2col<32x32xf8E4M3FN, #s32x8>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x32xf8E4M3FN, #s32x8, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d2[%n, %w, %c] offsets = [%ow] %b2, %m, %p : !ttng.tensordesc_im2col<32x64xf8E5M2, #s64x8>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x64xf8E5M2, #s64x8, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d3[%n, %w, %c] offsets = [%ow] %b3, %m, %p : !ttng.tensordesc_im2col<32x64xsi16, #s128x16>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x64xi16, #s128x16, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d4[%n, %w, %c] offsets = [%ow] %b4, %m, %p : !ttng.tensordesc_im2col<32x8xui16, #s0x16>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x8xi16, #s0x16, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d5[%n, %w, %c] offsets = [%ow] %b5, %m, %p : !ttng.tensordesc_im2col<32x16xf16, #s32x16>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x16xf16, #s32x16, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d6[%n, %w, %c] offsets = [%ow] %b6, %m, %p : !ttng.tensordesc_im2col<32x32xbf16, #s64x16>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x32xbf16, #s64x16, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d7[%n, %w, %c] offsets = [%ow] %b7, %m, %p : !ttng.tensordesc_im2col<32x32xsi32, #s128x32>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x32xi32, #s128x32, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d8[%n, %w, %c] offsets = [%ow] %b8, %m, %p : !ttng.tensordesc_im2col<32x16xui32, #s64x32>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x16xi32, #s64x32, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d9[%n, %w, %c] offsets = [%ow] %b9, %m, %p : !ttng.tensordesc_im2col<32x8xf32, #s32x32>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x8xf32, #s32x32, #smem, mutable>
    tt.return
  }
}

// -----

// One block for the shared memory of both programs of a cluster: their layout broadcasts it.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, CGALayout = [[0, 0]]}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: tt.func @multicast
  // CHECK: ttng.async_tma_copy_global_to_local %arg0[%arg3, %arg4, %arg5] offsets = [%arg6] %arg1, %arg2, %arg7 {multicast} :
  tt.func @multicast(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                     %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %p {multicast} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
