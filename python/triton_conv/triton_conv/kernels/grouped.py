"""Narrow groups on the tensor cores: several side by side in a bundle of 16 channels, by a block-diagonal matrix.

The loads go through the L1 cache, where most of a tap's pixels are those of the tap before it. Zeros of the matrix times an
infinity or a NaN of another group would be NaN; a tile whose result is not finite is therefore computed again without them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import aggregate
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .direct import finish

SIZES = (
    "rows bundles K C D H W Z P Q T R S stride_d stride_h stride_w before_d before_h before_w dilation_d dilation_h "
    "dilation_w x_n x_d x_h x_w").split()
BUNDLE = gl.constexpr(16)  # channels: the K of an MMA
ALIGNED = gl.constexpr(4)  # channels that are loaded at once


@aggregate
class Pixels:
    """The base positions of a tile's rows, [BLOCK_M, 1], and what a tap adds to them. Strides count in units of ALIGNED elements."""
    pointer: gl.tensor
    d: gl.tensor
    h: gl.tensor
    w: gl.tensor
    D: gl.tensor
    H: gl.tensor
    W: gl.tensor
    dilation_d: gl.tensor
    dilation_h: gl.tensor
    dilation_w: gl.tensor
    x_d: gl.tensor
    x_h: gl.tensor
    x_w: gl.tensor

    @gluon.jit
    def tap(self, t, r, s):
        """How far the tap's pixels are from the base, in elements, and which are inside."""
        d, h, w = t * self.dilation_d, r * self.dilation_h, s * self.dilation_w
        inside = ((self.d + d >= 0) & (self.d + d < self.D) & (self.h + h >= 0) & (self.h + h < self.H) &
                  (self.w + w >= 0) & (self.w + w < self.W))
        return (d.to(gl.int64) * self.x_d + h.to(gl.int64) * self.x_h + w.to(gl.int64) * self.x_w) * ALIGNED, inside


@gluon.jit
def pixels_of(x, row, rows, D, H, W, Z, P, Q, stride_d, stride_h, stride_w, before_d, before_h, before_w, dilation_d,
              dilation_h, dilation_w, x_n, x_d, x_h, x_w):
    q = (row % Q).to(gl.int32)
    line = row // Q
    p = (line % P).to(gl.int32)
    plane = line // P
    d = (plane % Z).to(gl.int32) * stride_d - before_d
    h = p * stride_h - before_h
    w = q * stride_w - before_w
    offset = plane // Z * x_n + d.to(gl.int64) * x_d + h.to(gl.int64) * x_h + w.to(gl.int64) * x_w
    d = gl.where(row < rows, d, -2**30)  # never inside
    return Pixels(x + offset * ALIGNED, d, h, w, D, H, W, dilation_d, dilation_h, dilation_w, x_d, x_h, x_w)


@gluon.jit
def exact_bundle(pixels, w, y, residual, bias, row, rows, bundle, bundles, K, C, T, R, S, BLOCK_N: gl.constexpr,
                 WIDTH: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr, ACTIVATION: gl.constexpr,
                 layout: gl.constexpr):
    """A bundle of a tile by the channels of its own groups only, WIDTH of each."""
    n = gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))[None, :]
    first_of_group = n // (BLOCK_N * WIDTH // BUNDLE) * WIDTH
    channel = bundle * BUNDLE + first_of_group
    matrix = w + (bundle * (BLOCK_N * BUNDLE) + n * BUNDLE + first_of_group)
    acc = gl.zeros([row.shape[0], BLOCK_N], gl.float32, layout)
    for t in range(T):
        for r in range(R):
            for s in range(S):
                offset, inside = pixels.tap(t, r, s)
                for c in range(WIDTH):
                    a = gl.load(pixels.pointer + offset + channel + c, mask=inside & (channel < C), other=0.0)
                    b = gl.load(matrix + c, mask=channel < C, other=0.0)
                    acc += a.to(gl.float32) * b.to(gl.float32)
                matrix += bundles * (BLOCK_N * BUNDLE)
    k = bundle * BLOCK_N + n
    finish(acc, y, residual, bias, row * K + k, k, (row < rows) & (k < K), k < K, HAS_BIAS, HAS_RESIDUAL, ACTIVATION)


@gluon.jit
def multiply(accumulators, pointer, inside, channel, C, matrix, bundles, BLOCK_N: gl.constexpr):
    """A tap of all bundles."""
    result = ()
    for i in gl.static_range(len(accumulators)):
        a = gl.load(pointer + i * BUNDLE, mask=inside & (channel < C - i * BUNDLE), other=0.0)
        b = gl.load(matrix + i * (BLOCK_N * BUNDLE), mask=i < bundles, other=0.0)
        result = result + (mma_v2(a, b, accumulators[i]), )
    return result


@gluon.jit(do_not_specialize=SIZES)
def grouped_kernel(x, w, y, residual, bias, rows, bundles, K, C, D, H, W, Z, P, Q, T, R, S, stride_d, stride_h,
                   stride_w, before_d, before_h, before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w,
                   BUNDLES: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr,
                   STORED: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr, ACTIVATION: gl.constexpr):
    """y (rows, K) from x (N, D, H, W, C), whose strides are x_*, and w (T, R, S, bundles, BLOCK_N, 16).

    A program computes BLOCK_M rows of BUNDLES bundles. BLOCK_N are a bundle's output channels, WIDTH a group's channels.
    C and the strides of x count in units of ALIGNED, K in units of STORED elements.
    """
    gdc_wait()
    gdc_launch_dependents()
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [gl.num_warps(), 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 4)
    right: gl.constexpr = gl.DotOperandLayout(1, mma, 4)
    C *= ALIGNED
    K *= STORED
    blocks = gl.cdiv(bundles, BUNDLES)
    first_bundle = gl.program_id(0) % blocks * BUNDLES
    first_m = (gl.program_id(0) // blocks).to(gl.int64) * BLOCK_M

    row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, left))[:, None]
    pixels = pixels_of(x, row, rows, D, H, W, Z, P, Q, stride_d, stride_h, stride_w, before_d, before_h, before_w,
                       dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w)
    channel = first_bundle * BUNDLE + gl.arange(0, BUNDLE, gl.SliceLayout(0, left))[None, :]
    pixel = pixels.pointer + channel
    matrix = w + (first_bundle * (BLOCK_N * BUNDLE) + gl.arange(0, BUNDLE, gl.SliceLayout(1, right))[:, None] +
                  gl.arange(0, BLOCK_N, gl.SliceLayout(0, right))[None, :] * BUNDLE)
    accumulators = ()
    for _ in gl.static_range(BUNDLES):
        accumulators = accumulators + (gl.zeros([BLOCK_M, BLOCK_N], gl.float32, mma), )
    for t in range(T):
        for r in range(R):
            for s in range(S):
                offset, inside = pixels.tap(t, r, s)
                accumulators = multiply(accumulators, pixel + offset, inside, channel, C, matrix,
                                        bundles - first_bundle, BLOCK_N)
                matrix += bundles * (BLOCK_N * BUNDLE)

    not_finite = 0.0
    for i in gl.static_range(BUNDLES):
        not_finite += gl.sum(gl.sum(accumulators[i] * 0.0, 1), 0)
    if not_finite == 0:
        out: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BLOCK_N, BLOCK_N // 8], [gl.num_warps(), 1], [1, 0])
        out_row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, out))[:, None]
        for i in gl.static_range(BUNDLES):
            k = (first_bundle + i) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, out))[None, :]
            finish(gl.convert_layout(accumulators[i], out), y, residual, bias, out_row * K + k, k,
                   (out_row < rows) & (k < K), k < K, HAS_BIAS, HAS_RESIDUAL, ACTIVATION)
    else:
        exact: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32] if BLOCK_N >= 32 else [32 // BLOCK_N, BLOCK_N],
                                               [gl.num_warps(), 1], [1, 0])
        exact_row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, exact))[:, None]
        sources = pixels_of(x, exact_row, rows, D, H, W, Z, P, Q, stride_d, stride_h, stride_w, before_d, before_h,
                            before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w)
        for each in range(first_bundle, gl.minimum(first_bundle + BUNDLES, bundles)):
            exact_bundle(sources, w, y, residual, bias, exact_row, rows, each, bundles, K, C, T, R, S, BLOCK_N, WIDTH,
                         HAS_BIAS, HAS_RESIDUAL, ACTIVATION, exact)
