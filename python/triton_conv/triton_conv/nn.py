"""Modules that share parameters and state_dict with PyTorch's, and ``convert`` to swap them into a model."""

import dataclasses
from collections.abc import Callable

import torch

from . import functional, launch
from .geometry import ConvProblem


class _Conv(torch.nn.modules.conv._ConvNd):
    """A PyTorch convolution that computes with triton_conv; construction, parameters and state_dict are PyTorch's."""

    _convolution: Callable
    autotune = False

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = "valid"
        return self._convolution(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                                 autotune=self.autotune)


class Conv1d(_Conv, torch.nn.Conv1d):
    _convolution = staticmethod(functional.conv1d)


class Conv2d(_Conv, torch.nn.Conv2d):
    _convolution = staticmethod(functional.conv2d)


class Conv3d(_Conv, torch.nn.Conv3d):
    _convolution = staticmethod(functional.conv3d)


_SWAPS = {torch.nn.Conv1d: Conv1d, torch.nn.Conv2d: Conv2d, torch.nn.Conv3d: Conv3d}


@dataclasses.dataclass
class Report:
    """What ``convert`` did: names of modules that were swapped, and of those that were not, with the reason."""
    converted: list
    kept: dict

    def __str__(self):
        lines = [f"{len(self.converted)} convolutions converted, {len(self.kept)} kept"]
        return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in self.kept.items())])


def _obstacle(module):
    """Why a convolution of PyTorch's is not swapped; None if it is."""
    if type(module) not in _SWAPS:
        return f"{type(module).__name__} is a class of its own"
    if module.weight.dtype not in functional.DTYPES:
        return f"its weight is {module.weight.dtype}"
    obstacles = dict.fromkeys(sentence for problem in _problems(module)
                              for sentence in launch.obstacles_of(problem, module.weight.itemsize))
    return "the im2col mode cannot express it: " + "; ".join(obstacles) if obstacles else None


def _problems(module):
    """Two that the module may meet, of all extents: the last filter ends with the padded input, or as far before as it can."""
    padding = module.padding if module.padding_mode == "zeros" else "valid"
    stride, before, after, dilation = functional.geometry_of(len(module.stride), module.kernel_size, module.stride,
                                                             padding, module.dilation)
    for rest in (0, 1):
        extents = tuple((t - 1) * d + 1 - b - a + rest * (s - 1) + s * (b + a)
                        for t, s, b, a, d in zip(module.kernel_size, stride, before, after, dilation))
        yield ConvProblem(1, module.in_channels, module.out_channels, extents, module.kernel_size, stride, before,
                          after, dilation, module.groups)


def convert(model, autotune=False):
    """Swap the convolutions of a model, in place, for those of this package.

    Parameters stay the same objects, hooks and names as well, so that optimizers, state_dicts and references go on working.

    Args:
        model: A module. Memory and dtype of its parameters do not change; in ``model.to(memory_format=torch.channels_last)`` no
            weight needs a copy.
        autotune: As for :func:`triton_conv.conv2d`, for the convolutions that are swapped.

    Returns:
        A :class:`Report` of what was swapped and what was not, and why.
    """
    report = Report([], {})
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.modules.conv._ConvNd) or isinstance(module, _Conv):
            continue
        reason = _obstacle(module)
        if reason is None:
            module.__class__ = _SWAPS[type(module)]
            module.autotune = autotune
            report.converted.append(name)
        else:
            report.kept[name] = reason
    return report
