"""Wrong calls: each is refused before any launch, with the argument, its value and what is expected; the next call works."""

import pytest
import torch
import triton_conv
from triton_conv import launch


def good(**changes):
    device = launch.active_device()
    values = dict(input=torch.ones(1, 16, 6, 6, dtype=torch.bfloat16, device=device),
                  weight=torch.ones(8, 16, 3, 3, dtype=torch.bfloat16, device=device))
    return values | {name: value(values) if callable(value) else value for name, value in changes.items()}


WRONG = [
    (dict(input=lambda v: v["input"][0, 0]), ValueError, r"input has shape \(6, 6\); expected 4 dimensions \(N, C, H, W\)"),
    (dict(weight=lambda v: v["weight"][0]), ValueError, r"weight has shape \(16, 3, 3\); expected 4 dimensions"),
    (dict(weight=lambda v: v["weight"][:, :8]), ValueError, "input has 16 channels, weight takes 8 in each of 1 groups"),
    (dict(groups=3), ValueError, "groups is 3; expected a divisor of 16 input and 8 output channels"),
    (dict(groups=0), ValueError, "groups is 0"),
    (dict(groups=2), ValueError, "weight takes 16 in each of 2 groups; expected 32"),
    (dict(stride=0), ValueError, "stride is 0; expected an int or 2 ints of at least 1"),
    (dict(stride=(1, 2, 3)), ValueError, r"stride is \(1, 2, 3\); expected an int or 2 ints"),
    (dict(stride=1.5), ValueError, "stride is 1.5; expected an int or 2 ints of at least 1"),
    (dict(stride=9), NotImplementedError, "stride 9 in H is more than 8"),
    (dict(dilation=(0, 1)), ValueError, r"dilation is \(0, 1\)"),
    (dict(dilation=3), ValueError, "the filter spans 7 pixels in H, the padded input 6: no output"),
    (dict(padding=-1), ValueError, "padding is -1; expected an int or 2 ints of at least 0"),
    (dict(padding="full"), ValueError, "padding is 'full'; expected 'same', 'valid'"),
    (dict(padding="same", stride=2), ValueError, r"padding is 'same' and stride is \(2, 2\); expected a stride of 1"),
    (dict(padding=((1, 1), )), ValueError, "expected 2 pairs"),
    (dict(padding=((1, 1), (1, -1))), ValueError, "expected 2 pairs"),
    (dict(padding=((1, 1), 2)), ValueError, "expected 2 pairs"),
    (dict(padding=200), NotImplementedError, "padding before in H needs a corner of -200, outside -128 to 127"),
    (dict(bias=lambda v: v["input"].new_ones(9)), ValueError, r"bias has shape \(9,\); expected \(8,\)"),
    (dict(bias=lambda v: v["input"].new_ones(8).half()), TypeError, "bias is torch.float16, input is torch.bfloat16"),
    (dict(residual=lambda v: v["input"]), ValueError, r"residual has shape \(1, 16, 6, 6\); expected that of the output, \(1, 8, 4, 4\)"),
    (dict(activation="tanh"), ValueError, "activation is 'tanh'; expected None or one of"),
    (dict(input=None), TypeError, "input is NoneType; expected a tensor"),
    (dict(input=lambda v: v["input"].cpu().float().numpy()), TypeError, "input is ndarray; expected a tensor"),
    (dict(weight=None), TypeError, "weight is NoneType; expected a tensor"),
    (dict(bias=0.5), TypeError, "bias is float; expected a tensor"),
    (dict(residual=1), TypeError, "residual is int; expected a tensor"),
    (dict(groups=None), ValueError, "groups is None; expected an int"),
    (dict(groups=1.5), ValueError, "groups is 1.5; expected an int"),
    (dict(stride=None), ValueError, "stride is None; expected an int or 2 ints"),
    (dict(stride="2"), ValueError, "stride is '2'; expected an int or 2 ints"),
    (dict(padding=None), ValueError, "padding is None; expected an int or 2 ints"),
    (dict(padding=((1, 1), (1, 0.5))), ValueError, "expected 2 pairs"),
    (dict(input=lambda v: v["input"].double()), TypeError, "input is torch.float64; expected torch.bfloat16"),
    (dict(input=lambda v: v["input"].int()), TypeError, "input is torch.int32"),
    (dict(weight=lambda v: v["weight"].float()), TypeError, "weight is torch.float32, input is torch.bfloat16"),
    (dict(weight=lambda v: v["weight"][:, :, :0]), ValueError, "expected channels and taps"),
    (dict(input=lambda v: v["input"][:, :0], weight=lambda v: v["weight"][:, :0]), ValueError, "expected channels and taps"),
]  # yapf: disable


@pytest.mark.parametrize("changes, error, message", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_calls(changes, error, message):
    with pytest.raises(error, match=message):
        triton_conv.conv2d(**good(**changes))
    assert (triton_conv.conv2d(**good()) == 144).all()


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
