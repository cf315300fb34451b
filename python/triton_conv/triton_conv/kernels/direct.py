"""A convolution on the CUDA cores, for groups too narrow for the tensor cores, and depthwise ones."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .epilogue import activate

SIZES = (
    "rows groups K C D H W Z P Q T R S stride_d stride_h stride_w before_d before_h before_w dilation_d dilation_h "
    "dilation_w x_n x_d x_h x_w").split()


@gluon.jit
def finish(acc, y, residual, bias, place, k, mask, in_k, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
           ACTIVATION: gl.constexpr):
    if HAS_BIAS:
        acc += gl.load(bias + k, mask=in_k, other=0.0).to(gl.float32)
    if HAS_RESIDUAL:
        acc += gl.load(residual + place, mask=mask, other=0.0).to(gl.float32)
    gl.store(y + place, activate(acc, ACTIVATION).to(y.dtype.element_ty), mask=mask)


@gluon.jit
def direct_tile(tile, x, w, y, residual, bias, rows, groups, K, C, D, H, W, Z, P, Q, T, R, S, stride_d, stride_h,
                stride_w, before_d, before_h, before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w,
                BLOCK_M: gl.constexpr, BLOCK_G: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
                VECTOR: gl.constexpr, WHOLE_K: gl.constexpr, WHOLE_N: gl.constexpr, HAS_BIAS: gl.constexpr,
                HAS_RESIDUAL: gl.constexpr, ACTIVATION: gl.constexpr):
    """BLOCK_M rows of BLOCK_G groups, BLOCK_N of K in each. In a thread, a pixel's BLOCK_K channels of a group are loaded at
    once and meet all BLOCK_N output channels. Where BLOCK_K is all of C, or BLOCK_N all of K (WHOLE_K, WHOLE_N), groups
    lie side by side without a gap, and the load or store of a thread goes over all of its VECTOR groups.
    """
    ACROSS: gl.constexpr = BLOCK_G // VECTOR
    layout: gl.constexpr = gl.BlockedLayout([1, VECTOR, BLOCK_N, BLOCK_K], [32 // ACROSS, ACROSS, 1, 1],
                                            [gl.num_warps(), 1, 1, 1], [3, 2, 1, 0])
    of_output: gl.constexpr = gl.SliceLayout(3, layout)  # [m, g, n]
    of_input: gl.constexpr = gl.SliceLayout(2, layout)  # [m, g, k]
    of_weight: gl.constexpr = gl.SliceLayout(0, layout)  # [g, n, k]

    blocks_g = gl.cdiv(groups, BLOCK_G)
    blocks_n = gl.cdiv(K, BLOCK_N)
    first_n = tile % blocks_n * BLOCK_N
    first_g = tile // blocks_n % blocks_g * BLOCK_G
    first_m = (tile // (blocks_n * blocks_g)).to(gl.int64) * BLOCK_M

    row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, gl.SliceLayout(2, of_input)))
    g = first_g + gl.arange(0, BLOCK_G, gl.SliceLayout(0, gl.SliceLayout(2, of_input)))
    c = gl.arange(0, BLOCK_K, gl.SliceLayout(0, gl.SliceLayout(1, of_input)))
    q = (row % Q).to(gl.int32)
    line = row // Q
    p = (line % P).to(gl.int32)
    plane = line // P
    d0 = (plane % Z).to(gl.int32) * stride_d - before_d
    h0 = p * stride_h - before_h
    w0 = q * stride_w - before_w
    image = plane // Z * x_n
    channel = g[None, :, None] * C + c[None, None, :]
    flat_input: gl.constexpr = gl.BlockedLayout([1, VECTOR * BLOCK_K], [32 // ACROSS, ACROSS], [gl.num_warps(), 1],
                                                [1, 0])
    flat_channel = first_g * BLOCK_K + gl.arange(0, BLOCK_G * BLOCK_K, gl.SliceLayout(0, flat_input))

    weight_g = first_g + gl.arange(0, BLOCK_G, gl.SliceLayout(1, gl.SliceLayout(2, of_weight)))
    weight_n = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, gl.SliceLayout(2, of_weight)))
    weight_c = gl.arange(0, BLOCK_K, gl.SliceLayout(0, gl.SliceLayout(1, of_weight)))
    filter = (weight_g[:, None, None] * K + weight_n[None, :, None]).to(gl.int64) * (T * R * S * C) + weight_c[None,
                                                                                                               None, :]
    in_filter = (weight_g < groups)[:, None, None] & (weight_n < K)[None, :, None]

    acc = gl.zeros([BLOCK_M, BLOCK_G, BLOCK_N], gl.float32, of_output)
    for t in range(T):
        for r in range(R):
            for s in range(S):
                dd = d0 + t * dilation_d
                hh = h0 + r * dilation_h
                ww = w0 + s * dilation_w
                inside = (row < rows) & (dd >= 0) & (dd < D) & (hh >= 0) & (hh < H) & (ww >= 0) & (ww < W)
                pixel = image + dd.to(gl.int64) * x_d + hh.to(gl.int64) * x_h + ww.to(gl.int64) * x_w
                tap = ((t * R + r) * S + s) * C
                if WHOLE_K:
                    pixel = gl.convert_layout(pixel, gl.SliceLayout(1, flat_input))
                    inside = gl.convert_layout(inside, gl.SliceLayout(1, flat_input))
                    mask = inside[:, None] & (flat_channel < groups * BLOCK_K)[None, :]
                    a = gl.load(x + pixel[:, None] + flat_channel[None, :], mask=mask, other=0.0)
                    a = gl.convert_layout(a.reshape([BLOCK_M, BLOCK_G, BLOCK_K]), of_input)
                    b = gl.load(w + filter + tap, mask=in_filter & (weight_c < BLOCK_K)[None, None, :], other=0.0)
                    acc += gl.sum(a.to(gl.float32)[:, :, None, :] * b.to(gl.float32)[None, :, :, :], 3)
                else:
                    mask = inside[:, None, None] & (g < groups)[None, :, None]
                    for first_c in range(0, C, BLOCK_K):
                        a = gl.load(x + pixel[:, None, None] + channel + first_c,
                                    mask=mask & (c < C - first_c)[None, None, :], other=0.0)
                        b = gl.load(w + filter + tap + first_c,
                                    mask=in_filter & (weight_c < C - first_c)[None, None, :], other=0.0)
                        acc += gl.sum(a.to(gl.float32)[:, :, None, :] * b.to(gl.float32)[None, :, :, :], 3)

    if WHOLE_N:
        flat_output: gl.constexpr = gl.BlockedLayout([1, VECTOR * BLOCK_N], [32 // ACROSS, ACROSS], [gl.num_warps(), 1],
                                                     [1, 0])
        result = gl.convert_layout(acc.reshape([BLOCK_M, BLOCK_G * BLOCK_N]), flat_output)
        out_row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, flat_output))
        k = first_g * BLOCK_N + gl.arange(0, BLOCK_G * BLOCK_N, gl.SliceLayout(0, flat_output))
        k = k[None, :]
        in_k = k < groups * BLOCK_N
        row_start = out_row[:, None] * (groups * BLOCK_N)
        mask = (out_row < rows)[:, None] & in_k
        finish(result, y, residual, bias, row_start + k, k, mask, in_k, HAS_BIAS, HAS_RESIDUAL, ACTIVATION)
    else:
        out_row = first_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, gl.SliceLayout(2, of_output)))
        out_g = first_g + gl.arange(0, BLOCK_G, gl.SliceLayout(0, gl.SliceLayout(2, of_output)))
        out_n = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, gl.SliceLayout(1, of_output)))
        k = out_g[None, :, None] * K + out_n[None, None, :]
        in_k = (out_g < groups)[None, :, None] & (out_n < K)[None, None, :]
        place = out_row[:, None, None] * (groups * K) + k
        mask = (out_row < rows)[:, None, None] & in_k
        finish(acc, y, residual, bias, place, k, mask, in_k, HAS_BIAS, HAS_RESIDUAL, ACTIVATION)


@gluon.jit(do_not_specialize=SIZES)
def direct_kernel(x, w, y, residual, bias, flag, rows, groups, K, C, D, H, W, Z, P, Q, T, R, S, stride_d, stride_h,
                  stride_w, before_d, before_h, before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w,
                  BLOCK_M: gl.constexpr, BLOCK_G: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
                  VECTOR: gl.constexpr, WHOLE_K: gl.constexpr, WHOLE_N: gl.constexpr, HAS_BIAS: gl.constexpr,
                  HAS_RESIDUAL: gl.constexpr, ACTIVATION: gl.constexpr, REPAIRS: gl.constexpr):
    """y (rows, groups, K) from x (N, D, H, W, groups, C), whose strides are x_*, and w (groups, K, T, R, S, C).

    With REPAIRS, nothing unless the flag is set; in any case the flag is cleared, by whoever reads it last.
    """
    gdc_wait()
    gdc_launch_dependents()
    tiles = gl.cdiv(rows, BLOCK_M) * gl.cdiv(groups, BLOCK_G) * gl.cdiv(K, BLOCK_N)
    if REPAIRS:
        tiles *= gl.atomic_add(flag,
                               0)  # by one thread for all: one that came late to a load could meet the cleared flag
        if gl.atomic_add(flag + 1, 1) == gl.num_programs(0) - 1:
            gl.atomic_xchg(flag, 0)
            gl.atomic_xchg(flag + 1, 0)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        direct_tile(tile, x, w, y, residual, bias, rows, groups, K, C, D, H, W, Z, P, Q, T, R, S, stride_d, stride_h,
                    stride_w, before_d, before_h, before_w, dilation_d, dilation_h, dilation_w, x_n, x_d, x_h, x_w,
                    BLOCK_M, BLOCK_G, BLOCK_N, BLOCK_K, VECTOR, WHOLE_K, WHOLE_N, HAS_BIAS, HAS_RESIDUAL, ACTIVATION)
