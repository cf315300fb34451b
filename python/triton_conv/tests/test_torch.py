"""As a citizen of PyTorch: operator checks, compilation, export, autocast, inference mode, modules."""

import dataclasses
import gc
import pathlib
import runpy
import time
import weakref

import pytest
import torch
import triton_conv
from test_conv import ERRORS, relative_error, tensors
from triton_conv import functional, heuristics, launch, tuning


def forget_plans():
    for prepared in (functional._plans, functional._quick_plans, launch._launches):
        prepared.clear()


def arguments(rank=2, residual=False):
    extents = (9, 8, 7)[:rank]
    x, w = tensors(rank, 2, 16, extents, 24, (3, ) * rank, torch.bfloat16)
    bias = torch.randn(24).to(x)
    y = torch.randn(2, 24, *extents).to(x) if residual else None
    ones = [1] * rank
    return x, w, bias, y, ones, ones, ones, ones, 1, "relu", False


@pytest.mark.parametrize("rank, residual", [(1, False), (2, True), (3, False)])
def test_opcheck(rank, residual):
    torch.library.opcheck(torch.ops.triton_conv.conv, arguments(rank, residual))


def test_compile_without_a_break():
    x, w, bias, *_ = arguments()

    def model(x):
        y = triton_conv.conv2d(x, w, bias, padding=1, activation="silu")
        return triton_conv.conv2d(y, w.repeat(1, 2, 1, 1)[:, :24], padding="same", residual=y) * 2

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), model(x))
    assert torch.equal(compiled(x), model(x))


def test_export():
    module = triton_conv.nn.Conv2d(16, 24, 3, padding=1, dtype=torch.bfloat16, device=launch.active_device())
    x = arguments()[0]
    with torch.no_grad():
        program = torch.export.export(module, (x, ))
        assert "triton_conv.conv" in str(program.graph)
        assert torch.equal(program.module()(x), module(x))


def test_inference_mode_and_weights_made_in_it():
    x, w, *_ = arguments()
    expected = triton_conv.conv2d(x, w)
    with torch.inference_mode():
        assert torch.equal(triton_conv.conv2d(x, w), expected)
        assert torch.equal(triton_conv.conv2d(x.clone(), w.contiguous()), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    x, w, bias, *_ = (tensor.float() if isinstance(tensor, torch.Tensor) else tensor for tensor in arguments())
    with torch.autocast(x.device.type, dtype=dtype):
        y = triton_conv.conv2d(x, w, bias)
    assert y.dtype == dtype
    assert torch.equal(y, triton_conv.conv2d(x.to(dtype), w.to(dtype), bias.to(dtype)))


def test_modules_are_pytorchs():
    for ours, theirs, extents in [(triton_conv.nn.Conv1d, torch.nn.Conv1d, (9, )),
                                  (triton_conv.nn.Conv2d, torch.nn.Conv2d, (9, 8)),
                                  (triton_conv.nn.Conv3d, torch.nn.Conv3d, (5, 6, 7))]:
        options = dict(kernel_size=3, stride=2, padding=1, dilation=1, groups=2, dtype=torch.bfloat16,
                       device=launch.active_device())
        a, b = ours(32, 48, **options), theirs(32, 48, **options)
        assert isinstance(a, theirs) and a.state_dict().keys() == b.state_dict().keys()
        a.load_state_dict(b.state_dict())
        x = torch.randn(2, 32, *extents, dtype=torch.bfloat16, device=launch.active_device())
        with torch.no_grad():
            assert relative_error(a(x), b.cpu().double()(x.cpu().double())) < ERRORS[x.dtype]


class Scaled(torch.nn.Conv2d):
    pass


def test_convert():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 7, stride=2, padding=3), torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding="same", padding_mode="reflect"), Scaled(16, 16, 3)),
        torch.nn.Conv2d(16, 8, 3, stride=9), torch.nn.ConvTranspose2d(8, 8, 2))
    model = model.to(launch.active_device(), torch.bfloat16)
    parameters, names = list(model.parameters()), list(model.state_dict())
    x = torch.randn(1, 3, 40, 40, dtype=torch.bfloat16, device=launch.active_device())
    expected = model.cpu().double()(x.cpu().double())
    model.to(launch.active_device(), torch.bfloat16)
    report = triton_conv.nn.convert(model)
    assert report.converted == ["0", "2.0"]
    assert report.kept == {
        "2.1": "Scaled is a class of its own", "3": "stride is (9, 9); more than 8 needs a filter of the same size, without padding",
        "4": "ConvTranspose2d is a class of its own"
    }  # yapf: disable
    assert str(report).startswith("2 convolutions converted, 3 kept\n  2.1: Scaled")
    assert type(model[0]) is triton_conv.nn.Conv2d and list(model.state_dict()) == names
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    with torch.no_grad():
        assert relative_error(model(x), expected) < 0.02
    assert triton_conv.nn.convert(model).converted == []


def test_the_example_of_the_documentation(capsys):
    example = runpy.run_path(str(pathlib.Path(__file__).parents[3] / "docs" / "examples" / "library.py"))
    assert capsys.readouterr().out == "1 convolutions converted, 1 kept\n  2: ConvTranspose2d is a class of its own\n"
    x, w, bias, shortcut = (example[name].cpu().double() for name in ("x", "w", "bias", "shortcut"))
    conv = torch.nn.functional.conv2d
    assert relative_error(example["y"], torch.relu(conv(x, w, bias, padding=1) + shortcut)) < ERRORS[torch.bfloat16]
    padded = torch.nn.functional.pad(x, (1, 1, 2, 0))
    assert relative_error(example["z"], conv(padded, w)) < ERRORS[torch.bfloat16]


def test_later_calls_go_past_the_inspection_of_arguments(monkeypatch):
    """Tensors alike share a plan, whose later calls do not reach the JIT; others get one of their own."""
    x, w, bias, *_ = arguments()
    first = triton_conv.conv2d(x, w, bias, padding=1)
    plans = len(functional._plans)
    jit = launch.fprop_kernel
    monkeypatch.setattr(launch, "fprop_kernel", None)
    again = triton_conv.conv2d(x.clone(memory_format=torch.channels_last), w, bias, padding=[1, 1])
    assert torch.equal(first, again) and len(functional._plans) == plans
    other = torch.randn_like(x)
    expected = torch.nn.functional.conv2d(other.cpu().double(), w.cpu().double(), bias.cpu().double(), padding=1)
    assert relative_error(triton_conv.conv2d(other, w, bias, padding=1), expected) < ERRORS[x.dtype]
    monkeypatch.setattr(launch, "fprop_kernel", jit)
    moved = torch.empty(x.numel() + 4, dtype=x.dtype, device=x.device)[4:].view(2, 9, 8, 16).movedim(-1, 1).copy_(x)
    assert moved.data_ptr() % 16 == 8
    assert torch.equal(triton_conv.conv2d(moved, w, bias, padding=1), first)
    assert len(functional._plans) == plans + 1


def test_plans_keep_no_tensors():
    tensors = [tensor.clone(memory_format=torch.preserve_format) for tensor in arguments()[:3]]
    alive = [weakref.ref(tensor) for tensor in tensors]
    alive.append(weakref.ref(triton_conv.conv2d(*tensors, padding=1)))
    del tensors
    gc.collect()
    assert [ref() is None for ref in alive] == [True] * 4


@pytest.mark.parametrize("limit", [3])
def test_the_number_of_plans_is_bounded(limit, monkeypatch):
    monkeypatch.setattr(functional, "MOST_PLANS", limit)
    forget_plans()
    x, w, *_ = arguments()
    for size in range(3, 9):
        triton_conv.conv2d(x[:, :, :size], w)
        assert len(functional._plans) <= limit and len(functional._quick_plans) <= limit


def test_the_host_time_of_a_call(monkeypatch):
    """What a call costs before the launch itself, of which the simulator's is another; in thread time, since machines are busy."""

    class Compiled:
        function = packed_metadata = None
        launch_metadata = run = staticmethod(lambda *arguments: None)

    class Kernel:

        def __getitem__(self, grid):
            return lambda *arguments, **options: Compiled()

    monkeypatch.setattr(launch, "fprop_kernel", Kernel())
    forget_plans()
    x, w, bias, *_ = arguments()

    def seconds(function, calls=300):
        start = time.thread_time()
        for _ in range(calls):
            function()
        return (time.thread_time() - start) / calls

    with torch.inference_mode():
        best = min(seconds(lambda: triton_conv.conv2d(x, w, bias, padding=1)) for _ in range(5))
        relu = min(seconds(lambda: torch.relu(x)) for _ in range(5))
    forget_plans()
    print(f"{best * 1e6:.1f} us a call; torch.relu {relu * 1e6:.1f} us")
    assert best < 20 * relu


def test_autotune(monkeypatch, tmp_path, capsys):
    """With times that are made up: the fastest tile is used and kept on disk, and a second process would not time again."""
    x, w, bias, *_ = arguments()
    if not x.is_cuda:
        with pytest.raises(NotImplementedError,
                           match="autotune is True, which measures times; the active driver runs on cpu"):
            triton_conv.conv2d(x, w, bias, padding=1, autotune=True)
    timed, path = [], tmp_path / "choices" / "device.json"

    def side_by_side(functions, rounds):
        timed.append(list(functions))
        for function in functions.values():
            function()
        return {tile: 1.0 + (tile.block_n - 64) / 64 + tile.in_turns + (tile.strip > 1) for tile in functions}

    monkeypatch.setattr(tuning.timing, "side_by_side", side_by_side)
    monkeypatch.setattr(tuning, "file_of", lambda device: path)
    if not x.is_cuda:
        monkeypatch.setattr(tuning.heuristics, "SHAPES", [heuristics.NARROW, heuristics.IN_TURNS])
    best_tile = tuning.best_tile
    monkeypatch.setattr(tuning, "best_tile",
                        lambda problem, dtype, device, *rest: best_tile(problem, dtype, torch.device("cuda"), *rest))
    used = []
    monkeypatch.setattr(
        launch.descriptors, "output_descriptor",
        lambda problem, y, tile, make=launch.descriptors.output_descriptor: used.append(tile) or make(problem, y, tile))
    expected = torch.nn.functional.conv2d(x.cpu().double(), w.cpu().double(), bias.cpu().double(), padding=1)
    for turn in range(2):
        forget_plans()
        assert relative_error(triton_conv.conv2d(x, w, bias, padding=1, autotune=True), expected) < ERRORS[x.dtype]
        assert (used[-1].block_m, used[-1].block_n) == (256, 64) and len(timed) == 1
    forget_plans()
    hopper = launch.active_target().arch == 90
    assert any(tile.strip > 1 for tile in timed[0]) == hopper
    assert len(timed[0]) >= 4 and list(tuning.read(path).values()) == [dataclasses.asdict(used[-1])]
    progress = capsys.readouterr().err
    assert "timing" in progress and "256x64: 1.0000 ms" in progress
