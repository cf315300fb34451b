"""Time every tile shape on every layer, which is what the rule in heuristics.py is fitted to.

    python shapes.py [layers.json small.json ...] [--out FILE]

A line a layer: the time of each shape as a share of cuDNN's, all in turn in one process, and which one the rule picks.
"""

import argparse
import dataclasses
import json
import pathlib

import torch
from triton_conv import bench, heuristics, launch, tuning
from triton_conv import memory as mem
from triton_conv.timing import environment, side_by_side

HERE = pathlib.Path(__file__).parent


def multiprocessors():
    return torch.cuda.get_device_properties(0).multi_processor_count


def candidates(layer, dtype=torch.bfloat16):
    """The layer in each shape, by its name, and in cuDNN; layers that need a copy or the CUDA cores have cuDNN only."""
    functions = bench.candidates(layer, dtype)
    found = {bench.CUDNN: functions[bench.CUDNN]}
    problem = bench.describe(layer)
    size = dtype.itemsize
    if problem.channels * size % 16 or not launch.suits_tensor_cores(problem, size):
        return problem, found
    x = torch.randn((problem.batch, *problem.extents, problem.channels), device="cuda").to(dtype)
    w = torch.randn((problem.out_channels, *problem.taps, problem.group_channels), device="cuda").to(dtype)
    y = torch.empty((problem.batch, *problem.out, problem.out_channels), dtype=dtype, device="cuda")
    strides = mem.element_strides(x)
    for tile in tuning.candidates(problem, size, heuristics.SHAPES, multiprocessors()):
        prepared = launch.FpropLaunch(problem, x, strides, w, problem.group_channels, y,
                                      launch.Epilogue(None, None, "none"), tile)
        found[heuristics.name_of(tile)] = lambda prepared=prepared: prepared(x, w, y, None, None)
    return problem, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="*", type=pathlib.Path, help="layer files")
    parser.add_argument("--out", type=pathlib.Path, help="result file to write")
    parser.add_argument("--commit", help="what is measured; default: git describe")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = []
    files = options.layers or [HERE / "layers.json", HERE / "small.json"]
    layers = [layer for file in files for layer in json.loads(file.read_text())]
    bench.compile_kernels(layers, functions_of=lambda layer, dtype: candidates(layer, dtype)[1])
    for layer in layers:
        problem, functions = candidates(layer)
        if len(functions) == 1:
            continue
        times = side_by_side(functions, rounds=7)
        tile = heuristics.choose(problem, 2, multiprocessors())
        chosen = heuristics.name_of(tile)
        rows.append({"name": layer["name"], "problem": dataclasses.asdict(problem), "chosen": chosen, "ms": times})
        ratios = (f"{name} {times[bench.CUDNN] / ms:.3f}" for name, ms in times.items() if name != bench.CUDNN)
        print(f"{layer['name']:28} of cuDNN: {', '.join(ratios)}; chosen {chosen}", flush=True)
    if options.out:
        options.out.write_text(
            json.dumps({"environment": environment(options.commit), "layers": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
