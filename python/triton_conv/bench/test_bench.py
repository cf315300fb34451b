"""The benchmark's bookkeeping, and that what is published is what was measured."""

import json
import pathlib
import runpy

import plot
import pytest
import report
import tutorial
from triton_conv.timing import geomean

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
RESULTS = json.loads((HERE / "results" / "tutorial-h200.json").read_text())
LAYERS = [layer for layer in json.loads((HERE / "layers.json").read_text()) if tutorial.covered(layer)]


def test_layers_become_convolutions():
    module = runpy.run_path(str(tutorial.TUTORIAL))
    assert len(LAYERS) == 22
    for layer in LAYERS:
        conv = tutorial.as_conv(module, layer)
        channels = layer["in_channels"], layer["out_channels"]
        assert conv[:7] == (layer["batch"], *layer["input"], *channels, *layer["filter"])
        assert len(set(layer["input"])) == 1 and conv.out[0] == conv.out[1]  # all of these are square
    down = next(layer for layer in LAYERS if layer["name"] == "convnext-l.down.384-768")
    assert tutorial.as_conv(module, down).gemm == (32 * 14 * 14, 768, 4 * 384)


def test_geomean():
    assert geomean([2, 8]) == pytest.approx(4)


def test_the_summary_follows_from_the_times():
    assert [layer["name"] for layer in RESULTS["layers"]] == [layer["name"] for layer in LAYERS]
    of_cudnn = [layer["ms"]["cuDNN"] / layer["ms"]["conv kernel"] for layer in RESULTS["layers"]]
    assert RESULTS["summary"]["of_cudnn_least"] == pytest.approx(min(of_cudnn))
    assert RESULTS["summary"]["of_cudnn_geomean"] == pytest.approx(geomean(of_cudnn))
    assert not RESULTS["environment"]["commit"].endswith("dirty")


def test_the_readme_shows_the_results():
    readme = (ROOT / "README.md").read_text()
    assert report.replace(readme, RESULTS) == readme, "run make figures"


def test_the_plot_shows_the_results(tmp_path):
    plot.main(HERE / "results" / "tutorial-h200.json", tmp_path / "plot.svg")
    published = ROOT / "docs" / "gluon" / "conv-im2col-h200.svg"
    assert (tmp_path / "plot.svg").read_text() == published.read_text(), "run make figures"
