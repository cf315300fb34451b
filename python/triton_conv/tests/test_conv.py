"""Convolutions of every kind against PyTorch in float64."""

import collections
import dataclasses
import functools
import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
import triton
import triton_conv
from triton_conv import functional, geometry, heuristics, launch
from triton_conv.kernels.direct import direct_kernel
from triton_conv.kernels.fprop import fprop_kernel
from triton_conv.kernels.pack import pack_kernel

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
# The largest relative error of one rounding, of the result to 16 bits or of an operand to tf32.
ERRORS = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-11}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
OURS = {1: triton_conv.conv1d, 2: triton_conv.conv2d, 3: triton_conv.conv3d}
MEMORY = {1: None, 2: torch.channels_last, 3: torch.channels_last_3d}
ACTIVATIONS = {None: lambda y: y, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu}


def is_hopper():
    target = launch.active_target()
    return target is not None and target.arch == 90


def expected_conv(x, w, bias, stride, before, after, dilation, groups, activation=None, residual=None):
    """In float64, on explicitly padded input."""
    pads = [pad for pair in zip(reversed(before), reversed(after)) for pad in pair]
    double = lambda tensor: None if tensor is None else tensor.cpu().double()
    y = CONV[x.ndim - 2](F.pad(double(x), pads), double(w), double(bias), stride, 0, dilation, groups)
    return ACTIVATIONS[activation](y if residual is None else y + double(residual))


def relative_error(y, expected):
    return ((y.cpu().double() - expected).norm() / expected.norm().clamp(min=1e-30)).item()


def check(x, w, bias=None, stride=1, before=0, after=None, dilation=1, groups=1, activation=None, residual=None):
    rank = x.ndim - 2
    stride, before, dilation = ((v, ) * rank if isinstance(v, int) else tuple(v) for v in (stride, before, dilation))
    after = before if after is None else (after, ) * rank if isinstance(after, int) else tuple(after)
    y = OURS[rank](x, w, bias, stride, tuple(zip(before, after)), dilation, groups, activation=activation,
                   residual=residual)
    expected = expected_conv(x, w, bias, stride, before, after, dilation, groups, activation, residual)
    assert y.shape == expected.shape and y.dtype == x.dtype
    assert y.movedim(1, -1).is_contiguous()
    assert y.isfinite().all()
    error = relative_error(y, expected)
    assert error < ERRORS[x.dtype]
    if x.is_cuda:
        arguments = x, w, bias, stride, before, after, dilation, groups, activation, residual
        assert error < 1.5 * max(framework_error(expected, *arguments), tf32_error(expected, *arguments))
    return y


def to_tf32(x):
    """float32 rounded to the 10 bits of a tf32 mantissa, in float64."""
    bits = x.cpu().view(torch.int32)
    return (bits + 0xFFF + (bits >> 13 & 1) & ~0x1FFF).view(torch.float32).double()


def tf32_error(expected, x, w, *rest):
    """The error of exact sums of operands rounded to tf32. For some sizes cuDNN does not use tf32, though it may."""
    if x.dtype != torch.float32:
        return 1e-7
    bias, stride, before, after, dilation, groups, activation, residual = rest
    rounded = expected_conv(to_tf32(x), to_tf32(w), bias, stride, before, after, dilation, groups, activation, residual)
    return max(relative_error(rounded, expected), 1e-7)


def framework_error(expected, x, w, bias, stride, before, after, dilation, groups, activation, residual):
    """The error of PyTorch's own convolution, which is cuDNN's, in the same dtype, with the epilogue in float32."""
    pads = [pad for pair in zip(reversed(before), reversed(after)) for pad in pair]
    y = CONV[x.ndim - 2](F.pad(x, pads), w, None, stride, 0, dilation, groups).float()
    if bias is not None:
        y = y + bias.float().view(-1, *[1] * (x.ndim - 2))
    return relative_error(ACTIVATIONS[activation](y if residual is None else y + residual.float()).to(x.dtype),
                          expected)


def tensors(rank, N, C, extents, K, taps, dtype, groups=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    device = launch.active_device()
    x = torch.randn((N, C, *extents), generator=generator).to(device, dtype)
    scale = (C // groups * torch.Size(taps).numel())**-0.5
    w = (torch.randn((K, C // groups, *taps), generator=generator) * scale).to(device, dtype)
    if rank > 1:
        x, w = x.to(memory_format=MEMORY[rank]), w.to(memory_format=MEMORY[rank])
    return x, w


@pytest.mark.parametrize("rank, dtype", list(itertools.product((1, 2, 3), DTYPES)))
def test_random_problems(rank, dtype):
    rng = random.Random(f"{rank} {dtype}")
    generator = torch.Generator().manual_seed(rank)
    activation = rng.choice(list(ACTIVATIONS))
    done = 0
    while done < (560 if torch.cuda.is_available() else 2 if is_hopper() else 1):
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        extents, taps, stride, dilation = many(1, (60, 16, 7)[rank - 1]), many(1, 4), many(1, 3), many(1, 2)
        before, after = many(0, 3), many(0, 3)
        if any(e + b + a <= (t - 1) * d for e, b, a, t, d in zip(extents, before, after, taps, dilation)):
            continue
        groups = rng.choice([1, 1, 1, 2])
        C, K = groups * rng.randint(1, 90), groups * rng.randint(1, 150)
        x, w = tensors(rank, rng.randint(1, 3), C, extents, K, taps, dtype, groups, rng.randrange(2**31))
        if rng.random() < 0.3:
            x = x.contiguous()
        bias = torch.randn(K, generator=generator).to(x)
        residual = None
        if rng.random() < 0.5:
            shape = F.pad(x, [p for pair in zip(reversed(before), reversed(after)) for p in pair])
            residual = torch.randn(
                CONV[rank](shape.cpu().float(), w.cpu().float(), None, stride, 0, dilation, groups).shape,
                generator=generator).to(x)
        check(x, w, bias, stride, before, after, dilation, groups, activation, residual)
        done += 1


@pytest.mark.parametrize("rank", [1, 2, 3] if torch.cuda.is_available() else [2])
def test_random_narrow_groups(rank):
    """Groups of up to 32 channels: in strips, in bundles, and by themselves."""
    rng = random.Random(f"narrow {rank}")
    done = 0
    while done < (60 if torch.cuda.is_available() else 1):
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        extents, taps, stride, dilation = many(4, (90, 24, 9)[rank - 1]), many(1, 4), many(1, 2), many(1, 1)
        before, after = many(0, 2), many(0, 2)
        if rng.random() < 0.2:
            dilation = many(1, 2)
        if any(e + b + a <= (t - 1) * d for e, b, a, t, d in zip(extents, before, after, taps, dilation)):
            continue
        channels = rng.choice([1, 2, 4, 8, 16, 32])
        groups = rng.choice([64, 128, 192]) // channels if rng.random() < 0.9 else rng.randint(2, 9)
        K = groups * channels * rng.choice([1, 1, 1, 2])
        dtype = rng.choice(DTYPES)
        x, w = tensors(rank, rng.randint(1, 3), groups * channels, extents, K, taps, dtype, groups,
                       rng.randrange(2**31))
        bias = torch.randn(K, generator=torch.Generator().manual_seed(done)).to(x) if rng.random() < 0.5 else None
        check(x, w, bias, stride, before, after, dilation, groups,
              rng.choice(["relu", "silu"]) if bias is not None else None)
        done += 1


KINDS = {
    "several tiles and steps": ((2, 160, (20, 20), 200, (3, 3)), {"before": 1}),
    "one pixel": ((1, 8, (1, 1), 8, (1, 1)), {}),
    "many output channels": ((1, 200, (20, 20), 2200, (1, 1)), {}),
    "one output": ((1, 64, (5, 5), 72, (5, 5)), {}),
    "a filter larger than the image": ((2, 16, (2, 3), 16, (5, 7)), {"before": (2, 3)}),
    "causal": ((2, 32, (40, ), 64, (3, )), {"before": 4, "after": 0, "dilation": 2}),
    "causal in time": ((1, 32, (5, 6, 6), 32, (3, 3, 3)), {"before": (2, 1, 1), "after": (0, 1, 1)}),
    "stride 8": ((1, 16, (40, 41), 16, (3, 3)), {"stride": 8, "before": 1}),
    "a stem": ((2, 3, (33, 35), 64, (7, 7)), {"stride": 2, "before": 3}),
    "a stem without a stride": ((1, 3, (12, 12), 32, (3, 3)), {"before": 1}),
    "a stem in 1-D": ((2, 1, (100, ), 24, (9, )), {"stride": 4, "before": 4}),
    "a stem in 3-D": ((1, 3, (5, 12, 12), 16, (3, 5, 5)), {"stride": (1, 2, 2), "before": (1, 2, 2)}),
    "a dilated stem": ((1, 3, (14, 14), 16, (3, 3)), {"dilation": 2, "before": 2}),
    "few channels": ((2, 32, (9, 16), 40, (3, 3)), {"stride": 2, "before": 1}),
    "patches": ((2, 3, (33, 50), 40, (16, 16)), {"stride": 16}),
    "patches in 3-D": ((1, 3, (4, 18, 27), 16, (2, 9, 9)), {"stride": (2, 9, 9)}),
    "a stride of the filter's size": ((2, 24, (8, 8), 32, (2, 2)), {"stride": 2}),
    "groups on tensor cores": ((2, 96, (9, 9), 144, (3, 3)), {"groups": 3, "before": 1}),
    "groups of a block and a half": ((1, 192, (6, 6), 48, (3, 3)), {"groups": 2, "before": 1}),
    "narrow groups": ((2, 36, (9, 9), 48, (3, 3)), {"groups": 12, "before": 1}),
    "narrow groups in bundles": ((2, 128, (9, 9), 256, (3, 3)), {"groups": 32, "before": 1}),
    "narrow groups in strips": ((2, 128, (19, 36), 128, (3, 3)), {"groups": 32, "before": 1}),
    "narrow groups in strips of two": ((1, 64, (9, 12), 64, (3, 3)), {"groups": 4, "before": 1, "stride": (1, 2)}),
    "narrow groups in strips in 3-D": ((1, 64, (4, 5, 8), 64, (3, 3, 3)), {"groups": 8, "before": 1}),
    "groups that share a bundle": ((2, 64, (7, 7), 64, (3, 3)), {"groups": 2, "before": 1}),
    "a few tiles of groups that share a bundle": ((1, 64, (3, 5, 5), 64, (3, 5, 5)), {"groups": 2, "before": (1, 2, 2)}),
    "depthwise": ((2, 40, (9, 10), 40, (3, 3)), {"groups": 40, "before": 1, "stride": 2}),
    "depthwise with a multiplier": ((1, 7, (30, ), 21, (5, )), {"groups": 7, "before": 2}),
    "depthwise in 3-D": ((1, 12, (4, 5, 6), 12, (3, 3, 3)), {"groups": 12, "before": 1}),
    "odd channels": ((2, 13, (9, 9), 11, (3, 3)), {"before": 1}),
    "one channel in and out": ((1, 1, (9, 9), 1, (3, 3)), {"before": 1}),
}  # yapf: disable


# On a GPU each kind in each dtype, elsewhere in one of them by turns: the time goes into compiling.
EACH = [(kind, dtype)
        for number, kind in enumerate(KINDS)
        for dtype in (DTYPES if torch.cuda.is_available() else DTYPES[number % 3:][:1])]


@pytest.mark.parametrize("kind, dtype", EACH)
def test_kinds(kind, dtype):
    (N, C, extents, K, taps), options = KINDS[kind]
    x, w = tensors(len(extents), N, C, extents, K, taps, dtype, options.get("groups", 1), seed=3)
    bias = torch.randn(K, generator=torch.Generator().manual_seed(4)).to(x)
    first = check(x, w, bias, **options, activation="silu")
    assert torch.equal(first, check(x, w, bias, **options, activation="silu"))  # bitwise the same again


# On a GPU all, elsewhere each activation with everything and with nothing, and each part without one.
EPILOGUES = [(activation, with_bias, with_residual)
             for activation, with_bias, with_residual in itertools.product(ACTIVATIONS, (False, True), (False, True))
             if torch.cuda.is_available() or activation is None or with_bias == with_residual]


@pytest.mark.parametrize("activation, with_bias, with_residual", EPILOGUES)
def test_epilogues_over_several_tiles(activation, with_bias, with_residual):
    """More tiles than programs, so that slabs and residuals go around their rings; a bias in float32."""
    x, w = tensors(2, 3, 32, (31, 33), 136, (3, 3), torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    bias = torch.randn(136, generator=generator).to(x.device) if with_bias else None
    residual = None
    if with_residual:
        residual = torch.randn((3, 136, 31, 33), generator=generator).to(x).to(memory_format=torch.channels_last)
    check(x, w, bias, before=1, activation=activation, residual=residual)


def always_in_strips(monkeypatch, strip):
    """Of output pixels, where few channels can be, however few tiles there are."""
    choose = heuristics.choose

    def choose_strips(problem, size, *others, **options):
        return heuristics.make_strips(problem, size, strip) or choose(problem, size, *others, **options)

    monkeypatch.setattr(heuristics, "choose", choose_strips)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_random_strips(rank, monkeypatch):
    """Few channels with strips of each length: filters that begin in the middle of a load, columns that are not full, more tiles
    than programs."""
    if not is_hopper():
        pytest.skip("a schedule for Hopper")
    rng = random.Random(f"strips {rank}")
    tiles = []
    make = heuristics.make_strips
    monkeypatch.setattr(heuristics, "make_strips", lambda *arguments: tiles.append(make(*arguments)) or tiles[-1])
    done = 0
    while done < (60 if torch.cuda.is_available() else (1, 3, 1)[rank - 1]):
        many = lambda low, high: tuple(rng.randint(low, high) for _ in range(rank))
        dtype, strip = rng.choice(DTYPES), rng.choice(heuristics.STRIPS)
        extents, taps, stride = many(1, (1000, 40, 9)[rank - 1]), many(1, 5), many(1, 3)
        extents = *extents[:-1], rng.randint(2, (5000, 40, 16)[rank - 1])
        before, after = many(0, 4), many(0, 4)
        if any(e + b + a < t for e, b, a, t in zip(extents, before, after, taps)):
            continue
        C, K = rng.choice([32, 64, 128]) // dtype.itemsize, rng.choice([rng.randint(1, 64), rng.randint(65, 150)])
        x, w = tensors(rank, rng.randint(1, 3), C, extents, K, taps, dtype, seed=rng.randrange(2**31))
        problem = functional.problem_of(x, w, stride, before, after, (1, ) * rank, 1)
        if make(problem, dtype.itemsize, strip) is None:
            continue
        bias = torch.randn(K, generator=torch.Generator().manual_seed(done)).to(x) if rng.random() < 0.5 else None
        residual = None
        if rng.random() < 0.5:
            residual = torch.randn((problem.batch, K, *problem.out),
                                   generator=torch.Generator().manual_seed(done)).to(x)
        with monkeypatch.context() as patch:
            always_in_strips(patch, strip)
            check(x, w, bias, stride, before, after, activation=rng.choice(list(ACTIVATIONS)), residual=residual)
        assert tiles.pop().strip == strip
        done += 1


def test_strips_that_are_rows_of_memory(monkeypatch):
    """All input pixels of a strip are one load, and no other's, so that the im2col mode is not needed."""
    if not is_hopper():
        pytest.skip("a schedule for Hopper")
    x, w = tensors(1, 3, 16, (64, ), 40, (2, ), torch.bfloat16)
    problem = functional.problem_of(x, w, (2, ), (0, ), (0, ), (1, ), 1)
    assert geometry.in_strips(problem, 2, 1, 4).is_product
    always_in_strips(monkeypatch, 2)
    check(x, w, stride=2)


@pytest.mark.parametrize("kind", [
    "several tiles and steps", "a stem", "odd channels", "narrow groups", "narrow groups in bundles",
    "narrow groups in strips", "a few tiles of groups that share a bundle", "groups on tensor cores", "patches",
    "depthwise", "few channels"
])
def test_infinities_and_nans_spread_as_in_float64(kind, monkeypatch):
    if kind == "few channels":
        always_in_strips(monkeypatch, 4)
    (N, C, extents, K, taps), options = KINDS[kind]
    groups = options.get("groups", 1)
    x, w = tensors(len(extents), N, C, extents, K, taps, torch.bfloat16, groups, seed=5)
    rng = random.Random(kind)
    for tensor, values in ((x, (float("inf"), float("nan"))), (w, (float("-inf"), ))):
        flat = tensor.movedim(1, -1).reshape(-1)
        for value in values:
            flat[rng.randrange(flat.numel())] = value
        tensor.copy_(flat.reshape(tensor.movedim(1, -1).shape).movedim(-1, 1))
    before = options.get("before", 0)
    before = (before, ) * len(extents) if isinstance(before, int) else before
    stride, dilation = options.get("stride", 1), options.get("dilation", 1)
    y = OURS[len(extents)](x, w, None, stride, tuple(zip(before, before)), dilation, groups).cpu()
    expected = expected_conv(x, w, None, stride, before, before, dilation, groups)
    assert 0 < expected.isnan().sum() and (expected.isinf().any() or kind == "patches")
    assert torch.equal(y.isnan(), expected.isnan())
    assert torch.equal(y.isposinf(), expected.isposinf()) and torch.equal(y.isneginf(), expected.isneginf())


@pytest.fixture
def nothing_compiled(monkeypatch, tmp_path):
    for kernel in (fprop_kernel, direct_kernel, pack_kernel):
        monkeypatch.setattr(kernel, "device_caches", collections.defaultdict(kernel.create_binder))
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        yield


def test_both_kernels_of_narrow_groups_compile_at_the_same_time(nothing_compiled):
    threads = {}

    def listener(*, src, cache_hit, **_):
        assert not cache_hit and src.name not in threads
        threads[src.name] = threading.get_ident()

    x, w = tensors(2, 1, 32, (9, 9), 32, (3, 3), torch.bfloat16, 8)
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = listener
        for _ in range(2):
            check(x, w, before=1, groups=8)
    # A pool starts a second thread only while the first has work.
    assert threads.keys() == {"fprop_kernel", "direct_kernel"}
    assert len({*threads.values(), threading.get_ident()}) == 3


def test_first_calls_where_the_caller_lets_kernels_compile_in_threads(nothing_compiled):
    with ThreadPoolExecutor(1) as executor, triton.AsyncCompileMode(executor):
        for groups in (1, 8, 32):
            x, w = tensors(2, 1, 32, (9, 9), 32, (3, 3), torch.bfloat16, groups)
            for _ in range(2):
                check(x, w, before=1, groups=groups)


AHEAD = ("several tiles and steps", "a stem", "odd channels", "narrow groups", "narrow groups in strips", "patches",
         "depthwise")


def test_compiling_ahead(nothing_compiled):
    """All kernels that calls will need are compiled while each gives zeros, or what it computes by a kernel that is there."""
    calls, checks = [], []
    for (N, C, extents, K, taps), options in (KINDS[kind] for kind in AHEAD):
        groups, others = options.get("groups", 1), {name: value for name, value in options.items() if name != "groups"}
        x, w = tensors(len(extents), N, C, extents, K, taps, torch.bfloat16, groups)
        names = dict(stride="stride", before="padding", dilation="dilation")
        calls.append(
            functools.partial(OURS[len(extents)], x, w, groups=groups,
                              **{names[name]: value
                                 for name, value in others.items()}))
        checks.append(functools.partial(check, x, w, groups=groups, **others))
    compiled = []
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = lambda *, src, **_: compiled.append(src.name)
        with triton_conv.compile_ahead(2):
            assert not any(call().any() for call in calls)
        assert len(compiled) >= 6 and {"fprop_kernel", "direct_kernel", "pack_kernel"} == set(compiled)
        compiled.clear()
        for call in checks:
            call()
        assert not compiled


def test_a_residual_at_an_odd_address():
    x, w = tensors(2, 2, 16, (6, 7), 16, (3, 3), torch.bfloat16)
    flat = torch.randn(2 * 42 * 16 + 1, generator=torch.Generator().manual_seed(2)).to(x)
    residual = flat[1:].view(2, 6, 7, 16).movedim(-1, 1)
    assert residual.data_ptr() % 16 and residual.is_contiguous(memory_format=torch.channels_last)
    for _ in range(2):
        check(x, w, before=1, residual=residual)


def test_padding_forms():
    x, w = tensors(2, 1, 16, (9, 10), 16, (3, 4), torch.bfloat16)
    same = triton_conv.conv2d(x, w, padding="same")  # one more after than before
    assert same.shape[2:] == x.shape[2:]
    assert torch.equal(same, triton_conv.conv2d(x, w, padding=((1, 1), (1, 2))))
    assert relative_error(same, expected_conv(x, w, None, 1, (1, 1), (1, 2), 1, 1)) < ERRORS[x.dtype]
    assert torch.equal(triton_conv.conv2d(x, w, padding="valid"), triton_conv.conv2d(x, w))
    assert torch.equal(triton_conv.conv2d(x, w, padding=(1, 2)), triton_conv.conv2d(x, w, padding=((1, 1), (2, 2))))
    assert torch.equal(triton_conv.conv2d(x[0], w), triton_conv.conv2d(x, w)[0])


def test_empty_batch():
    x, w = tensors(2, 1, 16, (9, 10), 24, (3, 3), torch.bfloat16)
    y = triton_conv.conv2d(x[:0], w, padding=1)
    assert y.shape == (0, 24, 9, 10) and y.dtype == x.dtype


def test_tensors_that_need_no_copy_get_none(monkeypatch):
    """channels_last memory, slices of it, and channels_last weights go to TMA as they are."""
    x, w = tensors(2, 2, 64, (9, 10), 32, (3, 3), torch.bfloat16)
    taken = {}
    for name in ("input_descriptor", "weight_descriptor"):
        make = getattr(launch.descriptors, name)
        monkeypatch.setattr(
            launch.descriptors, name, lambda problem, tensor, *rest, name=name, make=make:
            (taken.update({name: tensor.data_ptr()}), make(problem, tensor, *rest))[1])
    for view in (x, x[1:], x[:, 8:40], x[:, :, 2:7, 1:9], x[:, :, ::2]):
        part = w[:, :view.shape[1]].contiguous(memory_format=torch.channels_last)
        check(view, part, before=1)
        assert taken == {"input_descriptor": view.data_ptr(), "weight_descriptor": part.data_ptr()}
    check(x.contiguous(), w, before=1)
    assert taken["input_descriptor"] != x.data_ptr()


@pytest.mark.parametrize("rank, dtype", list(enumerate(DTYPES, 1)))
def test_matrix_products(rank, dtype, monkeypatch):
    """Filters of one tap, on rows of pixels where these are evenly spaced in memory, and in im2col mode where they are not."""
    ranks = []
    constants_of = launch.constants_of
    monkeypatch.setattr(launch, "constants_of",
                        lambda tile, rank, *rest: ranks.append(rank) or constants_of(tile, rank, *rest))
    extents = ((70, ), (7, 10), (3, 5, 6))[rank - 1]
    x, w = tensors(rank, 2, 72, extents, 136, (1, ) * rank, dtype)
    memory = x.movedim(1, -1).contiguous()
    x = memory.movedim(-1, 1)
    for view, even in ((x, True), (memory[..., 8:48].movedim(-1, 1), True), (x[..., 1:-1], False), (x[1:], True)):
        part = w[:, :view.shape[1]].movedim(1, -1).contiguous().movedim(-1, 1)
        check(view, part)
        assert ranks.pop() == (0 if even else rank)
    monkeypatch.setattr(heuristics, "LARGE_INPUT", 0)
    check(x, w[:16].movedim(1, -1).contiguous().movedim(-1, 1))


# Weights that are converted: with gaps between taps, channels that are not whole 16 bytes, too few outputs, few channels, narrow groups.
CONVERTED = {
    "NCHW": ((2, 16, (6, 8), 8, (3, 3)), {}), "odd channels": ((2, 12, (6, 8), 20, (3, 3)), {}), "odd outputs":
    ((2, 16, (6, 8), 5, (3, 3)), {}), "a stem": ((2, 3, (6, 8), 8, (3, 3)), {"stride": 2}), "strips":
    ((2, 64, (6, 8), 64, (3, 3)), {"groups": 16}), "bundles": ((2, 64, (6, 7), 64, (3, 3)), {"groups": 16}), "depthwise":
    ((2, 12, (6, 8), 12, (3, 3)), {"groups": 12})
}  # yapf: disable


@pytest.mark.parametrize("kind", CONVERTED)
def test_a_graph_converts_its_weights_itself(kind, monkeypatch):
    """When it is replayed they may have been written to; and what it has not computed yet is nothing to keep."""
    (N, C, extents, K, taps), options = CONVERTED[kind]
    x, w = tensors(2, N, C, extents, K, taps, torch.bfloat16, options.get("groups", 1))
    w = w.contiguous()
    mem = launch.mem
    kept, copies = [], mem.Copy
    monkeypatch.setattr(mem, "Copy", lambda copy: kept.append(copy) or copies(copy))
    if not x.is_cuda:
        monkeypatch.setattr(mem, "is_capturing", lambda device: True)
        check(x, w, before=1, **options)
        assert not kept
        monkeypatch.undo()
        check(x, w, before=1, **options)
        return
    check(x, w, before=1, **options)  # kernels are compiled and loaded before they are captured
    for warm in (False, True):
        graph = torch.cuda.CUDAGraph()
        w = w.clone()
        if warm:
            check(x, w, before=1, **options)
        with torch.cuda.graph(graph):
            y = triton_conv.conv2d(x, w, padding=1, **options)
        check(x, w, before=1, **options)
        for _ in range(2):
            w.mul_(-2)
            y.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(y, triton_conv.conv2d(x, w, padding=1, **options))
            check(x, w, before=1, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="streams need a GPU")
@pytest.mark.parametrize("kind", CONVERTED)
def test_a_stream_waits_for_weights_that_another_converts(kind):
    (N, C, extents, K, taps), options = CONVERTED[kind]
    x, w = tensors(2, N, C, extents, K, taps, torch.bfloat16, options.get("groups", 1))
    w = w.contiguous()
    expected = triton_conv.conv2d(x, w, padding=1, **options)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(3):
        copy = w.clone()
        torch.cuda.synchronize()
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                if not results:
                    torch.cuda._sleep(10**8)  # cycles, before which the first stream converts nothing
                results.append(triton_conv.conv2d(x, copy, padding=1, **options))
        torch.cuda.synchronize()
        assert all(torch.equal(result, expected) for result in results)


def test_what_outlives_a_call_is_made_by_another_thread(monkeypatch):
    """Where the memory of graphs is not, which torch.compile gives to the thread that warms them up."""
    mem, made = launch.mem, []
    lasting = mem.lasting
    monkeypatch.setattr(mem, "lasting", lambda make, device: made.append(lasting(make, device)) or made[-1])
    device = launch.active_device()
    assert lasting(threading.get_ident, device) != threading.get_ident()
    counters = launch.Counters(device)
    kept = [counters.unused, counters.take(4, 0), counters.captured, counters.sums(10, 0)]
    assert counters.take(4, 0) is kept[1] and counters.sums(9, 0) is kept[3]
    x, w = tensors(2, 1, 16, (6, 6), 8, (3, 3), torch.bfloat16)
    kept.append(mem.weight_memory(w.contiguous())[0])
    assert {id(tensor) for tensor in made} == {id(tensor) for tensor in kept} and len(made) == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_compiled_into_graphs():
    """By torch.compile, whose graphs share memory that nothing else may hold: a stem, weights to convert, strips, parts."""
    torch._dynamo.reset()
    forget = launch._counters.copy()
    launch._counters.clear()
    model = torch.nn.Sequential(triton_conv.nn.Conv2d(3, 64, 7, stride=2, padding=3),
                                triton_conv.nn.Conv2d(64, 64, 3, padding=1, groups=16),
                                triton_conv.nn.Conv2d(64, 512, 3, stride=4, padding=1),
                                triton_conv.nn.Conv2d(512, 512, 3, padding=1))
    model = model.to("cuda", torch.bfloat16)
    compiled = torch.compile(model, backend="cudagraphs")
    with torch.no_grad():
        for seed in range(6):
            x = torch.randn(1, 3, 56, 56, generator=torch.Generator().manual_seed(seed)).to("cuda", torch.bfloat16)
            y = compiled(x).clone()
            assert torch.equal(y, model(x))
            if seed == 3:
                for parameter in model.parameters():
                    parameter.mul_(0.5)
    launch._counters.update(forget)


def test_a_converted_weight_is_kept_until_it_changes():
    x, w = tensors(2, 1, 16, (6, 6), 8, (3, 3), torch.bfloat16)
    w = w.contiguous()
    kept = launch.mem.weight_memory(w)[0]
    assert launch.mem.weight_memory(w)[0] is kept
    check(x, w, before=1)
    w.mul_(2)
    assert launch.mem.weight_memory(w)[0] is not kept
    check(x, w, before=1)
    w.data = w.data * 3  # other memory, the same version
    check(x, w, before=1)


def test_a_batch_in_parts(monkeypatch):
    """As where output pixels are too many for 32 bits, with a smaller limit."""
    from triton_conv import geometry
    for groups in (1, 16):
        x, w = tensors(2, 5, 16, (6, 7), 16, (3, 3), torch.bfloat16, groups)
        residual = torch.randn(5, 16, 6, 7, generator=torch.Generator().manual_seed(1)).to(x)
        monkeypatch.setattr(launch, "split_batch", lambda problem: geometry.split_batch(problem, 2 * 42))
        check(x, w, before=1, groups=groups, residual=residual)


SHAPES = {heuristics.name_of(heuristics.make_tile(shape, 64, 2)): shape for shape in heuristics.SHAPES}


@pytest.mark.parametrize("shape, dtype",
                         [(shape, dtype)
                          for number, shape in enumerate(SHAPES)
                          for dtype in (DTYPES if torch.cuda.is_available() else DTYPES[number % 3:][:1])])
def test_each_shape(shape, dtype, monkeypatch):
    """One tile, so that one of two writers has none; a few; more than programs, with the residual's refills."""
    if SHAPES[shape].for_hopper and not is_hopper():
        pytest.skip("a schedule for Hopper")
    monkeypatch.setattr(
        launch.heuristics, "choose", lambda problem, size, *_, **__: heuristics.make_tile(
            SHAPES[shape], heuristics.block_of_channels(problem, size), size))
    problems = [(1, 64, (9, 9), 8), (1, 40, (24, 24), 392)]
    for N, C, extents, K in problems + [(3, 40, (31, 33), 136)] * torch.cuda.is_available():
        x, w = tensors(2, N, C, extents, K, (3, 3), dtype)
        generator = torch.Generator().manual_seed(1)
        bias = torch.randn(K, generator=generator).to(x)
        residual = torch.randn((N, K, *extents), generator=generator).to(x).to(memory_format=torch.channels_last)
        check(x, w, bias, before=1)
        check(x, w, bias, before=1, activation="silu", residual=residual)


IN_PARTS = [("64x64", torch.bfloat16), ("128x64", torch.float32), ("128x128", torch.float16),
            ("256x64", torch.bfloat16)]


@pytest.mark.parametrize("shape, dtype", IN_PARTS if torch.cuda.is_available() else IN_PARTS[:3])
@pytest.mark.parametrize("parts", [2, 3] if torch.cuda.is_available() else [3])
def test_tiles_in_parts(shape, dtype, parts, monkeypatch):
    """Steps that are no multiple of the parts; a tile at the end of rows and channels; the sums of parts, whoever comes last."""
    if SHAPES[shape].for_hopper and not is_hopper():
        pytest.skip("a schedule for Hopper")
    monkeypatch.setattr(
        launch.heuristics, "choose", lambda problem, size, *_, **__: dataclasses.replace(
            heuristics.make_tile(SHAPES[shape], heuristics.block_of_channels(problem, size), size), parts=parts))
    for C, extents, K in [(72, (10, 15), 136), (24, (7, 9), 8)]:
        x, w = tensors(2, 1, C, extents, K, (3, 3), dtype)
        generator = torch.Generator().manual_seed(1)
        bias = torch.randn(K, generator=generator).to(x)
        residual = torch.randn((1, K, *extents), generator=generator).to(x).to(memory_format=torch.channels_last)
        first = check(x, w, before=1)
        assert all(torch.equal(first, check(x, w, before=1)) for _ in range(20 if x.is_cuda else 1))
        check(x, w, bias, before=1, activation="silu", residual=residual)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs and streams need a GPU")
def test_parts_in_graphs_and_streams():
    """Sums and counters are not shared by launches that may run beside each other."""
    x, w = tensors(2, 1, 512, (7, 7), 512, (3, 3), torch.bfloat16)
    assert heuristics.choose(functional.problem_of(x, w, (1, 1), (1, 1), (1, 1), (1, 1), 1), 2, 132).parts > 1
    expected = triton_conv.conv2d(x, w, padding=1)
    graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
    results = []
    for graph in graphs:
        with torch.cuda.graph(graph):
            results += [triton_conv.conv2d(x, w, padding=1) for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in range(8)]
    for number, stream in enumerate(streams * 20):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            if number % 8 < 4:
                graphs[number % 8].replay()
            else:
                results.append(triton_conv.conv2d(x, w, padding=1))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs and streams need a GPU")
def test_cuda_graphs_and_streams():
    x, w = tensors(2, 2, 64, (20, 20), 96, (3, 3), torch.bfloat16)
    expected = triton_conv.conv2d(x, w, padding=1)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        y = triton_conv.conv2d(x, w, padding=1)
    x.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected * 2)
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for number in range(32):
        stream = streams[number % 4]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append(triton_conv.conv2d(x, w, padding=1))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected * 2) for result in results)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is counted on a GPU")
def test_no_memory_but_the_output():
    x, w = tensors(2, 8, 64, (64, 64), 64, (3, 3), torch.bfloat16)
    triton_conv.conv2d(x, w, padding=1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = triton_conv.conv2d(x, w, padding=1)
    assert torch.cuda.max_memory_allocated() - before == y.numel() * y.element_size()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the tensor takes gigabytes")
def test_over_2_to_the_31_elements():
    """An output of more than 2**31 elements, of which the last image is checked."""
    x, w = tensors(2, 140, 16, (512, 512), 64, (1, 1), torch.bfloat16)
    y = triton_conv.conv2d(x, w)
    assert y.numel() > 2**31
    assert relative_error(y[-1:], expected_conv(x[-1:], w, None, 1, (0, 0), (0, 0), 1, 1)) < ERRORS[x.dtype]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_packing(rank):
    """The copy of an input, from any strides, exactly: every element, and zeros around."""
    rng = random.Random(rank)
    for dtype in DTYPES:
        for _ in range(8):
            extents = [rng.randint(1, 7) for _ in range(rank)]
            N, C, before = rng.randint(1, 3), rng.randint(1, 9), rng.randint(0, 4)
            pixels, padded = extents[-1] + before + rng.randint(0, 3), C + rng.randint(0, 8)
            x = torch.randn(N, C, *extents, generator=torch.Generator().manual_seed(rng.randrange(2**31)))
            x = x.to(launch.active_device(), dtype)
            order = rng.sample(range(x.ndim), x.ndim)
            x = x.permute(order).contiguous().permute([order.index(dim) for dim in range(x.ndim)])
            found = launch.mem.packed(x.movedim(1, -1), pixels, padded, before)
            expected = torch.zeros((N, *extents[:-1], pixels, padded), dtype=dtype)
            expected[..., before:before + extents[-1], :C] = x.movedim(1, -1)
            assert torch.equal(found.cpu(), expected)
