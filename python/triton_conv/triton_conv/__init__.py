"""Convolutions for PyTorch on NVIDIA's TMA im2col mode: Hopper and data-center Blackwell GPUs, or Triton's simulator."""

from . import nn
from .functional import conv1d, conv2d, conv3d

__all__ = ["conv1d", "conv2d", "conv3d", "nn"]
