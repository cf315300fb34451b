"""The formulas of the documentation against PyTorch in float64, on random problems in 1, 2 and 3 dimensions."""

import random

import conv_as_gemm
import pytest
import torch
import torch.nn.functional as F


def random_problem(rng, rank):
    while True:
        taps, strides, dilations = ([rng.randint(1, high) for _ in range(rank)] for high in (4, 4, 3))
        before, after = ([rng.randint(0, 3) for _ in range(rank)] for _ in range(2))
        extents = [rng.randint(1, (12, 7, 5)[rank - 1]) for _ in range(rank)]
        if min(conv_as_gemm.out_extents(extents, taps, strides, before, after, dilations)) > 0:
            return extents, taps, strides, before, after, dilations


def channels_first(x):
    return x.movedim(-1, 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_against_pytorch(rank):
    rng = random.Random(rank)
    torch.manual_seed(rank)
    conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    without_taps = 0
    for _ in range(60):
        extents, taps, strides, before, after, dilations = random_problem(rng, rank)
        N, K, C = rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3)
        x = torch.randn(N, *extents, C, dtype=torch.float64, requires_grad=True)
        w = torch.randn(K, *taps, C, dtype=torch.float64, requires_grad=True)
        pads = [pad for pair in zip(reversed(before), reversed(after)) for pad in pair]
        y = conv(F.pad(channels_first(x), pads), channels_first(w), stride=strides, dilation=dilations).movedim(1, -1)
        dy = torch.randn_like(y)
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        with torch.no_grad():
            assert torch.allclose(conv_as_gemm.fprop(x, w, strides, before, after, dilations), y)
            assert torch.allclose(conv_as_gemm.wgrad(dy, x, taps, strides, before, after, dilations), dw)
            assert torch.allclose(conv_as_gemm.dgrad(dy, w, extents, strides, before, dilations), dx)
        without_taps += bool((dx == 0).any())
    assert without_taps > 5


def test_the_tight_upper_corner_is_the_same_walk():
    """(P - 1) s + 1 - H - before, in place of after - (R - 1) d: the walk ends where the last output begins."""
    rng = random.Random(0)
    for _ in range(200):
        (extent, ), taps, (stride, ), (before, ), after, dilations = random_problem(rng, 1)
        (out, ) = conv_as_gemm.out_extents([extent], taps, [stride], [before], after, dilations)
        (loose, ) = conv_as_gemm.fprop_walk(taps, [stride], [before], after, dilations)[1]
        tight = (out - 1) * stride + 1 - extent - before
        last = [-before + (extent - 1 + upper + before) // stride * stride for upper in (loose, tight)]
        assert last[0] == last[1] == (out - 1) * stride - before
