"""Shared, tensor and global memory: poisoned at allocation, watched at every access."""

import dataclasses
from typing import Any

import torch

from .errors import MissingFence, OutOfBounds, Race, SimulationError, Uninitialized

ASYNC, GENERIC = "asynchronous proxy", "generic proxy"


def poisoned(shape, dtype):
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=torch.float32).to(dtype)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.full(shape, 0x5A, dtype=dtype)


@dataclasses.dataclass
class Access:
    box: tuple
    write: bool
    proxy: str
    agent: Any
    time: int
    what: str  # for messages: the operation and its source line


class Allocation:
    """A buffer of shared or tensor memory with what has been done to it."""

    def __init__(self, name, kind, shape, dtype, offset):
        self.name, self.kind = name, kind
        self.data = poisoned(shape, dtype)
        self.place = range(offset, offset + self.data.nbytes) if offset >= 0 else range(0)  # in shared memory
        self.accesses = []
        self.barriers = {}  # of i64 buffers

    def view(self):
        box = tuple((0, extent) for extent in self.data.shape)
        return View(self, self.data, box, tuple(range(len(box))))


class View:
    """A part of an allocation: its data, and its box in the allocation's coordinates.

    ``dims`` names the allocation's dimension behind each of the view's, with None for one of extent 1 that a reshape
    added. It is None as a whole where there is no simple relation; then the box covers more than the view, which can
    only report too much.
    """

    __slots__ = ("allocation", "data", "box", "dims")

    def __init__(self, allocation, data, box, dims):
        self.allocation, self.data, self.box, self.dims = allocation, data, box, dims

    def index(self, i, where):
        extent = self.data.shape[0]
        if not 0 <= i < extent:
            raise SimulationError(f"{where}: index {i} of {self.allocation.name}, which has {extent} slots")
        return View(self.allocation, self.data[i], *self._narrowed(0, i, 1, drop=True))

    def narrow(self, starts, shape):
        view = self
        for dim, (start, length) in enumerate(zip(starts, shape)):
            if (start, length) != (0, view.data.shape[dim]):
                view = View(view.allocation, view.data.narrow(dim, start, length), *view._narrowed(dim, start, length))
        return view

    def _narrowed(self, dim, start, length, drop=False):
        if self.dims is None:
            return self.box, None
        box, target = list(self.box), self.dims[dim]
        if target is not None:
            low = box[target][0] + start
            box[target] = (low, low + length)
        return tuple(box), self.dims[:dim] + self.dims[dim + 1:] if drop else self.dims

    def permute(self, order):
        dims = None if self.dims is None else tuple(self.dims[d] for d in order)
        return View(self.allocation, self.data.permute(order), self.box, dims)

    def reshape(self, shape):
        """Where only dimensions of extent 1 come and go, the others keep their relation to the allocation."""
        dims = None
        if self.dims is not None:
            extents = self.data.shape
            if [extent for extent in shape if extent != 1] == [extent for extent in extents if extent != 1]:
                ones = iter([dim for extent, dim in zip(extents, self.dims) if extent == 1])
                others = iter([dim for extent, dim in zip(extents, self.dims) if extent != 1])
                dims = tuple(next(ones, None) if extent == 1 else next(others) for extent in shape)
        return View(self.allocation, self.data.view(shape), self.box, dims)

    def reinterpret(self, shape, dtype, where):
        data = self.data
        if not data.is_contiguous():
            raise SimulationError(f"{where}: reinterpreting a part of {self.allocation.name} that is not contiguous")
        size = data.element_size()
        data = data.reshape(-1).view(torch.uint8).view(dtype)
        count = 1
        for extent in shape:
            count *= extent
        if count > data.numel():
            raise SimulationError(
                f"{where}: {self.allocation.name} has {data.numel() * size} bytes, too few for {shape}")
        return View(self.allocation, data[:count].view(shape), self.box, None)

    def describe(self):
        extents = self.allocation.data.shape
        parts = [
            str(low) if high - low == 1 else f"{low}:{high}"
            for (low, high), extent in zip(self.box, extents)
            if extent > 1
        ]
        return f"[{', '.join(parts)}] of {self.allocation.name}" if parts else self.allocation.name


def overlap(a, b):
    for (low_a, high_a), (low_b, high_b) in zip(a, b):
        if high_a <= low_b or high_b <= low_a:
            return False
    return True


def covers(a, b):
    return all(low_a <= low_b and high_b <= high_a for (low_a, high_a), (low_b, high_b) in zip(a, b))


def volume(box):
    product = 1
    for low, high in box:
        product *= high - low
    return product


def intersection(a, b):
    return tuple((max(low_a, low_b), min(high_a, high_b)) for (low_a, high_a), (low_b, high_b) in zip(a, b))


def record(view, write, proxy, agent, what):
    """Note an access, and raise if an earlier one of the same place is not ordered before it."""
    allocation, box = view.allocation, view.box
    clock, kept, written = agent.clock, [], 0
    for old in allocation.accesses:
        if not overlap(old.box, box):
            kept.append(old)
            continue
        known = clock.get(old.agent.number, -1) >= old.time
        if not known and (write or old.write):
            kind = ("read" if not write else "overwrite") + (" before a write has landed"
                                                             if old.write else " while a read is not known to be over")
            raise Race(f"{kind} of {view.describe()}\n  now:     {what}, by {agent.name}\n"
                       f"  earlier: {old.what}, by {old.agent.name}\n"
                       "  no barrier, wait or commit orders the two")
        if old.write:
            written += volume(intersection(old.box, box))
            if (proxy == ASYNC and old.proxy == GENERIC and not write and allocation.kind == "shared memory"
                    and agent.fenced.get(old.agent.number, -1) < old.time):
                raise MissingFence(
                    f"{view.describe()} is read by the asynchronous proxy without a fence_async_shared after "
                    f"the write\n  read:  {what}, by {agent.name}\n  write: {old.what}, by {old.agent.name}")
        if known and write and covers(box, old.box):
            continue  # what is ordered after this write is ordered after the old access
        if known and not write and not old.write and old.agent is agent and covers(box, old.box):
            continue
        kept.append(old)
    if not write and written < volume(box):
        raise Uninitialized(f"{what}, by {agent.name}, reads {view.describe()}, "
                            f"{'part of which' if written else 'which'} nothing has written")
    kept.append(Access(box, write, proxy, agent, agent.time, what))
    allocation.accesses = kept


class GlobalMemory:
    """The tensors of a launch, found by address."""

    def __init__(self, tensors):
        self.ranges = []
        for name, tensor in tensors:
            storage = tensor.untyped_storage()
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), raw, name))

    def find(self, lowest, highest, where, what):
        for start, end, raw, _ in self.ranges:
            if start <= lowest and highest <= end:
                return start, raw
        near = min(self.ranges, key=lambda r: max(lowest - r[1], r[0] - highest, 0), default=None)
        hint = ""
        if near is not None:
            inside = near[0] <= lowest < near[1]
            by = highest - near[1] if inside or lowest >= near[1] else near[0] - lowest
            side = "past the end" if inside or lowest >= near[1] else "before the start"
            hint = f"; the nearest tensor, {near[3]}, has {near[1] - near[0]} bytes, and this is {by} bytes {side}"
        raise OutOfBounds(f"{where}: {what} of global memory outside every tensor of the launch{hint}")

    def elements(self, addresses, dtype, where, what):
        """A flat view of the tensor behind int64 addresses, and their indices in it."""
        size = dtype.itemsize
        lowest, highest = int(addresses.min()), int(addresses.max()) + size
        start, raw = self.find(lowest, highest, where, what)
        offsets = addresses - start
        if bool((offsets % size).any()):
            raise OutOfBounds(f"{where}: {what} of {dtype} at an address that is not a multiple of {size}")
        usable = raw.numel() // size * size
        return raw[:usable].view(dtype), offsets // size
