"""A convolution on the CUDA cores, for groups too narrow for the tensor cores, and depthwise ones."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .epilogue import activate

SIZES = (
    "rows K C group_k D H W Z P Q T R S stride_d stride_h stride_w before_d before_h before_w dilation_d dilation_h "
    "dilation_w x_n x_d x_h x_w").split()


@gluon.jit(do_not_specialize=SIZES)
def direct_kernel(x, w, y, residual, bias, rows, K, C, group_k, D, H, W, Z, P, Q, T, R, S, stride_d, stride_h, stride_w,
                  before_d, before_h, before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w,
                  BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
                  ACTIVATION: gl.constexpr):
    """y [rows, K]; K counts all groups, C and group_k are those of one. x_* are strides in elements; w is (K, T, R, S, C)."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [32 * 4 // BLOCK_N, BLOCK_N // 4], [gl.num_warps(), 1], [1, 0])
    blocks_n = gl.cdiv(K, BLOCK_N)
    row = gl.program_id(0).to(gl.int64) // blocks_n * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    k = gl.program_id(0) % blocks_n * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
    in_rows = row < rows
    in_k = k < K
    q = (row % Q).to(gl.int32)
    line = row // Q
    p = (line % P).to(gl.int32)
    plane = line // P
    d0 = (plane % Z).to(gl.int32) * stride_d - before_d
    h0 = p * stride_h - before_h
    w0 = q * stride_w - before_w
    image = plane // Z * x_n
    first_channel = k // group_k * C
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    for t in range(T):
        for r in range(R):
            for s in range(S):
                dd = d0 + t * dilation_d
                hh = h0 + r * dilation_h
                ww = w0 + s * dilation_w
                inside = in_rows & (dd >= 0) & (dd < D) & (hh >= 0) & (hh < H) & (ww >= 0) & (ww < W)
                pixel = image + dd.to(gl.int64) * x_d + hh.to(gl.int64) * x_h + ww.to(gl.int64) * x_w
                mask = inside[:, None] & in_k[None, :]
                weight = w + (k * T * R * S + (t * R + r) * S + s).to(gl.int64) * C
                for c in range(C):
                    a = gl.load(x + pixel[:, None] + (first_channel + c)[None, :], mask=mask, other=0.0)
                    b = gl.load(weight + c, mask=in_k, other=0.0).to(gl.float32)
                    acc += a.to(gl.float32) * b[None, :]
    mask = in_rows[:, None] & in_k[None, :]
    place = row[:, None] * K + k[None, :]
    if HAS_BIAS:
        acc += gl.load(bias + k, mask=in_k, other=0.0).to(gl.float32)[None, :]
    if HAS_RESIDUAL:
        acc += gl.load(residual + place, mask=mask, other=0.0).to(gl.float32)
    gl.store(y + place, activate(acc, ACTIVATION).to(y.dtype.element_ty), mask=mask)
