"""One CTA: partitions stepped by a seeded scheduler, mbarriers, and operations that complete when the scheduler says."""

import collections
from typing import Any

import torch

from . import functions, tma
from .clocks import Agent, join
from .errors import BarrierMisuse, Deadlock, NotSimulated, Race, SimulationError
from .memory import ASYNC, GENERIC, Allocation, record


class Barrier:
    """An mbarrier: a phase is complete when no arrival and no byte is pending."""

    def __init__(self, name, count):
        self.name, self.count = name, count
        self.pending, self.bytes, self.completed = count, 0, 0
        self.valid = True
        self.clock, self.fenced = {}, {}  # of the arrivals of this phase
        self.done_clock, self.done_fenced = {}, {}  # of the last complete phase
        self.observed = {}  # by partition: the last phase that a wait returned for

    def arrive(self, count, agent, what):
        if not self.valid:
            raise BarrierMisuse(f"{what}, by {agent.name}: arrives at {self.name}, which was invalidated")
        if count > self.pending:
            raise BarrierMisuse(
                f"{what}, by {agent.name}: {count} arrivals at {self.name}, which expects {self.pending} more "
                f"of {self.count} in phase {self.completed}: over-arrived")
        join(self.clock, agent.clock)
        join(self.fenced, agent.fenced)
        agent.tick()
        self.pending -= count
        self.finish()

    def transfer(self, count):
        self.bytes += count
        self.finish()

    def finish(self):
        if self.pending == 0 and self.bytes == 0:
            self.completed += 1
            self.pending = self.count
            self.done_clock, self.done_fenced = self.clock, self.fenced
            self.clock, self.fenced = {}, {}

    @property
    def busy(self):
        """Whether its phase has begun."""
        return self.bytes != 0 or self.pending != self.count

    def state(self):
        parts = [f"phase {self.completed}", f"{self.pending} of {self.count} arrivals missing"]
        if self.bytes:
            parts.append(f"{self.bytes} bytes missing" if self.bytes > 0 else f"{-self.bytes} bytes more than expected")
        return f"{self.name} ({', '.join(parts)})"


class Operation(Agent):
    """An asynchronous operation: ``apply`` does it, at a time that the scheduler picks."""

    def __init__(self, name, issuer, queue, apply, what, barriers=(), transfer=None):
        super().__init__(name, issuer.clock, issuer.fenced)
        issuer.tick()
        self.issuer, self.queue, self.apply, self.what = issuer, queue, apply, what
        self.barriers, self.transfer = barriers, transfer
        self.done, self.after = False, None

    def complete(self):
        self.apply()
        self.apply, self.done = None, True
        if self.transfer is not None:
            barrier, count = self.transfer
            join(barrier.clock, self.clock)
            join(barrier.fenced, self.fenced)
            barrier.transfer(-count)
        for barrier in self.barriers:
            # A commit arrives as soon as its MMAs are complete, so one that is late here is none that a kernel could meet.
            if barrier.valid or self.after is None or not self.after.done:
                barrier.arrive(1, self, self.what)


class InFlight:
    """A register tensor that a wgmma has yet to write."""

    __slots__ = ("operation", "value")

    def __init__(self):
        self.operation: Any = None
        self.value: Any = None


class Partition(Agent):

    def __init__(self, name, warps, clock=None, fenced=None):
        super().__init__(name, clock, fenced)
        self.warps = warps
        self.code = None
        self.waits_for = None  # (ready, description)
        self.wgmmas, self.stores = [], []
        self.copies, self.groups = [], []  # of cp.async: not yet committed, and committed
        self.tcgen05: Any = None  # the last MMA

    def commit(self):
        self.groups.append(self.copies)
        self.copies = []


def all_but(started, pendings):
    """What a wait is for that lets the last ``pendings`` go on: nothing, if there are no more than that."""
    return started[:max(0, len(started) - pendings)]


class Cta:
    """The run of one program: what the translated kernel calls is here."""

    def __init__(self, program, program_ids, grid, memory, random, counts, capacity):
        self.program, self.program_ids, self.grid = program, program_ids, grid
        self.memory, self.random, self.counts = memory, random, counts
        self.capacity = capacity
        self.partitions, self.queues, self.allocations = [], collections.defaultdict(collections.deque), []
        self.issued = 0
        self.grid_waits = []  # who has waited for the kernels before this one, and when
        self.unlearned = {}  # operations that no partition knows to be complete

    # -- scheduling ---------------------------------------------------------------------------------------------------

    def where(self, site):
        return self.program.sites[site]

    def spawn(self, name, code, warps, parent=None):
        partition = Partition(name, warps, parent.clock if parent else None, parent.fenced if parent else None)
        partition.code = code(partition)
        self.partitions.append(partition)
        return partition

    def run(self):
        random = self.random
        for kind, used, name in (("shared memory", self.program.shared_bytes, "bytes of shared memory"),
                                 ("tensor memory", self.program.tensor_columns, "columns of tensor memory")):
            if used > self.capacity[kind]:
                raise SimulationError(
                    f"{self.program.kernel.name} needs {used} {name}; the limit is {self.capacity[kind]}")
            self.counts[f"peak {name}"] = max(self.counts[f"peak {name}"], used)
        while self.partitions:
            ready = [p for p in self.partitions if p.waits_for is None or p.waits_for[0]()]
            heads = [key for key, queue in self.queues.items() if queue]
            choices = len(ready) + len(heads)
            if choices == 0:
                self.deadlock()
            pick = random.randrange(choices)
            if pick >= len(ready):
                key = heads[pick - len(ready)]
                self.queues[key].popleft().complete()
                continue
            partition = ready[pick]
            partition.waits_for = None
            try:
                partition.waits_for = next(partition.code)
            except StopIteration:
                self.partitions.remove(partition)
                self.note_learned(partition)
                for operation in partition.wgmmas + partition.stores:
                    raise SimulationError(f"{partition.name} ends without a wait for {operation.what}: it is in flight")
        for operation in self.unlearned.values():
            if operation.after is not None and operation.after.number not in self.unlearned:
                continue  # the arrival of a commit whose MMAs are known to be complete
            raise SimulationError(f"the program ends without a wait for {operation.what}: it is in flight")
        for allocation in self.allocations:
            for barrier in allocation.barriers.values():
                if barrier.busy:
                    raise BarrierMisuse(f"the program ends in the middle of a phase of {barrier.state()}")

    def deadlock(self):
        lines = [f"  {p.name} waits for {p.waits_for[1]()}" for p in self.partitions]
        raise Deadlock(f"deadlock in program {self.program_ids}: nothing can move\n" + "\n".join(lines))

    def issue(self, partition, name, queue, apply, site, **rest):
        operation = Operation(f"{name} of {partition.name}", partition, queue, apply, self.where(site), **rest)
        self.queues[queue if queue is not None else operation.number].append(operation)
        self.unlearned[operation.number] = operation
        self.issued += 1
        if self.issued % 512 == 0:
            self.forget()
        return operation

    def forget(self):
        """Drop from all clocks the operations that no access refers to."""
        for partition in self.partitions:
            self.note_learned(partition)
        live = {p.number for p in self.partitions}
        live.update(self.unlearned)
        barriers = []
        for allocation in self.allocations:
            live.update(access.agent.number for access in allocation.accesses)
            barriers += allocation.barriers.values()
        operations = [op for queue in self.queues.values() for op in queue]
        live.update(op.number for op in operations)
        for key in [key for key, queue in self.queues.items() if not queue]:
            del self.queues[key]

        def prune(clock):
            for number in [number for number in clock if number not in live]:
                del clock[number]

        for agent in self.partitions + operations:
            prune(agent.clock)
            prune(agent.fenced)
        for b in barriers:
            for clock in (b.clock, b.fenced, b.done_clock, b.done_fenced):
                prune(clock)

    def note_learned(self, partition):
        for number in [number for number in self.unlearned if number in partition.clock]:
            del self.unlearned[number]

    # -- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, kind, shape, dtype, site, name, offset=-1):
        line = self.program.outermost[site]
        allocation = Allocation(f"{name} (allocated at {line})" if line else name, kind, shape, dtype, offset)
        if kind == "shared memory":
            self.check_reuse(allocation, site)
        self.allocations.append(allocation)
        return allocation.view()

    def check_reuse(self, allocation, site):
        """The compiler gives a buffer the memory of one that it sees no more use of; an mbarrier stays until it is invalidated."""
        for other in self.allocations:
            if max(other.place.start, allocation.place.start) < min(other.place.stop, allocation.place.stop):
                for barrier in other.barriers.values():
                    if barrier.valid:
                        raise BarrierMisuse(
                            f"{self.where(site)}: {allocation.name} lies over {barrier.name}, which nothing uses "
                            "after this and which was not invalidated")

    def store(self, partition, view, value, site):
        record(view, True, GENERIC, partition, self.where(site))
        view.data.copy_(self.value(value, site))

    def load(self, partition, view, site):
        record(view, False, GENERIC, partition, self.where(site))
        return view.data.clone()

    # -- mbarriers ----------------------------------------------------------------------------------------------------

    def barrier(self, view, partition, site):
        barrier = view.allocation.barriers.get(view.box)
        if barrier is None or not barrier.valid:
            state = "was invalidated" if barrier else "was not initialized"
            raise BarrierMisuse(f"{self.where(site)}, by {partition.name}: {view.describe()} {state}")
        return barrier

    def init_barrier(self, partition, view, count, site):
        old = view.allocation.barriers.get(view.box)
        if old is not None and old.valid:
            raise BarrierMisuse(f"{self.where(site)}, by {partition.name}: {view.describe()} is initialized already")
        view.allocation.barriers[view.box] = Barrier(f"barrier {view.describe()}", count)

    def invalidate(self, partition, view, site):
        barrier = self.barrier(view, partition, site)
        if barrier.busy:
            raise BarrierMisuse(f"{self.where(site)}, by {partition.name}: invalidates {barrier.state()}")
        barrier.valid = False

    def expect(self, partition, view, count, pred, site):
        if pred:
            barrier = self.barrier(view, partition, site)
            barrier.bytes += count
            barrier.arrive(1, partition, self.where(site))

    def arrive(self, partition, view, count, pred, site):
        if pred:
            self.barrier(view, partition, site).arrive(count, partition, self.where(site))

    def wait(self, partition, view, parity, pred, site):
        """Yield what the scheduler needs until the phase of that parity is complete; then order what came before it."""
        if not pred:
            return
        barrier = self.barrier(view, partition, site)
        self.counts["barrier waits"] += 1
        if barrier.completed & 1 == parity:
            yield (lambda: barrier.completed & 1 != parity or not barrier.valid,
                   lambda: f"phase parity {parity} of {barrier.state()}\n    {self.where(site)}")
        self.barrier(view, partition, site)
        observed = barrier.completed - 1
        if barrier.observed.get(partition.number) == observed:
            raise BarrierMisuse(
                f"{self.where(site)}, by {partition.name}: the wait for parity {parity} of {barrier.name} is "
                f"satisfied by a phase that an earlier wait already returned for, so it orders nothing")
        barrier.observed[partition.number] = observed
        partition.learn(barrier.done_clock, barrier.done_fenced)

    # -- global memory ------------------------------------------------------------------------------------------------

    def wait_for_grids(self, partition):
        self.grid_waits.append((partition.number, partition.time))
        partition.tick()

    def check_grids(self, partition, site):
        """With launch_pdl a kernel starts while those before it are running: what they write must be waited for."""
        if self.program.launched_early and not any(
                partition.clock.get(number, -1) >= time for number, time in self.grid_waits):
            raise Race(f"{self.where(site)}, by {partition.name}: global memory is used before a gdc_wait; the kernel "
                       "was launched with launch_pdl, and one before it may still write there")

    def global_memory(self, partition, site):
        self.check_grids(partition, site)
        return self.memory

    # -- TMA ----------------------------------------------------------------------------------------------------------

    def tma_load(self, partition, descriptor, coordinates, offsets, view, bar, pred, site):
        if not pred:
            return
        self.check_grids(partition, site)
        what = self.where(site)
        barrier = self.barrier(bar, partition, site)
        block = tma.prepare(descriptor, coordinates, offsets, view.data.shape, what)

        def apply():
            view.data.copy_(block())

        count = view.data.numel() * view.data.element_size()
        operation = self.issue(partition, "TMA load", None, apply, site, transfer=(barrier, count))
        record(view, True, ASYNC, operation, what)
        self.counts["TMA load bytes"] += count
        self.counts["TMA loads"] += 1

    def tma_store(self, partition, descriptor, coordinates, view, site, combine=None):
        self.check_grids(partition, site)
        what = self.where(site)
        put = tma.prepare_store(descriptor, coordinates, view.data.shape, what, combine)
        operation = self.issue(partition, "TMA store", None, lambda: put(view.data), site)
        record(view, False, ASYNC, operation, what)
        partition.stores.append(operation)
        self.counts["TMA store bytes"] += view.data.numel() * view.data.element_size()
        self.counts["TMA stores"] += 1

    # -- cp.async -----------------------------------------------------------------------------------------------------

    def copy(self, partition, pointers, view, mask, other, site):
        self.check_grids(partition, site)
        what = self.where(site)

        def apply():
            view.data.copy_(functions.global_load(self.memory, what, view.data.dtype, pointers, mask, other))

        operation = self.issue(partition, "cp.async", f"cp.async {partition.number}", apply, site)
        record(view, True, GENERIC, operation, what)
        partition.copies.append(operation)

    def wait_copies(self, partition, pendings, site):
        """Wait until all but the last ``pendings`` groups are complete; copies that no commit closed are in none."""
        due = all_but(partition.groups, pendings)
        operations = [operation for group in due for operation in group]
        yield from self.wait_all_but(partition, operations, 0, site, "its cp.async copies")
        del partition.groups[:len(due)]

    # -- waiting for operations ---------------------------------------------------------------------------------------

    def wait_all_but(self, partition, operations, pendings, site, name):
        """Wait until all but the last ``pendings`` operations are complete, and know of them."""
        due = all_but(operations, pendings)
        if not all(op.done for op in due):
            yield (lambda: all(op.done for op in due), lambda: f"{name}\n    {self.where(site)}")
        for op in due:
            partition.learn(op.clock, op.fenced)
        del operations[:len(due)]

    # -- MMAs ---------------------------------------------------------------------------------------------------------

    def value(self, tensor, site):
        """A register tensor, which must have been written."""
        if isinstance(tensor, InFlight):
            if not tensor.operation.done or tensor.operation in tensor.operation.issuer.wgmmas:
                raise SimulationError(
                    f"{self.where(site)}: uses the accumulator of a wgmma that no wait has shown to be "
                    f"complete\n  wgmma: {tensor.operation.what}")
            return tensor.value
        return tensor

    def product(self, a, b, precision):
        m, k = a.shape
        self.counts["MMA FLOPs"] += 2 * m * k * b.shape[1]
        if a.dtype == torch.float32 and precision == "tf32":
            a, b = (x.view(torch.int32).bitwise_and(-8192).view(torch.float32)
                    for x in (a.contiguous(), b.contiguous()))
        if not a.dtype.is_floating_point:
            return a.to(torch.int32) @ b.to(torch.int32)
        return a.float() @ b.float()

    def wgmma(self, partition, a, b, acc, use_acc, asynchronous, site):
        what, result = self.where(site), InFlight()
        register_a = None if hasattr(a, "allocation") else self.value(a, site)

        def apply():
            product = self.product(register_a if register_a is not None else a.data, b.data, "tf32")
            if use_acc:
                product = product + (acc.value if isinstance(acc, InFlight) else acc)
            result.value = product

        if isinstance(acc, InFlight) and acc.operation.issuer is not partition:
            raise SimulationError(f"{what}: accumulates into registers of {acc.operation.issuer.name}")
        operation = self.issue(partition, "wgmma", f"wgmma {partition.number}", apply, site)
        result.operation = operation
        if register_a is None:
            record(a, False, ASYNC, operation, what)
        record(b, False, ASYNC, operation, what)
        partition.wgmmas.append(operation)
        if not asynchronous:
            yield from self.wait_all_but(partition, partition.wgmmas, 0, site, "wgmma")
        return result

    def tcgen05_mma(self, partition, a, b, acc, use_acc, pred, barriers, site):
        if not pred:
            return
        what = self.where(site)
        arrive = [self.barrier(bar, partition, site) for bar, on in barriers if on]

        def apply():
            product = self.product(a.data, b.data, "tf32")
            acc.data.copy_(acc.data + product if use_acc else product)

        operation = self.issue_tcgen05(partition, "tcgen05 MMA", apply, arrive, site)
        for operand in (a, b):
            record(operand, False, ASYNC, operation, what)
        if use_acc:
            record(acc, False, ASYNC, operation, what)
        record(acc, True, ASYNC, operation, what)
        partition.tcgen05 = operation

    def tcgen05_commit(self, partition, bar, pred, site):
        if not pred:
            return
        barrier = self.barrier(bar, partition, site)
        commit = self.issue_tcgen05(partition, "tcgen05 commit", lambda: None, [barrier], site)
        commit.after = partition.tcgen05

    def issue_tcgen05(self, partition, name, apply, barriers, site):
        operation = self.issue(partition, name, "tcgen05", apply, site, barriers=barriers)
        if partition.tcgen05 is not None:  # MMAs of one issuer run in order
            operation.learn(partition.tcgen05.clock, partition.tcgen05.fenced)
        return operation

    # -- warp specialization ------------------------------------------------------------------------------------------

    def warp_specialize(self, parent, workers, requested, registers, first_warps, site):
        """Start the workers; the caller runs the default partition in the parent, then joins."""
        if requested:
            self.check_registers(parent, workers, requested, registers, first_warps, site)
        started = [self.spawn(label, code, warps, parent) for label, warps, code in workers]
        parent.tick()  # what the parent does from here on, its workers do not know
        return started

    def check_registers(self, parent, workers, requested, registers, first_warps, site):
        """Registers move by warp groups of 4: the sum of what the groups hold must fit the pool.

        Where it does not, the compiler drops the request without a word, and no ``registers`` come out of it.
        """
        groups: dict[int, int] = {}
        for first, count in zip(first_warps, registers[1:] or requested):
            groups[first // 4] = max(groups.get(first // 4, 0), count)
        workers_total = sum(128 * count for count in groups.values())
        pool = self.capacity["registers"] - workers_total
        default = min(registers[0] if registers else pool // (32 * parent.warps), 256)
        total = 32 * parent.warps * default + workers_total
        if not registers or default < 24 or total > self.capacity["registers"]:
            raise SimulationError(
                f"{self.where(site)}: the partitions' registers exceed the pool: {default} for each thread of "
                f"the default partition's {parent.warps} warps and {', '.join(map(str, requested))} for those "
                f"of the workers; there are {self.capacity['registers']} in all, at least 24 a thread")

    def join_workers(self, parent, started, site):
        if any(worker in self.partitions for worker in started):
            yield (lambda: not any(worker in self.partitions for worker in started),
                   lambda: f"the other partitions to end\n    {self.where(site)}")
        for worker in started:
            parent.learn(worker.clock, worker.fenced)

    def unsupported(self, name, site):
        raise NotSimulated(f"{self.where(site)}: the simulator does not know {name}")
