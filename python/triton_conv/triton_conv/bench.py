"""This package against cuDNN, layer by layer, on a GPU.

    python -m triton_conv.bench layers.json
    python -m triton_conv.bench --model torchvision.models:resnet50 --input 32,3,224,224

A layer file is a list of objects with name, batch, in_channels, out_channels, input, filter, stride, padding, dilation and
groups. Times are medians in CUDA graphs, all candidates in turn in one process; cuDNN runs in channels_last memory after
its search for the fastest algorithm, and cuBLAS multiplies matrices of the layer's M, N and K.
"""

import argparse
import importlib
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

from . import functional
from .ahead import compile_ahead
from .timing import environment, geomean, side_by_side, side_by_side_cold

OURS, CUDNN, CUBLAS = "triton_conv", "cuDNN", "cuBLAS GEMM"
CONVS = {1: (functional.conv1d, F.conv1d), 2: (functional.conv2d, F.conv2d), 3: (functional.conv3d, F.conv3d)}
FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


def layers_of(model, *inputs):
    """The layers that a forward pass goes through: one for each kind, with how often it occurs."""
    found: dict[str, dict] = {}

    def note(module, arguments, output):
        x = arguments[0]
        layer = {
            "batch": x.shape[0], "in_channels": module.in_channels, "out_channels": module.out_channels, "input":
            list(x.shape[2:]), "filter": list(module.kernel_size), "stride": list(module.stride), "padding":
            module.padding if isinstance(module.padding, str) else list(module.padding), "dilation":
            list(module.dilation), "groups": module.groups
        }
        layer = found.setdefault(json.dumps(layer), {"name": names[module], **layer, "count": 0})
        layer["count"] += 1

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    names = {module: name for name, module in model.named_modules() if isinstance(module, kinds)}
    hooks = [module.register_forward_hook(note) for module in names]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())


def describe(layer):
    """The layer's problem, from its numbers alone."""
    x = torch.empty((layer["batch"], layer["in_channels"], *layer["input"]), device="meta")
    w = torch.empty((layer["out_channels"], layer["in_channels"] // layer["groups"], *layer["filter"]), device="meta")
    before, after = functional.padding_of(layer["padding"], layer["filter"], layer["stride"], layer["dilation"])
    return functional.problem_of(x, w, layer["stride"], before, after, layer["dilation"], layer["groups"])


def candidates(layer, dtype, autotune=False):
    """Functions without arguments that compute the layer, by name; cuBLAS where a matrix product is comparable."""
    problem = describe(layer)
    ours, theirs = CONVS[problem.rank]
    x = torch.randn((problem.batch, problem.channels, *problem.extents), device="cuda").to(dtype)
    w = torch.randn((problem.out_channels, problem.group_channels, *problem.taps), device="cuda").to(dtype)
    memory = FORMATS[problem.rank]
    theirs_x, theirs_w = x.to(memory_format=memory), w.to(memory_format=memory)
    ours_x, ours_w = (tensor.movedim(1, -1).contiguous().movedim(-1, 1) for tensor in (x, w))
    arguments = layer["stride"], layer["padding"], layer["dilation"], layer["groups"]
    found = {
        OURS: lambda: ours(ours_x, ours_w, None, *arguments, autotune=autotune), CUDNN:
        lambda: theirs(theirs_x, theirs_w, None, *arguments)
    }
    if problem.groups == 1:
        a, b = (torch.randn((rows, problem.reduction), device="cuda").to(dtype)
                for rows in (problem.rows, problem.out_channels))
        found[CUBLAS] = lambda: a @ b.T
    return found


def compile_kernels(layers, dtype=torch.bfloat16, functions_of=candidates):
    """All that ``functions_of(layer, dtype)`` need but cuDNN's and cuBLAS's, side by side."""
    with compile_ahead(), torch.no_grad():
        for layer in layers:
            for name, function in functions_of(layer, dtype).items():
                if name not in (CUDNN, CUBLAS):
                    function()


def measure(layers, dtype=torch.bfloat16, rounds=15, cold=False, autotune=False):
    """The layers with their operations and times in ms, one after the other as they are measured."""
    torch.backends.cudnn.benchmark = True
    for layer in layers:
        with torch.no_grad():
            functions = candidates(layer, dtype, autotune)
            found = {
                "name": layer["name"], "gflop": describe(layer).flops * 1e-9, "ms": side_by_side(functions, rounds)
            }
            if cold:
                found["cold_ms"] = side_by_side_cold(functions)
        yield found


def line(result):
    tflops = ", ".join(f"{name} {result['gflop'] / ms:.0f}" for name, ms in result["ms"].items())
    cold = f", cold {result['cold_ms'][CUDNN] / result['cold_ms'][OURS]:.2f}" if "cold_ms" in result else ""
    return f"{result['name']:32} {tflops} TFLOP/s; of cuDNN {result['ms'][CUDNN] / result['ms'][OURS]:.2f}{cold}"


def summary(results):
    ratios = [result["ms"][CUDNN] / result["ms"][OURS] for result in results]
    return {"of_cudnn_geomean": geomean(ratios), "of_cudnn_least": min(ratios)}


COLORS = {"first kernel": "#c9ced6", "conv kernel": "#2a6fb0", OURS: "#2a6fb0", CUDNN: "#d9822b", CUBLAS: "#3f8f5f"}


def plot(found, path):
    """TFLOP/s of each candidate by layer, from the contents of a result file."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    layers, environment = found["layers"], found["environment"]
    names = list(layers[0]["ms"])
    width = 0.8 / len(names)
    with plt.rc_context({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "results"}):
        figure, axes = plt.subplots(figsize=(10, 4.4), layout="constrained")
        for index, name in enumerate(names):
            places = [place + (index - (len(names) - 1) / 2) * width for place in range(len(layers))]
            values = [layer["gflop"] / layer["ms"].get(name, float("inf")) for layer in layers]
            axes.bar(places, values, width, color=COLORS[name], label=name)
        axes.set_xticks(range(len(layers)), [layer["name"] for layer in layers], rotation=40, ha="right")
        axes.set_ylabel("TFLOP/s")
        axes.set_title(f"{environment['gpu']}, cuDNN {environment['cudnn']}, Triton {environment['triton']}")
        axes.set_ylim(top=1.12 * axes.get_ylim()[1])  # the legend is above the bars
        axes.grid(axis="y", linewidth=0.4)
        axes.set_axisbelow(True)
        axes.legend(ncols=len(names), frameon=False)
        figure.savefig(path, facecolor="white", metadata={"Date": None})


def load_model(name):
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)()


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m triton_conv.bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="?", type=pathlib.Path, help="a layer file")
    parser.add_argument("--model", metavar="MODULE:FUNCTION",
                        help="a function that makes a model, whose layers are taken")
    parser.add_argument("--input", metavar="N,C,...", help="the shape of the model's input")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--cold", action="store_true", help="measure with an empty L2 as well")
    parser.add_argument("--autotune", action="store_true", help="search for the tiles of this package's kernels first")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, help="result file to write")
    parser.add_argument("--plot", type=pathlib.Path, help="plot to write")
    parser.add_argument("--commit", help="what is measured; default: git describe")
    options = parser.parse_args(arguments)
    if (options.layers is None) == (options.model is None):
        parser.error("expected a layer file or --model")
    if options.model and not options.input:
        parser.error("--model needs --input")
    if options.model:
        layers = layers_of(load_model(options.model), torch.zeros([int(size) for size in options.input.split(",")]))
    else:
        layers = json.loads(options.layers.read_text())
    if not torch.cuda.is_available():
        print("There is no GPU here to measure on. The layers are:")
        for layer in layers:
            print(f"{layer['name']:32} {describe(layer).flops * 1e-9:10.1f} GFLOP, {layer.get('count', 1)} times")
        return 1
    if not options.autotune:  # which compiles more, layer by layer
        compile_kernels(layers, getattr(torch, options.dtype))
    results = []
    for result in measure(layers, getattr(torch, options.dtype), options.rounds, options.cold, options.autotune):
        results.append(result)
        print(line(result), flush=True)
    print(summary(results))
    found = {"environment": environment(options.commit), "summary": summary(results), "layers": results}
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.plot:
        plot(found, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
