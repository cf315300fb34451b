"""Modules that share parameters and state_dict with PyTorch's, and ``convert`` to swap them into a model."""

import dataclasses
from collections.abc import Callable

import torch

from . import functional


class _Conv(torch.nn.modules.conv._ConvNd):
    """A PyTorch convolution that computes with triton_conv; construction, parameters and state_dict are PyTorch's."""

    _convolution: Callable

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = "valid"
        return self._convolution(input, weight, bias, self.stride, padding, self.dilation, self.groups)


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
    patches = (module.kernel_size == module.stride and set(module.dilation) == {1} and module.groups == 1
               and module.padding in ("valid", (0, ) * len(module.stride)))
    if max(module.stride) > 8 and not patches:
        return f"stride is {module.stride}; more than 8 needs a filter of the same size, without padding"
    return None


def convert(model):
    """Swap the convolutions of a model, in place, for those of this package.

    Parameters stay the same objects, hooks and names as well, so that optimizers, state_dicts and references go on working.

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
            report.converted.append(name)
        else:
            report.kept[name] = reason
    return report
