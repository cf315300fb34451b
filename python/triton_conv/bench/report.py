"""Put the table of a result file into a Markdown file, between the two marks of its kind.

    python report.py RESULTS.json README.md
"""

import json
import pathlib
import sys

CUDNN, CUBLAS = "cuDNN", "cuBLAS GEMM"
KINDS = {"tutorial": ["first kernel", "conv kernel", CUDNN, CUBLAS], "library": ["triton_conv", CUDNN, CUBLAS]}


def kind_of(results):
    return "library" if "triton_conv" in results["layers"][0]["ms"] else "tutorial"


def row(layer, names):
    """A layer's TFLOP/s by each candidate, and how many times as fast as cuDNN ours is, warm and cold."""
    ours = names[names.index(CUDNN) - 1]
    cells = [f"{layer['gflop'] / layer['ms'][name]:.0f}" if name in layer["ms"] else "" for name in names]
    cells += [f"{layer[times][CUDNN] / layer[times][ours]:.2f}" for times in ("ms", "cold_ms") if times in layer]
    return f"| {' | '.join([layer['name'], *cells])} |"


def table(results):
    kind = kind_of(results)
    names = KINDS[kind]
    ours = names[names.index(CUDNN) - 1].replace("conv kernel", "the conv kernel")
    heads = [*names, f"{names[names.index(CUDNN) - 1]} / cuDNN"]
    if kind == "library":
        heads.append("cold L2")
    lines = [f"| layer | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    lines += [row(layer, names) for layer in results["layers"]]
    env, summary = results["environment"], results["summary"]
    first = "" if kind == "library" else (
        f", and {summary['of_first_kernel_geomean']:.2f} times as fast as the first kernel")
    lines += [
        "",
        f"TFLOP/s in bf16. {ours[0].upper() if ours[0] == 't' and ' ' in ours else ours[0]}{ours[1:]} is "
        f"{summary['of_cudnn_geomean']:.2f} times as fast as cuDNN by geometric mean, {summary['of_cudnn_least']:.2f} at "
        f"least{first}. {env['gpu']} (SM clock {env['clocks.sm']} of {env['clocks.max.sm']} right after, power limit "
        f"{env['power.limit']}, driver {env['driver_version']}), Triton {env['triton']}, PyTorch {env['torch']}, "
        f"cuDNN {env['cudnn']}, commit {env['commit']}, {env['date']}.",
    ]
    return "\n".join(lines)


def replace(text, results):
    begin, end = (f"<!-- {mark}: {kind_of(results)} results -->" for mark in ("begin", "end"))
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{table(results)}\n{end}{after}"


def main(results, path):
    path = pathlib.Path(path)
    path.write_text(replace(path.read_text(), json.loads(pathlib.Path(results).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
