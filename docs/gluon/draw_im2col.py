"""Draw the figures of im2col: im2col-walk.svg and im2col-gemm.svg, beside this file or in the folder named.

    python docs/gluon/draw_im2col.py [FOLDER]

What they show is computed by the brute-force reference of the tests.
"""

import pathlib
import sys
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python" / "test" / "gluon"))
from im2col_reference import sources, walk  # noqa: E402

IMAGE, FILL, BASE, READ, WEIGHT = "#eef2f7", "#c9ced6", "#2a6fb0", "#d9822b", "#3f8f5f"
STYLE: Any = {
    "font.size": 9, "font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": "im2col", "axes.titlesize": 10
}


def cell(axes, row, column, color, text="", edge="#8a94a3", text_color="black", width=1.0, height=1.0):
    axes.add_patch(Rectangle((column, row), width, height, facecolor=color, edgecolor=edge, linewidth=0.7))
    if text != "":
        axes.text(column + width / 2, row + height / 2, text, ha="center", va="center", color=text_color)


def outline(axes, row, column, height, width, color, style="-"):
    axes.add_patch(Rectangle((column, row), width, height, fill=False, edgecolor=color, linewidth=2, linestyle=style))


def frame(axes, rows, columns, title):
    axes.set_xlim(columns[0] - 0.2, columns[1] + 0.2)
    axes.set_ylim(rows[1] + 0.2, rows[0] - 0.2)
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_title(title)


def image_cells(axes, H, W):
    for h in range(H):
        for w in range(W):
            cell(axes, h, w, IMAGE)


def draw_walk():
    """The tutorial's "a stride of 2": 16 pixels of two 5x6 images, 3x3 filter, padding 1, stride 2, tap (0, 2)."""
    shape, lower, upper, strides, offsets, pixels = (2, 5, 6, 8), (-1, -1), (-1, -1), (2, 2), (0, 2), 16
    bases = [position for position, _ in zip(walk(shape, lower, upper, strides, (0, -1, -1)), range(pixels))]
    reads = sources(shape, lower, upper, strides, (0, -1, -1), offsets, pixels)
    H, W = shape[1:3]
    figure, axes = plt.subplots(2, 2, figsize=(8, 6.6), layout="constrained")
    for n in range(2):
        frame(axes[n, 0], (-1, H), (-1, W + 1), f"image {n}: base positions, by row of the block")
        frame(axes[n, 1], (-1, H), (-1, W + 1), f"image {n}: what tap (0, 2) reads, by row of the block")
        for axis in axes[n]:
            image_cells(axis, H, W)
        outline(axes[n, 0], lower[0], lower[1], H + upper[0] - lower[0], W + upper[1] - lower[1], BASE, "--")
        for row, (base, read) in enumerate(zip(bases, reads)):
            if base[0] == n:
                cell(axes[n, 0], base[1], base[2], BASE, row, text_color="white")
                position = base[1] + offsets[0], base[2] + offsets[1]
                if read is None:
                    cell(axes[n, 1], *position, FILL, row)
                else:
                    assert read == (n, *position)
                    cell(axes[n, 1], *position, READ, row, text_color="black")
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=IMAGE, edgecolor="#8a94a3", label="pixel of the image"),
        Rectangle((0, 0), 1, 1, facecolor=BASE, label="base position"),
        Rectangle((0, 0), 1, 1, fill=False, edgecolor=BASE, linestyle="--", linewidth=2,
                  label="bounds from the corners"),
        Rectangle((0, 0), 1, 1, facecolor=READ, label="pixel read"),
        Rectangle((0, 0), 1, 1, facecolor=FILL, label="outside: filled with zeros"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_gemm():
    """A 4x5 image, 3x3 filter, padding 1: the implicit matrices, with the tile of 8 pixels and tap (1, 2) marked."""
    H, W, R, S, taps = 4, 5, 3, 3, 9
    shape, first, rows, tap, outs = (1, H, W, 8), 4, 8, 5, 6
    columns = [
        sources(shape, (-1, -1), (-1, -1), (1, 1), (0, -1, -1), (r, s), H * W) for r in range(R) for s in range(S)
    ]
    figure = plt.figure(figsize=(8.6, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(5.4, 9, outs), height_ratios=(taps, H * W))
    image, weights, matrix, output = (figure.add_subplot(grid[place]) for place in ((1, 0), (0, 2), (1, 1), (1, 2)))
    frame(image, (0, H), (0, W), "input: pixels of the tile's rows\nthat tap (1, 2) reads")
    image_cells(image, H, W)
    for row in range(first, first + rows):
        if columns[tap][row] is not None:
            _, h, w = columns[tap][row]
            cell(image, h, w, READ, row)
    frame(matrix, (0, H * W), (0, taps), "im2col matrix, never stored:\nN P Q output pixels by (tap, channels)")
    for row in range(H * W):
        for column in range(taps):
            cell(matrix, row, column, FILL if columns[column][row] is None else IMAGE)
    for row in range(first, first + rows):
        cell(matrix, row, tap, FILL if columns[tap][row] is None else READ, row)
    outline(matrix, first, tap, rows, 1, READ)
    frame(weights, (0, taps), (0, outs), "weights: (tap, channels)\nby output channels")
    frame(output, (0, H * W), (0, outs), "output: N P Q pixels\nby output channels")
    for column in range(outs):
        for row in range(taps):
            cell(weights, row, column, WEIGHT if row == tap and column < 4 else IMAGE)
        for row in range(H * W):
            cell(output, row, column, BASE if first <= row < first + rows and column < 4 else IMAGE)
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=READ, label="one im2col load"),
        Rectangle((0, 0), 1, 1, facecolor=WEIGHT, label="one tiled load"),
        Rectangle((0, 0), 1, 1, facecolor=BASE, label="the tile that their product is added to"),
        Rectangle((0, 0), 1, 1, facecolor=FILL, label="zeros outside the image"),
    ]
    legend = figure.add_subplot(grid[0, :2])
    legend.axis("off")
    legend.legend(handles=handles, loc="center", frameon=False)
    return figure


def main(folder):
    with plt.rc_context(STYLE):
        for name, draw in (("im2col-walk", draw_walk), ("im2col-gemm", draw_gemm)):
            figure = draw()
            figure.savefig(folder / f"{name}.svg", facecolor="white", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
