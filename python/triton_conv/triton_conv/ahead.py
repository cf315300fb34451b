"""Compiling kernels before they are needed, many at a time."""

import contextlib
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import triton
from triton.runtime._async_compile import active_mode

_only_compiling: ContextVar[bool] = ContextVar("triton_conv only compiles", default=False)


def only_compiling():
    return _only_compiling.get()


def launcher(kernel, grid):
    """``kernel[grid]``, or a function that takes the same arguments and compiles."""
    return functools.partial(kernel.warmup, grid=grid) if only_compiling() else kernel[grid]


@contextlib.contextmanager
def beside(threads):
    """What is launched in here is compiled by ``threads`` threads, or by those of a mode that the caller is in."""
    if active_mode.get() is not None:  # there is one at a time
        yield
        return
    with ThreadPoolExecutor(threads) as executor, triton.AsyncCompileMode(executor):
        yield


@contextlib.contextmanager
def _only(compiling):
    token = _only_compiling.set(compiling)
    try:
        yield
    finally:
        _only_compiling.reset(token)


def launching():
    """Within what only compiles: to launch all the same."""
    return _only(False)


@contextlib.contextmanager
def compile_ahead(threads=None):
    """Compile the kernels of the convolutions that are called in here, side by side.

    A convolution whose kernel is not there yet gives zeros. At the end all kernels are compiled, so that the same calls need not
    wait for any::

        with triton_conv.compile_ahead():
            model(x)

    Args:
        threads: How many kernels are compiled at a time; by default as many as there are processors.
    """
    with _only(True), beside(threads or os.cpu_count()):
        yield
