"""Run Gluon kernels without a GPU, exactly enough to trust and strictly enough to find what hangs or corrupts on one."""

import triton  # noqa: F401  first: Triton imports this package's modules when it looks for backends

from .errors import (
    AssertionFailed,
    BarrierMisuse,
    Deadlock,
    MissingFence,
    NotSimulated,
    OutOfBounds,
    Race,
    SimulationError,
    Uninitialized,
)

__all__ = [
    "activate", "AssertionFailed", "BarrierMisuse", "Deadlock", "MissingFence", "NotSimulated", "OutOfBounds", "Race",
    "SimulationError", "Uninitialized"
]


class activate:
    """Make the simulator the active driver; as a context manager, until the end of the block.

    Args:
        arch: "sm_90", "sm_100" or "sm_103".
        seed: of the scheduler, which picks the interleaving and the order in which asynchronous operations complete.
        schedules: how many interleavings each launch runs, each from the same memory.
        multiprocessors: how many the device claims to have.
    """

    def __init__(self, arch="sm_90", seed=0, schedules=1, multiprocessors=8):
        from triton.runtime import driver

        from .driver import SimulatorDriver
        self.previous = driver._active
        self.driver = SimulatorDriver(arch=arch, seed=seed, schedules=schedules, multiprocessors=multiprocessors)
        driver.set_active(self.driver)

    @property
    def counts(self):
        """What the launches so far did, by name -- MMA FLOPs, bytes by TMA, waits, peaks of shared and tensor memory."""
        return dict(self.driver.counts)

    def report(self):
        """The counts as a table."""
        return "\n".join(f"{name:28} {value:>16,}" for name, value in sorted(self.driver.counts.items()))

    def deactivate(self):
        from triton.runtime import driver
        driver._active = self.previous

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.deactivate()
