"""Whole models, converted, against the same model in float64; their error may be 1.5 times that of PyTorch in bfloat16."""

import copy

import models
import pytest
import torch
import triton_conv
from test_conv import relative_error
from triton_conv import launch

ON_GPU = torch.cuda.is_available()


def causal(x, w, bias):
    return triton_conv.conv3d(x, w, bias, padding=((2, 0), (1, 1), (1, 1)))


def use_ours(model):
    """Convert a model; layers of classes of their own get a function."""
    report = triton_conv.nn.convert(model)
    for name in report.kept:
        module = model.get_submodule(name)
        assert isinstance(module, models.CausalConv3d)
        module.convolve = causal
    return report


def torchvision_resnet50():
    return pytest.importorskip("torchvision", reason="its ResNet-50 is one of the models").models.resnet50()


MODELS = {
    "torchvision's resnet50": (torchvision_resnet50, (8, 3, 224, 224) if ON_GPU else (1, 3, 32, 32)),
    "resnet": (lambda: models.resnet((3, 4, 6, 3) if ON_GPU else (1, 1, 1, 1)), (8, 3, 224, 224) if ON_GPU else (2, 3, 64, 64)),
    "unet": (lambda: models.UNet((320, 640, 1280) if ON_GPU else (64, 128, 192)), (2, 4, 64, 64) if ON_GPU else (1, 4, 16, 16)),
    "video decoder": (lambda: models.video_decoder((512, 256, 128) if ON_GPU else (64, 32, 16)),
                      (1, 8, 5, 32, 32) if ON_GPU else (1, 8, 3, 6, 6)),
}  # yapf: disable


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    x = torch.randn(shape)
    memory = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    device = launch.active_device()
    theirs = copy.deepcopy(model).to(device, torch.bfloat16, memory_format=memory)
    ours = copy.deepcopy(theirs)
    report = use_ours(ours)
    convolutions = [module for module in ours.modules() if isinstance(module, torch.nn.modules.conv._ConvNd)]
    assert len(report.converted) + len(report.kept) == len(convolutions) > 3
    rounded = x.to(device, torch.bfloat16).to(memory_format=memory)
    with torch.inference_mode():
        expected = theirs.cpu().double()(rounded.cpu().double())
        theirs.to(device, torch.bfloat16)
        found = ours(rounded)
        errors = relative_error(found, expected), relative_error(theirs(rounded), expected)
    print(f"{name}: error {errors[0]:.2e}, PyTorch's {errors[1]:.2e}, {len(convolutions)} convolutions")
    assert found.isfinite().all() and errors[0] < 1.5 * errors[1]
