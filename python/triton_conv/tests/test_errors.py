"""Wrong calls: each is refused before any launch, with the argument, its value and what is expected; the next call works."""

import itertools
import re

import pytest
import torch
import triton_conv
from triton_conv import geometry, launch


def good(rank=2, dtype=torch.bfloat16, **changes):
    device = launch.active_device()
    values = dict(input=torch.ones(1, 16, *[6] * rank, dtype=dtype, device=device),
                  weight=torch.ones(8, 16, *[3] * rank, dtype=dtype, device=device))
    return values | {name: value(values) if callable(value) else value for name, value in changes.items()}


CONVS = {1: triton_conv.conv1d, 2: triton_conv.conv2d, 3: triton_conv.conv3d}


def wrong(rank, dtype):
    """Calls that are wrong in one way each, with the error and what its message says."""
    other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
    dims, first = "DHW"[-rank:], "DHW"[-rank]
    shape = lambda *sizes: re.escape(str(sizes))
    of = lambda name, change: {name: lambda values: change(values[name])}
    ints = f"expected an int or {rank} ints of at least"
    pairs = rf"expected {rank} pairs \(before, after\) of ints of at least 0"
    one, largest = ((1, 1), ) * (rank - 1), geometry.CORNERS[rank][1]
    yield of("input", lambda x: x.flatten()), ValueError, rf"input has shape \(\d+,\); expected {rank + 2} dimensions"
    yield of("input", lambda x: x[None]), ValueError, rf"expected {rank + 2} dimensions \(N, C, {', '.join(dims)}\)"
    yield of("weight",
             lambda w: w[0]), ValueError, rf"weight has shape {shape(16, *[3] * rank)}; expected {rank + 2} dim"
    yield of("weight", lambda w: w[:, :8]), ValueError, "input has 16 channels, weight takes 8 in each of 1 groups"
    yield of("weight", lambda w: w[..., :0]), ValueError, "weight has shape .*; expected channels and taps"
    yield of("weight", lambda w: w.to(other)), TypeError, f"weight is {other}, input is {dtype}; expected the same"
    yield of("weight", lambda w: w.double()), TypeError, f"weight is torch.float64, input is {dtype}"
    yield of("weight", lambda w: w.to("meta")), ValueError, "weight is on meta; the active driver runs on"
    yield of("input", lambda x: x.double()), TypeError, "input is torch.float64; expected torch.bfloat16, torch.float16"
    yield of("input", lambda x: x.int()), TypeError, "input is torch.int32"
    yield of("input", lambda x: x.cpu().float().numpy()), TypeError, "input is ndarray; expected a tensor"
    yield of("input", lambda x: x.to_sparse()), TypeError, "input has layout torch.sparse_coo; expected torch.strided"
    yield of("weight", lambda w: w.to_sparse()), TypeError, "weight has layout torch.sparse_coo; expected torch.strided"
    yield {"input": None}, TypeError, "input is NoneType; expected a tensor"
    yield {"weight": None}, TypeError, "weight is NoneType; expected a tensor"
    yield {"bias": 0.5}, TypeError, "bias is float; expected a tensor"
    yield {"residual": 1}, TypeError, "residual is int; expected a tensor"
    yield {"bias": lambda v: v["input"].new_ones(9)}, ValueError, r"bias has shape \(9,\); expected \(8,\)"
    yield {"bias": lambda v: v["input"].new_ones(8, 1)}, ValueError, r"bias has shape \(8, 1\); expected \(8,\)"
    yield {"bias": lambda v: v["input"].new_ones(8).to(other)}, TypeError, f"bias is {other}, input is {dtype}"
    yield {"residual": lambda v: v["input"]}, ValueError, f"that of the output, {shape(1, 8, *[4] * rank)}"
    yield {"residual": lambda v: v["input"].new_ones(1, 8, *[4] * rank).to(other)}, TypeError, f"residual is {other}"
    yield {"activation": "tanh"}, ValueError, "activation is 'tanh'; expected None or one of"
    yield {"activation": lambda v: torch.relu}, ValueError, "activation is <built-in .*; expected None or one of"
    for groups, message in ((0, "groups is 0; expected a divisor"), (-1, "groups is -1; expected a divisor"),
                            (2, "weight takes 16 in each of 2 groups; expected 32"), (1.5,
                                                                                      "groups is 1.5; expected an int"),
                            (3, "groups is 3; expected a divisor of 16 input and 8 output channels"),
                            (None, "groups is None; expected an int")):
        yield {"groups": groups}, ValueError, message
    for value in (0, -1, 1.5, None, "2", (1, ) * (rank + 1), (0, ) * rank, (1.5, ) * rank):
        yield {"stride": value}, ValueError, f"stride is {re.escape(repr(value))}; {ints} 1"
        yield {"dilation": value}, ValueError, f"dilation is {re.escape(repr(value))}; {ints} 1"
    for value in (-1, 0.5, None, (0, ) * (rank + 1), (-1, ) * rank):
        yield {"padding": value}, ValueError, f"padding is {re.escape(repr(value))}; {ints} 0"
    for value in (*one, (1, -1)), (*one, (1, 0.5)), (*one, (1, )), ((1, 1), ) * (rank + 1):
        yield {"padding": value}, ValueError, pairs
    yield {"padding": "full"}, ValueError, "padding is 'full'; expected 'same', 'valid', ints or pairs"
    yield {"padding": "same", "stride": 2}, ValueError, "padding is 'same' and stride is .*; expected a stride of 1"
    yield {"dilation": 3}, ValueError, f"the filter spans 7 pixels in {first}, the padded input 6: no output"
    yield {"stride": 9}, NotImplementedError, f"stride 9 in {first} is more than 8"
    yield {"padding": largest + 2}, NotImplementedError, f"padding before in {first} needs a corner of -{largest + 2}"


WRONG = [(rank, dtype, *call)
         for rank, dtype in itertools.product(CONVS, (torch.bfloat16, torch.float16))
         for call in wrong(rank, dtype)]


@pytest.mark.parametrize("rank, dtype, changes, error, message", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_calls(rank, dtype, changes, error, message):
    with pytest.raises(error, match=message):
        CONVS[rank](**good(rank, dtype, **changes))
    assert (CONVS[rank](**good(rank, dtype)) == 16 * 3**rank).all()


@pytest.fixture
def precisions():
    cudnn = torch.backends.cudnn
    found = [(module, module.fp32_precision) for module in (cudnn.conv, cudnn.rnn, cudnn, torch.backends)]
    yield
    for module, precision in found:
        module.fp32_precision = precision


def test_tf32_is_asked_for(precisions):
    """By both of PyTorch's ways, of which the older cannot be read after some uses of the newer."""
    cudnn = torch.backends.cudnn
    x, w = (good()[name].float() for name in ("input", "weight"))
    assert (triton_conv.conv2d(x, w) == 144).all()
    with cudnn.flags(allow_tf32=False), pytest.raises(TypeError, match="set torch.backends.cudnn.allow_tf32 or"):
        triton_conv.conv2d(x, w)
    for conv, rnn, everywhere, allowed in (("ieee", "tf32", "tf32", False), ("tf32", "ieee", "ieee", True),
                                           ("none", "ieee", "tf32", True), ("none", "tf32", "ieee", False)):
        torch.backends.fp32_precision = everywhere
        cudnn.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "none", conv, rnn
        if allowed:
            assert (triton_conv.conv2d(x, w) == 144).all()
        else:
            with pytest.raises(TypeError, match="conv.fp32_precision = 'tf32'"):
                triton_conv.conv2d(x, w)


def test_gradients_are_refused_clearly():
    """Of each kind; where a tensor has none, a call within a transform is as any other."""
    x, w = good().values()
    conv = lambda w: triton_conv.conv2d(x, w)
    sums = lambda w: conv(w).sum()
    refused = pytest.raises(NotImplementedError, match="computes no gradients yet")
    with refused:
        sums(w.clone().requires_grad_()).backward()
    for transform in (torch.func.grad(sums), torch.func.jacfwd(sums)):
        with refused:
            transform(w)
    with refused:
        torch.func.vmap(torch.func.grad(sums))(torch.stack([w, w]))
    with refused:
        torch.func.jvp(conv, (w, ), (w, ))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        with refused:
            conv(torch.autograd.forward_ad.make_dual(w, w))
        assert (conv(w) == 144).all()
    scale = torch.ones((), device=x.device)
    assert torch.func.grad(lambda scale: scale * sums(w))(scale) == 144 * 8 * 16
    _, tangent = torch.func.jvp(lambda scale: scale * sums(w), (scale, ), (scale, ))
    assert tangent == 144 * 8 * 16
