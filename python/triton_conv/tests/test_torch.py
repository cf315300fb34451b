"""As a citizen of PyTorch: operator checks, compilation, export, autocast, inference mode, modules."""

import dataclasses
import gc
import pathlib
import runpy
import time
import weakref

import numpy
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


def test_autocast_keeps_what_it_casts():
    """Of weights, until they are written to: the second call casts its input alone, and takes the plan of a call without autocast."""
    x, w, bias, *_ = (tensor.float() if isinstance(tensor, torch.Tensor) else tensor for tensor in arguments())
    w = torch.nn.Parameter(w.contiguous())
    to = torch.Tensor.to

    def casts(call):
        made = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "to", lambda tensor, *rest: made.append(tensor) or to(tensor, *rest))
            call()
        return [name for name, tensor in dict(x=x, w=w, bias=bias).items() if any(tensor is one for one in made)]

    with torch.autocast(x.device.type, dtype=torch.bfloat16), torch.no_grad():
        call = lambda: triton_conv.conv2d(x, w, bias)
        assert casts(call) == ["x", "w", "bias"]
        assert casts(call) == ["x"]
        w.mul_(2)
        assert casts(call) == ["x", "w"]
        y = call()
    assert torch.equal(y, triton_conv.conv2d(x.bfloat16(), w.detach().bfloat16(), bias.bfloat16()))


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
        "2.1": "Scaled is a class of its own", "3":
        "the im2col mode cannot express it: stride 9 in H is more than 8; stride 9 in W is more than 8", "4":
        "ConvTranspose2d is a class of its own"
    }  # yapf: disable
    assert str(report).startswith("2 convolutions converted, 3 kept\n  2.1: Scaled")
    assert type(model[0]) is triton_conv.nn.Conv2d and list(model.state_dict()) == names
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    with torch.no_grad():
        assert relative_error(model(x), expected) < 0.02
    assert triton_conv.nn.convert(model).converted == []


@pytest.mark.parametrize("module, extents", [
    (torch.nn.Conv1d(8, 8, 3, dilation=20000), (50000, )),
    (torch.nn.Conv1d(8, 8, 3, stride=9, groups=8), (30, )),
    (torch.nn.Conv2d(8, 8, 65, dilation=2), (140, 140)),
    (torch.nn.Conv2d(8, 8, 64, dilation=2, stride=2), (140, 139)),
    (torch.nn.Conv2d(8, 8, 3, padding=129), (8, 8)),
    (torch.nn.Conv2d(8, 8, 16, stride=16), (40, 32)),
    (torch.nn.Conv2d(8, 8, 16, stride=16, padding=1), (40, 32)),
    (torch.nn.Conv3d(8, 8, (1, 1, 9), dilation=2), (1, 1, 20)),
    (torch.nn.Conv3d(8, 8, (1, 1, 9), dilation=2, stride=(1, 1, 2)), (1, 1, 20)),
    (torch.nn.Conv3d(8, 8, (17, 1, 1), padding="same", padding_mode="replicate"), (20, 1, 1)),
    (torch.nn.Conv3d(8, 8, (18, 1, 1), padding="same", padding_mode="replicate"), (20, 1, 1)),
])  # yapf: disable
def test_convert_keeps_what_a_call_would_refuse(module, extents):
    """A module is swapped if and only if it computes inputs of all sizes, here of the least fitting."""
    module = module.to(torch.bfloat16)
    problems = list(triton_conv.nn._problems(module))
    assert all(size >= 1 for problem in problems for size in problem.extents)
    report = triton_conv.nn.convert(module)
    assert (not report.kept) == (type(module) in triton_conv.nn._SWAPS.values()) and len(report.kept) < 2
    refused = []
    for extents in (extents, *(problem.extents for problem in problems)):
        x = torch.empty((1, 8, *extents), dtype=torch.bfloat16)
        if module.padding_mode != "zeros":
            x = torch.nn.functional.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
        padding = module.padding if module.padding_mode == "zeros" else "valid"
        stride, before, after, dilation = functional.geometry_of(len(extents), module.kernel_size, module.stride,
                                                                 padding, module.dilation)
        problem = functional.problem_of(x, module.weight, stride, before, after, dilation, module.groups)
        try:
            launch.check_supported(problem, 2)
        except NotImplementedError:
            refused.append(extents)
    assert bool(refused) == bool(report.kept)


def test_converted_modules_search_if_asked_to(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3),
                                torch.nn.Conv2d(16, 16, 1)).to(launch.active_device(), torch.bfloat16)
    x, asked = arguments()[0], []
    monkeypatch.setattr(tuning, "best_tile", lambda problem, *rest: asked.append(problem.taps))
    for autotune in (False, True):
        for module in model:
            module.__class__ = torch.nn.Conv2d
        assert len(triton_conv.nn.convert(model, autotune=autotune).converted) == 2
        with torch.no_grad():
            model(x)
        assert asked == ([(3, 3), (1, 1)] if autotune else [])


def test_vmap_and_operations():
    """Mapped over inputs it is one larger call, over weights one a weight; and PyTorch's counter counts what it counts of its own."""
    x, w, bias, *_ = arguments()
    xs = torch.stack([x, 2 * x, -x])
    ws = torch.stack([w, w * 3, w.flip(0)])
    residuals = torch.stack([triton_conv.conv2d(x, w)] * 3)
    calls = []

    def conv(x, w, residual=None):
        return triton_conv.conv2d(x, w, bias, residual=residual, activation="relu")

    for arguments_, dims in (((xs, w, None), (0, None, None)), ((x, ws, None), (None, 0, None)),
                             ((xs, ws, residuals), 0), ((x, w, residuals), (None, None, 0)), ((xs.movedim(0, 2), w,
                                                                                               None), (2, None, None))):
        dims = (dims, ) * 3 if isinstance(dims, int) else dims
        found = torch.vmap(conv, dims)(*arguments_)
        for index in range(3):
            one = [a if dim is None else a.select(dim, index) for a, dim in zip(arguments_, dims)]
            assert torch.equal(found[index], conv(*one))
    from torch.utils.flop_counter import FlopCounterMode
    for function in (triton_conv.conv2d, torch.nn.functional.conv2d):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            function(x, w, bias, 2, 1)
        calls.append(counter.get_total_flops())
    assert calls[0] == calls[1] == 2 * (2 * 24 * 5 * 4) * 16 * 9


class Marked(torch.Tensor):
    pass


def test_what_overrides_functions():
    """Tracing by torch.fx, tensors of other classes, and a default device, with which calls are as short as without."""
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 24, 3, padding="same"), torch.nn.ReLU(), torch.nn.Conv2d(24, 16, 1))
    model = model.to(launch.active_device(), torch.bfloat16).eval()
    triton_conv.nn.convert(model)
    x, w, bias, *_ = arguments()
    with torch.no_grad():
        traced = torch.fx.symbolic_trace(model)
        assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [triton_conv.conv2d] * 2
        assert torch.equal(traced(x), model(x))
    expected = triton_conv.conv2d(x, w, bias, padding=1, activation="relu")
    marked = triton_conv.conv2d(x.as_subclass(Marked), w, bias, padding=1, activation="relu")
    assert type(marked) is Marked and torch.equal(marked.as_subclass(torch.Tensor), expected)
    forget_plans()
    with torch.device(launch.active_device()):
        assert torch.equal(triton_conv.conv2d(x, w, bias, padding=1, activation="relu"), expected)
    assert len(functional._quick_plans) == 1


def test_ints_of_other_libraries():
    x, w, *_ = arguments()
    expected = triton_conv.conv2d(x, w, None, (2, 1), 1)
    forget_plans()
    for stride, padding in (((numpy.int64(2), numpy.int32(1)), numpy.int64(1)), (torch.tensor([2, 1]),
                                                                                 (torch.tensor(1), ) * 2)):
        assert torch.equal(triton_conv.conv2d(x, w, None, stride, padding, numpy.int64(1), numpy.int64(1)), expected)


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
    if not x.is_cuda:
        monkeypatch.setattr(tuning.mem, "is_capturing", lambda device: False)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="call once before the capture"):
        patch.setattr(tuning.mem, "is_capturing", lambda device: True)
        triton_conv.conv2d(x, w, bias, padding=1, autotune=True)
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
