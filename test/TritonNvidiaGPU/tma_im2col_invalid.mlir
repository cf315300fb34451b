// RUN: triton-opt %s -split-input-file -verify-diagnostics

// Each error that the verifier of an im2col load can give, once.

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

// One offset a spatial dimension: two for [n, h, w, c].
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @too_few_offsets(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op IM2COL mode with 4D coordinates requires 2 offsets, but got 1}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @too_many_offsets(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op IM2COL mode with 3D coordinates requires 1 offsets, but got 2}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] offsets = [%o, %o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @no_offsets(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op IM2COL mode requires offsets to be provided}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

// The least tensor is [n, w, c].
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @too_few_coordinates(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op IM2COL mode requires at least 3D coordinates, but got 2D}}
    ttng.async_tma_copy_global_to_local %d[%c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

// A tensor map has five dimensions at most.
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @too_many_coordinates(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op IM2COL mode supports at most 5D coordinates, but got 6D}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c, %c, %c, %c] offsets = [%o, %o, %o, %o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @tiled_with_offsets(%d: !tt.tensordesc<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op TILED mode does not support offsets}}
    ttng.async_tma_copy_global_to_local %d[%c, %c] offsets = [%o] %b, %m, %p : !tt.tensordesc<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @another_size(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<32x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op descriptor block and tensor must have the same number of elements}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<32x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @another_type(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xbf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op descriptor block and tensor element types must match, but got descriptor element type 'f16' and tensor element type 'bf16'}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xbf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @another_layout(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #other, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op TMA descriptor layout must match shared layout}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #other, #smem, mutable>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#other = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @immutable(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %c: i32, %o: i16, %p: i1) {
    // expected-error @+1 {{op cannot store into immutable memory}}
    ttng.async_tma_copy_global_to_local %d[%c, %c, %c] offsets = [%o] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem>
    tt.return
  }
}

// -----

#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // expected-error @+1 {{TensorDescIm2ColType requires rank-2 shape, got rank 3}}
  tt.func @block_of_rank_3(%d: !ttng.tensordesc_im2col<1x64x32xf16, #shared>) {
    tt.return
  }
}

// -----

// A copy for both programs of a cluster needs a layout that broadcasts over them; here each one holds half.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, CGALayout = [[1, 0]]}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func @multicast_of_halves(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>,
                               %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %r: i16, %s: i16, %p: i1) {
    // expected-error @+1 {{op multicast requires the shared layout to broadcast across CTAs}}
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%r, %s] %b, %m, %p {multicast} : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
