"""The tutorial 13-conv-im2col beyond its own tests: random problems, tensors past 2**31 elements, and every refusal."""

import pathlib
import runpy
import types

import pytest
import torch
from im2col_reference import sources
from triton.backends.compiler import GPUTarget

TUTORIAL = pathlib.Path(__file__).parents[2] / "tutorials" / "gluon" / "13-conv-im2col.py"
tutorial = types.SimpleNamespace(**runpy.run_path(str(TUTORIAL)))
Conv = tutorial.Conv

needs_gpu = tutorial.needs_gpu


@pytest.mark.parametrize("name", tutorial.LOADS)
def test_what_the_tutorial_expects_of_a_load(name):
    load = tutorial.LOADS[name]
    x = tutorial.numbered_image(load.shape)
    *start, channel = load.coord
    expected = torch.zeros(load.block, dtype=torch.int32)
    pixels, channels = load.block
    for row, source in zip(expected,
                           sources(load.shape, load.lower, load.upper, load.strides, start, load.offsets, pixels)):
        if source is not None:
            row[:len(x[source][channel:channel + channels])] = x[source][channel:channel + channels]
    assert torch.equal(tutorial.expected_block(load), expected)


def random_conv(seed):
    """Sizes 1 to 70, channels 8 to 200, filters 1 to 7, strides 1 to 4, dilations 1 to 3, padding up to the reach."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return torch.randint(low, high + 1, (1, ), generator=generator).item()

    while True:
        R, S, dil_h, dil_w = draw(1, 7), draw(1, 7), draw(1, 3), draw(1, 3)
        pads = [draw(0, (taps - 1) * dil) for taps, dil in ((R, dil_h), (R, dil_h), (S, dil_w), (S, dil_w))]
        conv = Conv(draw(1, 4), draw(1, 70), draw(1, 70), 8 * draw(1, 25), 8 * draw(1, 25), R, S, draw(1, 4),
                    draw(1, 4), *pads, dil_h, dil_w)
        if min(conv.out) > 0:
            return conv


def relative_error(y, expected):
    return ((y.double() - expected).norm() / expected.norm().clamp(min=1e-30)).item()


@needs_gpu
@pytest.mark.parametrize("block", range(32))
def test_error_is_that_of_the_framework(block):
    """The error may be 1.5 times that of PyTorch's own convolution, which is cuDNN's on a GPU, in the same dtype.

    512 problems on a GPU; a sample of 32 on another driver.
    """
    problems = 16 if tutorial.active_device().type == "cuda" else 1
    for seed in range(16 * block, 16 * block + problems):
        conv, dtype = random_conv(seed), (torch.bfloat16, torch.float16)[seed % 2]
        x, w = tutorial.make_tensors(conv, dtype, tutorial.active_device(), seed)
        expected = tutorial.reference(conv, x.double(), w.double())
        error = relative_error(tutorial.run_poisoned(conv, x, w), expected)
        allowed = 1.5 * relative_error(tutorial.reference(conv, x, w), expected)
        assert error <= allowed, (seed, conv, dtype)


@needs_gpu
def test_more_than_2_31_elements():
    if tutorial.active_device().type != "cuda" or torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("takes 16 GB of GPU memory")
    conv = Conv(33, 1024, 1024, 64, 64, 1, 1)
    x = torch.randn((conv.N, conv.H, conv.W, conv.Ci), dtype=torch.bfloat16, device=tutorial.active_device())
    x = x.permute(0, 3, 1, 2)
    w = tutorial.make_tensors(conv._replace(N=1, H=1, W=1), x.dtype, x.device)[1]
    y = tutorial.run_poisoned(conv, x, w)
    assert x.numel() > 2**31 and y.numel() > 2**31
    for n in (0, 16, 32):
        expected = tutorial.reference(conv, x[n:n + 1].double(), w.double())
        assert relative_error(y[n:n + 1], expected) < 2**-8


@needs_gpu
def test_pointwise_image_of_any_strides():
    """PyTorch leaves the strides of dimensions of size 1 open: an NCHW tensor of 1x1 images is channels-last."""
    conv = Conv(3, 1, 1, 16, 8, 1, 1)
    x = torch.randn((3, 16, 1, 1), dtype=torch.float16, device=tutorial.active_device())
    w = torch.randn((8, 16, 1, 1), dtype=torch.float16, device=tutorial.active_device())
    assert x.stride() == (16, 1, 1, 1)
    expected = tutorial.reference(conv, x.double(), w.double())
    assert relative_error(tutorial.run_poisoned(conv, x, w), expected) < 2**-11


def tensor(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


X, W = tensor(2, 64, 8, 8), tensor(32, 64, 3, 3)
UNALIGNED = torch.zeros(2 * 8 * 8 * 64 + 1, dtype=torch.bfloat16)[1:].view(2, 8, 8, 64).permute(0, 3, 1, 2)


@pytest.mark.parametrize("x, w, options, error, message", [
    (X.float(), W.float(), {}, TypeError, "x is torch.float32"),
    (X, W.half(), {}, TypeError, "w is torch.float16, x is torch.bfloat16"),
    (X[0], W, {}, ValueError, r"x has shape \(64, 8, 8\); expected 4 dimensions"),
    (X, W[..., 0], {}, ValueError, r"w has shape \(32, 64, 3\); expected 4 dimensions"),
    (X[:0], W, {}, ValueError, r"x has shape \(0, 64, 8, 8\); expected .* none of size 0"),
    (X.contiguous(), W, {}, ValueError, r"x has strides \(4096, 64, 8, 1\) .*channels_last"),
    (X, W.contiguous(), {}, ValueError, "w has strides .*channels_last"),
    (X[:, :, ::2], W, {}, ValueError, "x has strides"),
    (UNALIGNED, W, {}, ValueError, "x is at address 0x.*multiple of 16"),
    (X.to("meta"), W, {}, ValueError, "x is on meta; the active driver runs on cpu"),
    (X, W.to("meta"), {}, ValueError, "w is on meta"),
    (X, tensor(32, 32, 3, 3), {}, ValueError, "x has 64 channels and w has 32"),
    (tensor(2, 3, 8, 8), tensor(8, 3, 3, 3), {}, ValueError, "w has K, C = 8, 3 channels; TMA needs multiples of 8"),
    (X, tensor(12, 64, 3, 3), {}, ValueError, "w has K, C = 12, 64 channels"),
    (X, W, {"stride": 0}, ValueError, "stride_h is 0; expected 1 to 8"),
    (X, W, {"stride": (1, 9)}, ValueError, "stride_w is 9; expected 1 to 8"),
    (X, W, {"stride": 1.5}, ValueError, "stride is 1.5; expected an int or 2 ints"),
    (X, W, {"stride": (1, 2, 3)}, ValueError, r"stride is \(1, 2, 3\)"),
    (X, W, {"padding": -1}, ValueError, "pad_top is -1; expected 0 to 128"),
    (X, W, {"padding": (0, 0, 0, 129)}, ValueError, "pad_right is 129"),
    (X, W, {"padding": "same"}, ValueError, "padding is 'same'"),
    (X, W, {"dilation": 0}, ValueError, "dil_h is 0; expected 1 to 255"),
    (X, W, {"dilation": (1, 4)}, ValueError, "the filter spans 9 pixels in w, the padded input 8: no output"),
    (tensor(2, 64, 2, 8), W, {}, ValueError, "the filter spans 3 pixels in h, the padded input 2"),
    (X, W, {"dilation": 128, "padding": 128}, ValueError, "the last tap has offset 256 in h; .* at most 255"),
    (tensor(1, 64, 200, 200), W, {"dilation": 65}, ValueError, "the upper corner in h, .*, is -130; expected -128"),
    (X, W, {"target": GPUTarget("cuda", 80, 32)}, NotImplementedError, "arch=80.*sm_90"),
    (X, W, {"target": GPUTarget("cuda", 120, 32)}, NotImplementedError, "arch=120.*sm_90"),
    (X, W, {"target": GPUTarget("hip", "gfx942", 64)}, NotImplementedError, "hip.*sm_90"),
    (X, W, {"target": None}, NotImplementedError, "target is None"),
])
def test_refusals(x, w, options, error, message):
    with pytest.raises(error, match=message):
        tutorial.check(x, w, **{"target": GPUTarget("cuda", 90, 32), "device": torch.device("cpu"), **options})


def test_too_many_pixels_are_refused():
    x = torch.empty((1, 8, 1, 1), dtype=torch.bfloat16).expand(2**16, 8, 2**15, 1)  # never read, nor allocated
    assert tutorial.Conv(2**16, 2**15, 1, 8, 8, 1, 1).gemm[0] == 2**31
    with pytest.raises(ValueError, match="x has strides"):
        tutorial.check(x, tensor(8, 8, 1, 1), target=GPUTarget("cuda", 90, 32), device=torch.device("cpu"))
    x = torch.empty((2**16, 8, 2**15, 1), dtype=torch.bfloat16, device="meta", memory_format=torch.channels_last)
    w = torch.empty((8, 8, 1, 1), dtype=torch.bfloat16, device="meta")
    with pytest.raises(ValueError, match="N . P . Q is 2147483648; expected less than 2..31"):
        tutorial.check(x, w, target=GPUTarget("cuda", 90, 32), device=torch.device("meta"))


def test_a_conv_is_accepted_at_each_limit():
    conv = tutorial.check(tensor(1, 8, 70, 30), tensor(8, 8, 2, 2), (8, 1), (128, 127, 0, 128), (255, 1),
                          target=GPUTarget("cuda", 103, 32), device=torch.device("cpu"))
    assert conv == Conv(1, 70, 30, 8, 8, 2, 2, 8, 1, 128, 127, 0, 128, 255, 1)
    assert conv.corners == ([-128, 0], [-128, 127]) and conv.out == (9, 157)
