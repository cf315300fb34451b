// RUN: triton-opt %s -split-input-file --allocate-shared-memory-nv='compute-capability=90 ptx-version=83' --convert-triton-gpu-to-llvm='compute-capability=90 ptx-version=83' | FileCheck %s

// One thread of one warp issues a message: %arg9 and the like is the load's predicate, and it must reach the instruction
// together with the election of a thread and the choice of the warps that have a message to send.

// The instruction wants coordinates innermost first, {c, w, n}, and a single offset.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @rank3
  // CHECK-SAME: %[[DESC:arg0]]: {{[^,]*}}llvm.ptr
  // CHECK-DAG: %[[TID:.*]] = nvvm.read.ptx.sreg.tid.x
  // CHECK-DAG: %[[LOW:.*]] = llvm.and %[[TID]], %{{.*}} : i32
  // CHECK-DAG: %[[BAR:.*]] = llvm.extractvalue %arg2[0]
  // CHECK-DAG: %[[ELECTED:.*]] = nvvm.elect.sync
  // CHECK: %[[WANTED:.*]] = llvm.and %arg7, %[[ELECTED]] : i1
  // CHECK: %[[ONE_WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK-NEXT: %[[FIRST:.*]] = llvm.icmp "ult" %[[LOW]], %[[ONE_WARP]]
  // CHECK-NEXT: %[[PRED:.*]] = llvm.and %[[WANTED]], %[[FIRST]]
  // CHECK: %[[C:.*]] = llvm.add %arg5, %{{.*}} : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg4, %{{.*}} : i32
  // CHECK-NEXT: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [$1], [$2, {$3, $4, $5}], [$6], {$7};", "b,r,l,r,r,r,r,h"
  // CHECK-SAME: %[[PRED]], %{{[0-9]+}}, %[[DESC]], %[[C]], %[[W]], %arg3, %[[BAR]], %arg6 :
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @rank3(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %w: i32, %c: i32, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %w, %c] offsets = [%ow] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// {c, w, h, n} and the offsets {w, h}: both reversed.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @rank4
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg5, %{{.*}} : i32
  // CHECK-NEXT: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [$1], [$2, {$3, $4, $5, $6}], [$7], {$8, $9};", "b,r,l,r,r,r,r,r,h,h"
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]], %[[W]], %arg4, %arg3, %{{[0-9]+}}, %arg8, %arg7 :
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @rank4(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// {c, w, h, d, n} and the offsets {w, h, d}.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @rank5
  // CHECK: %[[C:.*]] = llvm.add %arg7, %{{.*}} : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK-NEXT: llvm.inline_asm has_side_effects
  // CHECK-SAME: "@$0 cp.async.bulk.tensor.5d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [$1], [$2, {$3, $4, $5, $6, $7}], [$8], {$9, $10, $11};", "b,r,l,r,r,r,r,r,r,h,h,h"
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]], %[[W]], %arg5, %arg4, %arg3, %{{[0-9]+}}, %arg10, %arg9, %arg8 :
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @rank5(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %z: i32, %h: i32, %w: i32, %c: i32, %oz: i16, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %z, %h, %w, %c] offsets = [%oz, %oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// 128 channels of 2 bytes under a swizzle of 128 bytes are two messages of 64. Two warps send one each: the second one's
// channels begin 64 = 1 << 6 further, and its part of shared memory 64 pixels of 64 channels, 1 << 12 elements.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @two_messages
  // CHECK: %[[WARP:.*]] = ttg.warp_id
  // CHECK: %[[TWO_WARPS:.*]] = llvm.mlir.constant(64 : i32)
  // CHECK-NEXT: llvm.icmp "ult" %{{.*}}, %[[TWO_WARPS]]
  // CHECK: llvm.mlir.constant(12 : i32)
  // CHECK-NEXT: %[[ELEMENTS:.*]] = llvm.shl
  // CHECK: %[[TARGET:.*]] = llvm.getelementptr %{{.*}} : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f16
  // CHECK: llvm.mlir.constant(6 : i32)
  // CHECK-NEXT: %[[CHANNELS:.*]] = llvm.shl
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK: llvm.inline_asm {{.*}}cp.async.bulk.tensor.4d.{{.*}}im2col
  // CHECK-SAME: %{{[0-9]+}}, %[[TARGET]], %arg0, %[[C]],
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @two_messages(%d: !ttng.tensordesc_im2col<64x128xf16, #shared>, %b: !ttg.memdesc<64x128xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x128xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x128xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// With one warp, the same two messages go one after the other.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 1 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @two_messages_of_one_warp
  // CHECK-COUNT-2: cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @two_messages_of_one_warp(%d: !ttng.tensordesc_im2col<64x128xf16, #shared>, %b: !ttg.memdesc<64x128xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x128xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x128xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// A swizzle of 64 bytes takes 32 channels a message: four, on four warps.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 8 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @four_messages
  // CHECK: %[[FOUR_WARPS:.*]] = llvm.mlir.constant(128 : i32)
  // CHECK-NEXT: llvm.icmp "ult" %{{.*}}, %[[FOUR_WARPS]]
  // CHECK-COUNT-1: cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @four_messages(%d: !ttng.tensordesc_im2col<64x128xf16, #shared>, %b: !ttg.memdesc<64x128xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x128xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x128xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// A swizzle of 32 bytes takes 16 channels a message: four for 64, each 16 = 1 << 4 channels on, on the four warps.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @messages_of_16_channels
  // CHECK: %[[FOUR_WARPS:.*]] = llvm.mlir.constant(128 : i32)
  // CHECK-NEXT: llvm.icmp "ult" %{{.*}}, %[[FOUR_WARPS]]
  // CHECK: llvm.mlir.constant(10 : i32)
  // CHECK-NEXT: llvm.shl
  // CHECK: llvm.mlir.constant(4 : i32)
  // CHECK-NEXT: %[[CHANNELS:.*]] = llvm.shl
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK: llvm.inline_asm {{.*}}cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]],
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @messages_of_16_channels(%d: !ttng.tensordesc_im2col<64x64xf16, #shared>, %b: !ttg.memdesc<64x64xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x64xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// Without a swizzle a message has up to 256 channels.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 0, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 8 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @one_message_of_256_channels
  // CHECK: %[[ONE_WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK-NEXT: llvm.icmp "ult" %{{.*}}, %[[ONE_WARP]]
  // CHECK-COUNT-1: cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @one_message_of_256_channels(%d: !ttng.tensordesc_im2col<16x256xf16, #shared>, %b: !ttg.memdesc<16x256xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<16x256xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<16x256xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// A slot of a ring: 64 x 32 elements further for each, for the block, and one barrier of 8 bytes.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @ring
  // CHECK: %[[BLOCK:.*]] = llvm.mlir.constant(2048 : i32)
  // CHECK-NEXT: %[[ELEMENTS:.*]] = llvm.mul %arg7, %[[BLOCK]] : i32
  // CHECK: %[[SLOT:.*]] = llvm.getelementptr %{{.*}}[%[[ELEMENTS]]] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f16
  // CHECK: cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK: llvm.return
  tt.func @ring(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %ring: !ttg.memdesc<3x64x32xf16, #shared, #smem, mutable>, %bars: !ttg.memdesc<3x1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %slot: i32, %oh: i16, %ow: i16, %p: i1) {
    %b = ttg.memdesc_index %ring[%slot] : !ttg.memdesc<3x64x32xf16, #shared, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    %m = ttg.memdesc_index %bars[%slot] : !ttg.memdesc<3x1xi64, #bar, #smem, mutable> -> !ttg.memdesc<1xi64, #bar, #smem, mutable>
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// Two warps share four messages: two for each, one after the other, and the second pair 64 = 2 << 5 channels on.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 2 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @four_messages_of_two_warps
  // CHECK: %[[TWO_WARPS:.*]] = llvm.mlir.constant(64 : i32)
  // CHECK-NEXT: llvm.icmp "ult" %{{.*}}, %[[TWO_WARPS]]
  // CHECK: cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
  // CHECK: %[[NEXT:.*]] = llvm.mlir.constant(2 : i32)
  // CHECK-NEXT: llvm.add %{{.*}}, %[[NEXT]] : i32
  // CHECK: llvm.mlir.constant(5 : i32)
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK-COUNT-1: cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @four_messages_of_two_warps(%d: !ttng.tensordesc_im2col<64x128xf16, #shared>, %b: !ttg.memdesc<64x128xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<1xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x128xf16, #shared>, !ttg.memdesc<1xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x128xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// Two programs of a cluster take half of the channels each: the second one begins 32 = 1 << 5 further, for its own barrier.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, CGALayout = [[0, 1]]}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @halves_of_channels
  // CHECK: nvg.cluster_id
  // CHECK: llvm.mlir.constant(5 : i32)
  // CHECK-NEXT: %[[HALF:.*]] = llvm.shl %{{.*}}, %{{.*}} : i32
  // CHECK: %[[JOINED:.*]] = llvm.or disjoint %[[HALF]], %{{.*}} : i32
  // CHECK-NEXT: %[[ON:.*]] = llvm.xor %{{.*}}, %[[JOINED]] : i32
  // CHECK: %[[C:.*]] = llvm.add %arg6, %[[ON]] : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg5, %{{.*}} : i32
  // CHECK: llvm.inline_asm {{.*}}cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]], %[[W]], %arg4, %arg3, %{{[0-9]+}}, %arg8, %arg7 :
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @halves_of_channels(%d: !ttng.tensordesc_im2col<64x64xf16, #shared>, %b: !ttg.memdesc<64x64xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x64xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x64xf16, #shared, #smem, mutable>
    tt.return
  }
}

// -----

// With half of the pixels each, the second program begins 32 = 1 << 5 further along w. The hardware goes on in the next row
// after a row's last pixel, which a sum does not: docs/gluon/upstream-findings.md.
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, CGALayout = [[1, 0]]}>
#bar = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0], CGALayout = [[1]]}>
#smem = #ttg.shared_memory

module attributes {"ttg.num-ctas" = 2 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  // CHECK-LABEL: llvm.func @halves_of_pixels
  // CHECK: nvg.cluster_id
  // CHECK: llvm.mlir.constant(5 : i32)
  // CHECK-NEXT: %[[HALF:.*]] = llvm.shl %{{.*}}, %{{.*}} : i32
  // CHECK: %[[JOINED:.*]] = llvm.or disjoint %[[HALF]], %{{.*}} : i32
  // CHECK-NEXT: %[[ON:.*]] = llvm.xor %{{.*}}, %[[JOINED]] : i32
  // CHECK: %[[C:.*]] = llvm.add %arg6, %{{.*}} : i32
  // CHECK-NEXT: %[[W:.*]] = llvm.add %arg5, %[[ON]] : i32
  // CHECK: llvm.inline_asm {{.*}}cp.async.bulk.tensor.4d.shared::cta.global.im2col
  // CHECK-SAME: %{{[0-9]+}}, %{{[0-9]+}}, %arg0, %[[C]], %[[W]], %arg4, %arg3, %{{[0-9]+}}, %arg8, %arg7 :
  // CHECK-NOT: llvm.inline_asm
  // CHECK: llvm.return
  tt.func @halves_of_pixels(%d: !ttng.tensordesc_im2col<64x32xf16, #shared>, %b: !ttg.memdesc<64x32xf16, #shared, #smem, mutable>, %m: !ttg.memdesc<2xi64, #bar, #smem, mutable>, %n: i32, %h: i32, %w: i32, %c: i32, %oh: i16, %ow: i16, %p: i1) {
    ttng.async_tma_copy_global_to_local %d[%n, %h, %w, %c] offsets = [%oh, %ow] %b, %m, %p : !ttng.tensordesc_im2col<64x32xf16, #shared>, !ttg.memdesc<2xi64, #bar, #smem, mutable> -> !ttg.memdesc<64x32xf16, #shared, #smem, mutable>
    tt.return
  }
}
