"""Measure the tutorial's kernels against cuDNN and cuBLAS over the layers that it covers.

    python tutorial.py [--commit ID] [--out results/tutorial-h200.json]

The layers are those of layers.json that are 2-D, not grouped, and have a multiple of 8 channels. Times are medians in
ms, in CUDA graphs, all alternatives in turn (triton_conv/timing.py).
"""

import argparse
import json
import pathlib
import runpy

import torch
from triton_conv.timing import environment, geomean, side_by_side

HERE = pathlib.Path(__file__).parent
TUTORIAL = HERE.parents[1] / "tutorials" / "gluon" / "13-conv-im2col.py"


def covered(layer):
    return len(layer["input"]) == 2 and layer["groups"] == 1 and layer["in_channels"] % 8 == 0


def as_conv(tutorial, layer):
    (pad_h, pad_w) = layer["padding"]
    return tutorial["Conv"](layer["batch"], *layer["input"], layer["in_channels"], layer["out_channels"],
                            *layer["filter"], *layer["stride"], pad_h, pad_h, pad_w, pad_w, *layer["dilation"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", help="what was measured; default: git describe")
    parser.add_argument("--out", type=pathlib.Path, help="result file to write")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    tutorial = runpy.run_path(str(TUTORIAL))
    torch.backends.cudnn.benchmark = True
    rows = []
    for layer in filter(covered, json.loads((HERE / "layers.json").read_text())):
        conv = as_conv(tutorial, layer)
        times = side_by_side(dict(zip(tutorial["PROVIDERS"], tutorial["candidates"](conv))), options.rounds)
        m, n, k = conv.gemm
        rows.append({"name": layer["name"], "gflop": 2e-9 * m * n * k, "ms": times})
        tflops = {name: 2e-9 * m * n * k / ms for name, ms in times.items()}
        print(
            f"{layer['name']:28}", *(f"{name} {value:4.0f}" for name, value in tflops.items()), "TFLOP/s;",
            f"of cuDNN {times['cuDNN'] / times['conv kernel']:.3f}, of the first kernel "
            f"{times['first kernel'] / times['conv kernel']:.2f}", flush=True)
    ratios = [row["ms"]["cuDNN"] / row["ms"]["conv kernel"] for row in rows]
    first = [row["ms"]["first kernel"] / row["ms"]["conv kernel"] for row in rows]
    summary = {
        "of_cudnn_geomean": geomean(ratios), "of_cudnn_least": min(ratios), "of_first_kernel_geomean": geomean(first),
        "of_first_kernel_least": min(first)
    }
    print(summary)
    if options.out:
        options.out.write_text(
            json.dumps({"environment": environment(options.commit), "summary": summary, "layers": rows}, indent=1) +
            "\n")


if __name__ == "__main__":
    main()
