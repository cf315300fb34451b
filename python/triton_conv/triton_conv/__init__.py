"""Convolutions for PyTorch on NVIDIA's TMA im2col mode: Hopper and data-center Blackwell GPUs, or Triton's simulator."""

from . import nn
from .ahead import compile_ahead
from .functional import conv1d, conv2d, conv3d

__all__ = ["compile_ahead", "conv1d", "conv2d", "conv3d", "nn"]
