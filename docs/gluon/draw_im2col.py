"""Draw the figures of im2col, im2col-*.svg, beside this file or in the folder named.

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
sys.path[:0] = [str(HERE.parents[1] / "python" / "test" / "gluon"), str(HERE / "examples")]
from conv_as_gemm import fprop_walk, out_extents, residue_class  # noqa: E402
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
    axes.set_aspect("equal", anchor="N")
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


def draw_corners():
    """A line of 7 pixels, 3 taps that are 2 apart, padding 2 before and 1 after; strides 1 and 2."""
    extent, taps, dilation, before, after = 7, 3, 2, 2, 1
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
    for axis, stride in zip(axes, (1, 2)):
        (out, ) = out_extents([extent], [taps], [stride], [before], [after], [dilation])
        lower, upper, steps, offsets = fprop_walk([taps], [stride], [before], [after], [dilation])
        shape, last = (1, extent, 8), extent - 1 + upper[0]
        frame(axis, (-1.6, out), (-before - 2.2, extent + after),
              f"stride {stride}: lower corner {lower[0]}, upper corner {upper[0]}")
        for position in range(-before, extent + after):
            axis.text(position + 0.5, -0.4, position, ha="center", va="center", color="#5a6472")
        for row, (_, base) in enumerate(
                position for position, _ in zip(walk(shape, lower, upper, steps, (0, *lower)), range(out))):
            axis.text(-before - 0.3, row + 0.5, f"output {row}", ha="right", va="center")
            for position in range(-before, extent + after):
                cell(axis, row, position, IMAGE if 0 <= position < extent else "white")
            for (tap, ), offset in offsets.items():
                read = sources(shape, lower, upper, steps, (0, *lower), offset, out)[row]
                assert read in (None, (0, base + offset[0]))
                cell(axis, row, base + offset[0], FILL if read is None else READ, tap)
            outline(axis, row, base, 1, 1, BASE)
        axis.plot([lower[0]] * 2, [-0.9, out], color=BASE, linestyle="--")
        axis.plot([last + 1] * 2, [-0.9, out], color=BASE, linestyle="--")
        axis.text((lower[0] + last + 1) / 2, -1.2, "base positions", ha="center", va="center", color=BASE)
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=READ, label="pixel read, by tap"),
        Rectangle((0, 0), 1, 1, facecolor=FILL, label="outside: filled with zeros"),
        Rectangle((0, 0), 1, 1, fill=False, edgecolor=BASE, linewidth=2, label="base position, where tap 0 reads"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_dgrad():
    """The input gradient of 8 pixels under 3 taps, stride 2, padding 1: by pixel, and as two walks, one a residue class."""
    extent, taps, stride, before, dilation = 8, 3, 2, 1, 1
    (out, ) = out_extents([extent], [taps], [stride], [before], [1], [dilation])
    figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.8), layout="constrained", width_ratios=(1, 1.3, 1.3))
    reached = {(p * stride - before + r * dilation, p): r for p in range(out) for r in range(taps)}
    frame(axes[0], (-1.4, extent), (-1.8, out), "input pixels that\noutput pixels reach")
    for axis, first in zip(axes, (0, -1, -1)):
        for p in range(first, out - first):
            axis.text(p + 0.5, -0.4, p, ha="center", va="center", color="#5a6472")
    for h in range(extent):
        axes[0].text(-0.3, h + 0.5, f"h = {h}", ha="right", va="center")
        for p in range(out):
            tap = reached.get((h, p), "")
            cell(axes[0], h, p, IMAGE if tap == "" else (READ, WEIGHT)[h % stride], tap)
    for a, axis in enumerate(axes[1:]):
        count, lower, upper, offsets = residue_class(a, extent, out, taps, stride, before, dilation)
        frame(
            axis, (-1.4, extent), (-3.0, out + 1), f"class {a}: corners {lower}, {upper}; tap: offset\n" +
            ", ".join(f"{tap}: {offset}" for tap, offset in offsets.items()))
        for row in range(count):
            axis.text(-1.3, row + 0.5, f"h = {a + stride * row}", ha="right", va="center")
            for p in range(-1, out + 1):
                cell(axis, row, p, IMAGE if 0 <= p < out else "white")
            for tap, offset in offsets.items():
                read = sources((1, out, 8), [lower], [upper], [1], (0, lower), [offset], count)[row]
                place = lower + row + offset
                assert (read is not None) == (reached.get((a + stride * row, place)) == tap)
                cell(axis, row, place, FILL if read is None else (READ, WEIGHT)[a], tap)
    return figure


FIGURES = {
    "im2col-walk": draw_walk, "im2col-gemm": draw_gemm, "im2col-corners": draw_corners, "im2col-dgrad": draw_dgrad
}


def main(folder):
    with plt.rc_context(STYLE):
        for name, draw in FIGURES.items():
            figure = draw()
            figure.savefig(folder / f"{name}.svg", facecolor="white", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
