"""The copy of an input that TMA cannot read: any strides in, channels innermost and padded out, in one pass."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

SIZES = "D H W C pixels padded before x_n x_d x_h x_w x_c".split()


@gluon.jit(do_not_specialize=SIZES)
def pack_kernel(x, out, D, H, W, C, pixels, padded, before, x_n, x_d, x_h, x_w, x_c, BLOCK: gl.constexpr):
    """out (N, D, H, pixels, padded) from x (N, C, D, H, W) with strides x_*; zero outside, ``before`` pixels of it at the left.

    A program copies BLOCK elements of one line.
    """
    gdc_wait()
    gdc_launch_dependents()
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [gl.num_warps()], [0])
    length = pixels * padded
    chunks = gl.cdiv(length, BLOCK)
    line = gl.program_id(0) // chunks
    place = gl.program_id(0) % chunks * BLOCK + gl.arange(0, BLOCK, layout)
    h = line % H
    plane = line // H
    d = plane % D
    n = plane // D
    start = n.to(gl.int64) * x_n + d.to(gl.int64) * x_d + h.to(gl.int64) * x_h
    c = place % padded
    w = place // padded - before
    in_line = place < length
    inside = in_line & (c < C) & (w >= 0) & (w < W)
    value = gl.load(x + start + w.to(gl.int64) * x_w + c.to(gl.int64) * x_c, mask=inside, other=0)
    gl.store(out + line.to(gl.int64) * length + place, value, mask=in_line)
