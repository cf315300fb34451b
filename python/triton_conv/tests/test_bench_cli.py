"""The benchmark's bookkeeping; what it measures, it measures on a GPU only."""

import json
import pathlib

import pytest
import torch
from triton_conv import ahead, bench

LAYERS = json.loads((pathlib.Path(__file__).parents[1] / "bench" / "layers.json").read_text())
SHARED = torch.nn.Conv2d(8, 8, 3, padding="same")


class Model(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 7, stride=2, padding=3)
        self.blocks = torch.nn.ModuleList([SHARED, torch.nn.Conv2d(8, 8, 3, padding="same"), torch.nn.Conv2d(8, 4, 1)])

    def forward(self, x):
        x = self.stem(x)
        for block in (self.blocks[0], self.blocks[0], *self.blocks[1:]):
            x = block(x)
        return x


def test_layers_of_a_model():
    layers = bench.layers_of(Model(), torch.zeros(2, 3, 20, 24))
    assert [(layer["name"], layer["count"]) for layer in layers] == [("stem", 1), ("blocks.0", 3), ("blocks.2", 1)]
    assert layers[0] == {
        "name": "stem", "batch": 2, "in_channels": 3, "out_channels": 8, "input": [20, 24], "filter": [7, 7], "stride": [2, 2],
        "padding": [3, 3], "dilation": [1, 1], "groups": 1, "count": 1
    }  # yapf: disable
    assert bench.describe(layers[1]).out == (10, 12)


def test_operations_of_the_layers():
    by_name = {layer["name"]: bench.describe(layer) for layer in LAYERS}
    assert by_name["resnet50.c2.3x3.64"].flops == 2 * 128 * 56 * 56 * 64 * 64 * 9
    assert by_name["resnext50.g32.128"].flops == 2 * 128 * 56 * 56 * 128 * 4 * 9
    assert by_name["wan.vae.192"].rows == 4 * 240 * 416
    assert by_name["hifigan.256.k11d5"].out == (2048, )


def test_results():
    results = [{"name": "a", "gflop": 10.0, "ms": {bench.OURS: 0.1, bench.CUDNN: 0.2, bench.CUBLAS: 0.1}},
               {"name": "b", "gflop": 10.0, "ms": {bench.OURS: 0.2, bench.CUDNN: 0.1},
                "cold_ms": {bench.OURS: 0.2, bench.CUDNN: 0.3}}]  # yapf: disable
    assert bench.summary(results) == {"of_cudnn_geomean": pytest.approx(1), "of_cudnn_least": 0.5}
    assert bench.line(results[0]).endswith("triton_conv 100, cuDNN 50, cuBLAS GEMM 100 TFLOP/s; of cuDNN 2.00")
    assert bench.line(results[1]).endswith("of cuDNN 0.50, cold 1.50")


def test_kernels_are_compiled_before_they_are_measured():
    asked = []

    def functions_of(layer, dtype):
        note = lambda name: lambda: asked.append((layer, name, dtype, ahead.only_compiling()))
        return {name: note(name) for name in (bench.OURS, bench.CUDNN, bench.CUBLAS, "another tile")}

    bench.compile_kernels(["a", "b"], torch.float16, functions_of)
    assert asked == [(layer, name, torch.float16, True) for layer in "ab" for name in (bench.OURS, "another tile")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it measures")
def test_without_a_gpu_it_lists_the_layers(tmp_path, capsys):
    file = tmp_path / "layers.json"
    file.write_text(json.dumps(LAYERS[:2]))
    assert bench.main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("There is no GPU") and lines[1].split()[:2] == ["resnet50.stem", "30.2"]
    with pytest.raises(SystemExit):
        bench.main(["--model", "torch.nn:Conv2d"])
    assert "--model needs --input" in capsys.readouterr().err
