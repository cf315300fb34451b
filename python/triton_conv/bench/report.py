"""Put the table of a result file of tutorial.py into a Markdown file, between its two marks.

    python report.py RESULTS.json README.md
"""

import json
import pathlib
import sys

BEGIN, END = "<!-- begin: tutorial results -->", "<!-- end: tutorial results -->"
NAMES = ["first kernel", "conv kernel", "cuDNN", "cuBLAS GEMM"]


def table(results):
    lines = [f"| layer | {' | '.join(NAMES)} | conv kernel / cuDNN |", "|---|" + "---:|" * (len(NAMES) + 1)]
    for layer in results["layers"]:
        ms = layer["ms"]
        tflops = " | ".join(f"{layer['gflop'] / ms[name]:.0f}" for name in NAMES)
        lines.append(f"| {layer['name']} | {tflops} | {ms['cuDNN'] / ms['conv kernel']:.2f} |")
    env, summary = results["environment"], results["summary"]
    lines += [
        "",
        "TFLOP/s in bf16. "
        f"The conv kernel is {summary['of_cudnn_geomean']:.2f} times as fast as cuDNN by geometric mean, "
        f"{summary['of_cudnn_least']:.2f} at least, and {summary['of_first_kernel_geomean']:.2f} times as fast as the "
        f"first kernel. {env['gpu']} (SM clock {env['clocks.sm']} of {env['clocks.max.sm']} right after, power limit "
        f"{env['power.limit']}, driver {env['driver_version']}), Triton {env['triton']}, PyTorch {env['torch']}, "
        f"cuDNN {env['cudnn']}, commit {env['commit']}, {env['date']}.",
    ]
    return "\n".join(lines)


def replace(text, results):
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def main(results, path):
    path = pathlib.Path(path)
    path.write_text(replace(path.read_text(), json.loads(pathlib.Path(results).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
