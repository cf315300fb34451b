"""Plot a result file of tutorial.py: TFLOP/s of each step by layer.

    python plot.py RESULTS.json PLOT.svg
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

COLORS = {"first kernel": "#c9ced6", "conv kernel": "#2a6fb0", "cuDNN": "#d9822b", "cuBLAS GEMM": "#3f8f5f"}


def main(results, path):
    with open(results) as file:
        results = json.load(file)
    layers, environment = results["layers"], results["environment"]
    width = 0.8 / len(COLORS)
    with plt.rc_context({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "results"}):
        figure, axes = plt.subplots(figsize=(10, 4.4), layout="constrained")
        for index, (name, color) in enumerate(COLORS.items()):
            places = [place + (index - (len(COLORS) - 1) / 2) * width for place in range(len(layers))]
            axes.bar(places, [layer["gflop"] / layer["ms"][name] for layer in layers], width, color=color, label=name)
        axes.set_xticks(range(len(layers)), [layer["name"] for layer in layers], rotation=40, ha="right")
        axes.set_ylabel("TFLOP/s, bf16")
        axes.set_title(f"{environment['gpu']}, cuDNN {environment['cudnn']}, Triton {environment['triton']}")
        axes.grid(axis="y", linewidth=0.4)
        axes.set_axisbelow(True)
        axes.legend(ncols=len(COLORS), frameon=False)
        figure.savefig(path, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
