"""What the simulator raises: where, who, and what was done that hardware leaves undefined."""


class SimulationError(RuntimeError):
    """A kernel did something undefined. The text names the source line, the partition and the buffer or barrier."""


class Deadlock(SimulationError):
    """No partition can move and no asynchronous operation is left that could wake one."""


class Race(SimulationError):
    """Two accesses of one buffer that nothing orders, at least one of them a write."""


class MissingFence(SimulationError):
    """The asynchronous proxy reads what a thread wrote without a fence_async_shared in between."""


class Uninitialized(SimulationError):
    """A read of shared or tensor memory that nothing has written."""


class OutOfBounds(SimulationError):
    """An access of global memory outside every tensor that the kernel was given."""


class BarrierMisuse(SimulationError):
    """An mbarrier over-arrived, expecting wrong bytes, used before init or after invalidation, or left unfinished."""


class AssertionFailed(SimulationError):
    """A device_assert that does not hold."""


class NotSimulated(NotImplementedError):
    """The kernel uses something that the simulator does not know."""
