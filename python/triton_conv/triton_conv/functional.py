"""conv1d, conv2d and conv3d: PyTorch's meaning of every argument, and an epilogue fused into the kernel."""

import math
import operator

import torch
from torch import _C
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.flop_counter import register_flop_formula

from . import launch
from . import memory as mem
from .geometry import ConvProblem

ACTIVATIONS = ("none", "relu", "silu", "gelu")
TENSORS = ("input", "weight", "bias", "residual")
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


def allows_tf32():
    """As cuDNN's convolutions follow it. PyTorch has two ways to set it since 2.9, and reading the older one fails after some uses
    of the newer."""
    cudnn = torch.backends.cudnn
    return cudnn.conv.fp32_precision == "tf32" if hasattr(cudnn, "conv") else cudnn.allow_tf32


def check_tensors(input, weight, bias, residual, activation):
    target = launch.active_target()
    if target is None or target.backend != "cuda" or target.arch // 10 not in (9, 10):
        raise NotImplementedError(
            f"the active Triton target is {target}; expected CUDA sm_90 (Hopper), sm_100 or sm_103 "
            "(Blackwell)")
    device = launch.active_device()
    if input.dtype not in DTYPES:
        raise TypeError(f"input is {input.dtype}; expected torch.bfloat16, torch.float16 or torch.float32")
    if input.dtype == torch.float32 and not allows_tf32():
        raise TypeError("input is torch.float32, which is computed as tf32, and PyTorch's settings for cuDNN do not allow that: "
                        "set torch.backends.cudnn.allow_tf32 or, since PyTorch 2.9, torch.backends.cudnn.conv.fp32_precision "
                        "= 'tf32', or convert to bfloat16 or float16")  # yapf: disable
    for name, tensor in zip(TENSORS, (input, weight, bias, residual)):
        if tensor is None:
            continue
        if tensor.dtype != input.dtype and not (name == "bias" and tensor.dtype == torch.float32):
            raise TypeError(f"{name} is {tensor.dtype}, input is {input.dtype}; expected the same")
        if tensor.device.type != device.type or tensor.device.index not in (None, device.index):
            raise ValueError(f"{name} is on {tensor.device}; the active driver runs on {device}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; expected None or one of {ACTIVATIONS[1:]}")


def check_layouts(*tensors):
    for name, tensor in zip(TENSORS, tensors):
        if tensor is not None and tensor.layout != torch.strided:
            raise TypeError(f"{name} has layout {tensor.layout}; expected torch.strided, as {name}.to_dense() gives it")


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
           input.dtype == torch.float32 and allows_tf32())  # yapf: disable
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


NO_GRADIENTS = ("triton_conv computes no gradients yet: call it under torch.no_grad(), or use torch.nn.functional where gradients "
                "are needed")  # yapf: disable


def _backward(ctx, gradient):
    raise NotImplementedError(NO_GRADIENTS)


torch.library.register_autograd("triton_conv::conv", _backward, lib=_library)


def _in_autocast(device_type, tensors, kept=()):
    """Tensors as autocast has them. Casts of those in ``kept`` are kept, as converted weights are."""
    dtype = torch.get_autocast_dtype(device_type)

    def cast(tensor):
        if tensor is None or tensor.dtype == torch.float64 or not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        if any(tensor is one for one in kept) and not (tensor.requires_grad and torch.is_grad_enabled()):
            return mem.kept(tensor, ("cast", dtype), lambda: tensor.to(dtype))
        return tensor.to(dtype)

    return [cast(tensor) for tensor in tensors]


def _autocast(device_type, key):
    """Under autocast everything comes in its dtype, as PyTorch does it for convolutions."""

    def conv(input, weight, bias, residual, *rest):
        tensors = _in_autocast(device_type, (input, weight, bias, residual))
        with torch.amp.autocast(device_type, enabled=False):
            return torch.ops.triton_conv.conv(*tensors, *rest)

    _library.impl("conv", conv, key)


_autocast("cuda", "AutocastCUDA")
_autocast("cpu", "AutocastCPU")


@torch.library.register_vmap("triton_conv::conv", lib=_library)
def _(info, in_dims, input, weight, bias, residual, *rest):
    """Inputs of one weight are a larger batch; weights have a call each."""
    many = info.batch_size

    def mapped(tensor, dim):
        return tensor.expand(many, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

    if in_dims[1] is None and in_dims[2] is None:
        x = mapped(input, in_dims[0])
        residual = None if residual is None else mapped(residual, in_dims[3]).flatten(0, 1)
        y = torch.ops.triton_conv.conv(x.flatten(0, 1), weight, bias, residual, *rest)
        return y.unflatten(0, x.shape[:2]), 0
    calls = zip(*([None] * many if tensor is None else mapped(tensor, dim).unbind()
                  for tensor, dim in zip((input, weight, bias, residual), in_dims)))
    return torch.stack([torch.ops.triton_conv.conv(*call, *rest) for call in calls]), 0


@register_flop_formula(torch.ops.triton_conv.conv)
def _(input, weight, *arguments, out_shape, **options):
    return 2 * math.prod(out_shape) * math.prod(weight[1:])


def whole_number(name, value):
    """An int, or what stands for one, as numbers of NumPy do."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; expected an int") from None


def per_dimension(name, value, rank, least):
    try:
        values = (operator.index(value), ) * rank
    except TypeError:
        try:
            values = tuple(map(operator.index, value))
        except TypeError:
            values = ()
    if len(values) == 1:
        values *= rank
    if len(values) != rank or any(v < least for v in values):
        raise ValueError(f"{name} is {value!r}; expected an int or {rank} ints of at least {least}")
    return values


def padding_of(padding, taps, stride, dilation):
    """Padding before and after each dimension, from PyTorch's forms or from (before, after) pairs."""
    rank = len(taps)
    if isinstance(padding, str):
        if padding == "valid":
            return (0, ) * rank, (0, ) * rank
        if padding != "same":
            raise ValueError(f"padding is {padding!r}; expected 'same', 'valid', ints or pairs")
        if any(s != 1 for s in stride):
            raise ValueError(f"padding is 'same' and stride is {tuple(stride)}; expected a stride of 1")
        total = [(t - 1) * d for t, d in zip(taps, dilation)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    if isinstance(padding, (tuple, list)) and any(isinstance(pad, (tuple, list)) for pad in padding):
        try:
            pairs = [tuple(map(operator.index, pad)) for pad in padding]
        except TypeError:
            pairs = []
        if len(pairs) != rank or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
            raise ValueError(f"padding is {padding!r}; expected {rank} pairs (before, after) of ints of at least 0")
        return tuple(before for before, _ in pairs), tuple(after for _, after in pairs)
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


def _has_autocast(device_type):
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _is_watched():
    """Whether a trace, transform or mode has to see the operator."""
    return (_is_compiling() or _dispatch_modes() or _function_modes() or _tracing_state() is not None
            or _transforms() is not None)


def _is_plain(input, weight, bias, residual):
    """Whether only values are asked for: no gradient, trace, transform, autocast or mode that would have to see the operator."""
    if _is_watched() or _is_autocast() or forward_ad._current_level >= 0:
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


def _refuse_gradients(tensors):
    """Of transforms and forward mode, which would not reach the operator's backward, or take its tangents for zero."""
    for tensor in tensors:
        if tensor is None:
            continue
        if (_transforms() is not None and _is_grad_enabled() and tensor.requires_grad
                or forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None):
            raise NotImplementedError(NO_GRADIENTS)


def _convolve_seen(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune):
    """As ``convolve``, through the operator, which PyTorch sees; or without what hides that values are all that is asked for."""
    tensors = input, weight, bias, residual
    if not _is_compiling() and has_torch_function(tensors):
        return handle_torch_function(_FUNCTIONS[rank], tensors, input, weight, bias, stride, padding, dilation, groups,
                                     activation=activation, residual=residual, autotune=autotune)
    for name, tensor in zip(TENSORS, tensors):
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name in ("input", "weight")):
            raise TypeError(f"{name} is {type(tensor).__name__}; expected a tensor")
    if not has_batch(rank, input):
        return _convolve_one(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual,
                             autotune)
    if not _is_compiling():
        _refuse_gradients(tensors)
    device_type = input.device.type
    if _is_autocast() and not _is_watched() and _has_autocast(device_type):
        input, weight, bias, residual = _in_autocast(device_type, tensors, kept=(weight, bias))
        with torch.amp.autocast(device_type, enabled=False):
            return convolve(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual,
                            autotune)
    geometry = geometry_of(rank, weight.shape[2:], stride, padding, dilation)
    return torch.ops.triton_conv.conv(input, weight, bias, residual, *geometry, whole_number("groups", groups),
                                      activation or "none", autotune)


def has_batch(rank, input):
    if input.ndim not in (rank + 2, rank + 1):
        raise ValueError(f"input has shape {tuple(input.shape)}; expected {rank + 2} dimensions (N, C, "
                         f"{', '.join('DHW'[-rank:])}), or one less without a batch")
    return input.ndim == rank + 2


def _convolve_one(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune):
    """As ``convolve``, for an input and a residual without a batch."""
    residual = None if residual is None else residual.unsqueeze(0)
    return convolve(rank, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups, activation, residual,
                    autotune).squeeze(0)


def convolve(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual, autotune):
    """Calls that need nothing of PyTorch's dispatcher go past it, and those like an earlier one to its plan at once."""
    if not _is_plain(input, weight, bias, residual):
        return _convolve_seen(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual,
                              autotune)
    try:
        key = (rank, launch.active_driver(), _likeness(input), _likeness(weight), _likeness(bias), _likeness(residual),
               stride, padding, dilation, groups, activation, autotune,
               input.dtype == torch.float32 and allows_tf32())  # yapf: disable
        plan = _quick_plans.get(key)
        hashed = True
    except TypeError:  # lists are not
        plan, hashed = None, False
    except RuntimeError:  # no address
        check_layouts(input, weight, bias, residual)
        raise
    if plan is None:
        if not has_batch(rank, input):
            return _convolve_one(rank, input, weight, bias, stride, padding, dilation, groups, activation, residual,
                                 autotune)
        stride, before, after, dilation = geometry_of(rank, weight.shape[2:], stride, padding, dilation)
        plan = _plan_of(input, weight, bias, residual, stride, before, after, dilation, whole_number("groups", groups),
                        activation or "none", autotune)
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


_FUNCTIONS = {1: conv1d, 2: conv2d, 3: conv3d}
