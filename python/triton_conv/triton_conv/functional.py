"""conv1d, conv2d and conv3d: PyTorch's meaning of every argument, and an epilogue fused into the kernel."""

import torch
from torch import _C

from . import launch
from .geometry import ConvProblem

ACTIVATIONS = ("none", "relu", "silu", "gelu")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)

_library = torch.library.Library("triton_conv", "DEF")
_library.define(
    "conv(Tensor input, Tensor weight, Tensor? bias, Tensor? residual, int[] stride, int[] before, int[] after, "
    "int[] dilation, int groups, str activation, bool autotune) -> Tensor")


def problem_of(input, weight, stride, before, after, dilation, groups):
    """Check shapes; return the problem."""
    rank = input.ndim - 2
    if weight.ndim != input.ndim:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; expected {rank + 2} dimensions (K, C / groups, *taps)")
    channels, out_channels = input.shape[1], weight.shape[0]
    if groups < 1 or channels % groups or out_channels % groups:
        raise ValueError(
            f"groups is {groups}; expected a divisor of {channels} input and {out_channels} output channels")
    if channels != weight.shape[1] * groups:
        raise ValueError(f"input has {channels} channels, weight takes {weight.shape[1]} in each of {groups} groups; "
                         f"expected {weight.shape[1] * groups}")
    if channels == 0 or 0 in weight.shape[2:]:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; expected channels and taps")
    problem = ConvProblem(input.shape[0], channels, out_channels, tuple(input.shape[2:]), tuple(weight.shape[2:]),
                          tuple(stride), tuple(before), tuple(after), tuple(dilation), groups)
    for name, out, extent, reach, lead, trail in zip("DHW"[-rank:], problem.out, problem.extents, problem.reach, before,
                                                     after):
        if extent + lead + trail <= reach or out < 1:
            raise ValueError(
                f"the filter spans {reach + 1} pixels in {name}, the padded input {extent + lead + trail}: "
                "no output")
    return problem


def check_tensors(input, weight, bias, residual, activation):
    target = launch.active_target()
    if target is None or target.backend != "cuda" or target.arch // 10 not in (9, 10):
        raise NotImplementedError(
            f"the active Triton target is {target}; expected CUDA sm_90 (Hopper), sm_100 or sm_103 "
            "(Blackwell)")
    device = launch.active_device()
    if input.dtype not in DTYPES:
        raise TypeError(f"input is {input.dtype}; expected torch.bfloat16, torch.float16 or torch.float32")
    if input.dtype == torch.float32 and not torch.backends.cudnn.allow_tf32:
        raise TypeError("input is torch.float32, which is computed as tf32; torch.backends.cudnn.allow_tf32 is False: "
                        "allow it, or convert to bfloat16 or float16")
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias), ("residual", residual)):
        if tensor is None:
            continue
        if tensor.dtype != input.dtype and not (name == "bias" and tensor.dtype == torch.float32):
            raise TypeError(f"{name} is {tensor.dtype}, input is {input.dtype}; expected the same")
        if tensor.device.type != device.type or tensor.device.index not in (None, device.index):
            raise ValueError(f"{name} is on {tensor.device}; the active driver runs on {device}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; expected None or one of {ACTIVATIONS[1:]}")


def check_epilogue(problem, bias, residual):
    if bias is not None and tuple(bias.shape) != (problem.out_channels, ):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; expected ({problem.out_channels},)")
    shape = (problem.batch, problem.out_channels, *problem.out)
    if residual is not None and tuple(residual.shape) != shape:
        raise ValueError(f"residual has shape {tuple(residual.shape)}; expected that of the output, {shape}")


_plans: dict = {}  # by what the operator gets
_quick_plans: dict = {}  # by what a caller wrote
MOST_PLANS = 4096
_NUM_DEVICES = torch.cuda.device_count()
_PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))


def _likeness(tensor):
    """What a plan depends on of a tensor."""
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device,
                                        tensor.data_ptr() % 16)


def _plan_of(input, weight, bias, residual, stride, before, after, dilation, groups, activation, autotune):
    key = (launch.active_driver(), _likeness(input), _likeness(weight), _likeness(bias), _likeness(residual), tuple(stride),
           tuple(before), tuple(after), tuple(dilation), groups, activation, autotune,
           input.dtype == torch.float32 and torch.backends.cudnn.allow_tf32)  # yapf: disable
    plan = _plans.get(key)
    if plan is None:
        problem = problem_of(input, weight, stride, before, after, dilation, groups)
        check_tensors(input, weight, bias, residual, activation)
        check_epilogue(problem, bias, residual)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = launch.plan(problem, input, weight, bias, residual, activation, autotune)
    return plan


def _conv(input, weight, bias, residual, *rest):
    if input.is_cuda and input.device.index != torch.cuda.current_device():
        with torch.cuda.device(input.device):
            return _conv(input, weight, bias, residual, *rest)
    return _plan_of(input, weight, bias, residual, *rest)(input, weight, bias, residual)


for _key in ("CUDA", "CPU"):
    _library.impl("conv", _conv, _key)


@torch.library.register_fake("triton_conv::conv", lib=_library)
def _(input, weight, bias, residual, stride, before, after, dilation, groups, activation, autotune):
    problem = problem_of(input, weight, stride, before, after, dilation, groups)
    check_epilogue(problem, bias, residual)
    return input.new_empty((problem.batch, *problem.out, problem.out_channels)).movedim(-1, 1)


def _backward(ctx, gradient):
    raise NotImplementedError("triton_conv computes no gradients yet: call it under torch.no_grad(), or use "
                              "torch.nn.functional where gradients are needed")


torch.library.register_autograd("triton_conv::conv", _backward, lib=_library)


def _autocast(device_type, key):
    """Under autocast everything comes in its dtype, as PyTorch does it for convolutions."""

    def conv(input, weight, bias, residual, *rest):
        dtype = torch.get_autocast_dtype(device_type)
        tensors = (tensor if tensor is None else tensor.to(dtype) for tensor in (input, weight, bias, residual))
        with torch.amp.autocast(device_type, enabled=False):
            return torch.ops.triton_conv.conv(*tensors, *rest)

    _library.impl("conv", conv, key)


_autocast("cuda", "AutocastCUDA")
_autocast("cpu", "AutocastCPU")


def per_dimension(name, value, rank, least):
    values = (value, ) * rank if isinstance(value, (int, float)) else tuple(value)
    if len(values) == 1:
        values *= rank
    if len(values) != rank or not all(isinstance(v, int) and v >= least for v in values):
        raise ValueError(f"{name} is {value!r}; expected an int or {rank} ints of at least {least}")
    return values


def padding_of(padding, taps, stride, dilation):
    """Padding before and after each dimension, from PyTorch's forms or from (before, after) pairs."""
    rank = len(taps)
    if padding == "valid":
        return (0, ) * rank, (0, ) * rank
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f"padding is 'same' and stride is {tuple(stride)}; expected a stride of 1")
        total = [(t - 1) * d for t, d in zip(taps, dilation)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    if isinstance(padding, str):
        raise ValueError(f"padding is {padding!r}; expected 'same', 'valid', ints or pairs")
    if not isinstance(padding, int) and any(isinstance(pad, (tuple, list)) for pad in padding):
        if len(padding) != rank or not all(
                isinstance(pad, (tuple, list)) and len(pad) == 2 and all(isinstance(p, int) and p >= 0
                                                                         for p in pad)
                for pad in padding):
            raise ValueError(f"padding is {padding!r}; expected {rank} pairs (before, after) of ints of at least 0")
        return tuple(before for before, _ in padding), tuple(after for _, after in padding)
    pads = per_dimension("padding", padding, rank, 0)
    return pads, pads


def geometry_of(rank, taps, stride, padding, dilation):
    """Stride, padding before and after, and dilation, each with one entry a dimension."""
    stride = per_dimension("stride", stride, rank, 1)
    dilation = per_dimension("dilation", dilation, rank, 1)
    return stride, *padding_of(padding, taps, stride, dilation), dilation


# By these names, since looking them up in their modules would take a tenth of a call.
_is_compiling = torch.compiler.is_compiling
_dispatch_modes, _function_modes = _C._len_torch_dispatch_stack, _C._len_torch_function_stack
_is_autocast, _tracing_state, _transforms = (_C._is_any_autocast_enabled, _C._get_tracing_state,
                                             _C._functorch.peek_interpreter_stack)
_is_grad_enabled, _current_device = torch.is_grad_enabled, torch.cuda.current_device


def _is_plain(input, weight, bias, residual):
    """Whether only values are asked for: no gradient, trace, transform, autocast or mode that would have to see the operator."""
    if (_is_compiling() or _dispatch_modes() or _function_modes() or _is_autocast() or _tracing_state() is not None
            or _transforms() is not None):
        return False
    if type(input) not in _PLAIN_TYPES or type(weight) not in _PLAIN_TYPES or not (
        (bias is None or type(bias) in _PLAIN_TYPES) and (residual is None or type(residual) in _PLAIN_TYPES)):
        return False
    if _is_grad_enabled() and (input.requires_grad or weight.requires_grad or
                               (bias is not None and bias.requires_grad) or
                               (residual is not None and residual.requires_grad)):
        return False
    if input.is_cuda:
        return _NUM_DEVICES == 1 or input.device.index == _current_device()
    return input.is_cpu


def convolve(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune):
    """Calls that need nothing of PyTorch's dispatcher go past it, and those like an earlier one to its plan at once."""
    dimensions = input.ndim
    if dimensions != rank + 2 and dimensions != rank + 1:
        raise ValueError(f"input has shape {tuple(input.shape)}; expected {rank + 2} dimensions (N, C, "
                         f"{', '.join('DHW'[-rank:])}), or one less without a batch")
    if dimensions == rank + 1:
        residual = None if residual is None else residual.unsqueeze(0)
        return convolve(rank, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups, activation, residual,
                        autotune).squeeze(0)
    if not _is_plain(input, weight, bias, residual):
        geometry = geometry_of(rank, weight.shape[2:], stride, padding, dilation)
        return torch.ops.triton_conv.conv(input, weight, bias, residual, *geometry, groups, activation or "none",
                                          autotune)
    key = (rank, launch.active_driver(), _likeness(input), _likeness(weight), _likeness(bias), _likeness(residual),
           stride, padding, dilation, groups, activation, autotune,
           input.dtype == torch.float32 and torch.backends.cudnn.allow_tf32)  # yapf: disable
    try:
        plan = _quick_plans.get(key)
        hashed = True
    except TypeError:  # lists are not
        plan, hashed = None, False
    if plan is None:
        stride, before, after, dilation = geometry_of(rank, weight.shape[2:], stride, padding, dilation)
        plan = _plan_of(input, weight, bias, residual, stride, before, after, dilation, groups, activation or "none",
                        autotune)
        if len(_quick_plans) >= MOST_PLANS:
            _quick_plans.clear()
        if hashed:
            _quick_plans[key] = plan
    return plan(input, weight, bias, residual)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, activation=None, residual=None,
           autotune=False):
    """As :func:`triton_conv.conv2d`, for input (N, C, W) and weight (K, C / groups, S)."""
    return convolve(1, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, activation=None, residual=None,
           autotune=False):
    """``activation(conv(input, weight) + bias + residual)``, in one kernel.

    Args:
        input: (N, C, H, W) or (C, H, W), of bfloat16, float16, or float32, which is computed as tf32. channels_last memory is
            used in place, any other is converted first.
        weight: (K, C / groups, R, S), of the input's dtype. A converted weight is kept until the weight changes.
        bias: (K), of the input's dtype or float32.
        stride: An int or one a dimension, 1 to 8; more if it is the filter's size, without padding.
        padding: An int or one a dimension, "same", "valid", or a pair (before, after) a dimension, as
            ``((2, 0), (1, 1))``; no padded copy is made.
        dilation: An int or one a dimension.
        groups: Groups with a multiple of 16 channels (8 in float32), or that fill bundles of so many, run on the tensor
            cores, others on the CUDA cores.
        activation: None, "relu", "silu" or "gelu" (the exact one).
        residual: A tensor of the output's shape and dtype.
        autotune: Time all tile shapes at the first call for a problem, and keep the fastest on disk. Otherwise a rule
            chooses.

    Returns:
        (N, K, P, Q) in channels_last memory, of the input's dtype. Sums are in float32.

    Raises:
        ValueError, TypeError: An argument is wrong; the message names it, its value and what is expected.
        NotImplementedError: The device, or what the im2col mode cannot express.
    """
    return convolve(2, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, activation=None, residual=None,
           autotune=False):
    """As :func:`triton_conv.conv2d`, for input (N, C, D, H, W) and weight (K, C / groups, T, R, S), in channels_last_3d memory."""
    return convolve(3, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune)
