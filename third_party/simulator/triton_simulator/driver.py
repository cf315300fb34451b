"""The simulator as a Triton driver: it takes the place of a GPU's."""

# Triton imports this module when it looks for backends, so torch and the machine are imported when a kernel runs.

import collections
import itertools
import random
import sys

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from .errors import SimulationError

ARCHITECTURES = {
    name: {"arch": arch, "shared memory": 227 * 1024, "tensor memory": columns, "registers": 64 * 1024}
    for name, arch, columns in (("sm_90", 90, 0), ("sm_100", 100, 512), ("sm_103", 103, 512))
}


class Utils:
    """What Triton asks of a GPU's driver library."""

    def __init__(self, settings):
        self.settings = settings

    def get_device_properties(self, device):
        return {
            "max_shared_mem": self.settings["capacity"]["shared memory"], "max_num_regs":
            self.settings["capacity"]["registers"], "warpSize": 32, "multiprocessor_count":
            self.settings["multiprocessors"], "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1
        }

    def load_binary(self, name, kernel, shared, device):
        return name, name, 0, 0, 1024

    def unload_module(self, module):
        pass


class Launcher:

    programs: dict = {}  # by the hash of a compiled kernel and the file of its source

    def __init__(self, src, metadata):
        self.names = src.fn.arg_names
        self.metadata = metadata
        self.path = src.fn.fn.__code__.co_filename

    def program(self):
        from triton.runtime.cache import get_cache_manager

        from .translate import Program
        key = self.metadata.hash, self.path
        if key not in self.programs:
            path = get_cache_manager(key[0]).get_file(f"{self.metadata.name}.ttgir")
            if path is None:
                raise SimulationError(f"the TTGIR of {self.metadata.name} is not in Triton's cache")
            with open(path) as file:
                self.programs[key] = Program(file.read(), self.metadata.target.arch, self.path)
            self.programs[key].launched_early = self.metadata.launch_pdl
        return self.programs[key]

    def __call__(self, grid_x, grid_y, grid_z, stream, function, kernel_metadata, launch_metadata, enter, leave, *args):
        from triton.runtime import driver
        driver.active.launch(self.program(), dict(zip(self.names, args)), (grid_x, grid_y, grid_z))


def resolve(path, arguments):
    """The value behind a parameter name: an argument, a part of a tuple, or a size or stride of a descriptor."""
    name, *rest = path.split(".")
    value = arguments[name]
    while rest:
        part = rest.pop(0)
        if part in ("shape", "stride") and hasattr(value, "block_shape"):
            return int((value.shape if part == "shape" else value.strides)[int(rest.pop(0))])
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


class SimulatorDriver(DriverBase):

    defaults = {"arch": "sm_90", "seed": 0, "schedules": 1, "multiprocessors": 8}
    announced = False

    def __init__(self, **settings):
        if not settings and not self.announced:  # Triton found it by itself
            SimulatorDriver.announced = True
            print(f"triton_simulator: no GPU here, so kernels run on a simulated {self.defaults['arch']}",
                  file=sys.stderr)
        self.settings = {**self.defaults, **settings}
        if self.settings["arch"] not in ARCHITECTURES:
            raise ValueError(f"arch is {self.settings['arch']!r}; expected one of {', '.join(ARCHITECTURES)}")
        if self.settings["schedules"] < 1:
            raise ValueError(f"schedules is {self.settings['schedules']}; expected at least 1")
        self.settings["capacity"] = ARCHITECTURES[self.settings["arch"]]
        self.utils = Utils(self.settings)
        self.launcher_cls = Launcher
        self.counts: collections.Counter = collections.Counter()

    # What Triton asks of a driver.

    @classmethod
    def is_active(cls):
        """The default driver where no other is active."""
        from triton.backends import backends
        return not any(backend.driver.is_active() for backend in backends.values() if backend.driver is not cls)

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        return GPUTarget("cuda", self.settings["capacity"]["arch"], 32)

    def get_active_torch_device(self):
        import torch
        return torch.device("cpu")

    def get_current_device(self):
        """What Triton keeps compiled kernels by, in memory: not a number that a GPU has."""
        return self.settings["arch"]

    def set_current_device(self, device):
        pass

    def get_current_stream(self, device=0):
        return 0

    def get_device_capability(self, device=0):
        return divmod(self.settings["capacity"]["arch"], 10)

    def get_device_interface(self):
        raise NotImplementedError("the simulator has no clock, so do_bench and events mean nothing under it; "
                                  "triton_simulator.activate(...).counts says what kernels did")

    def get_empty_cache_for_benchmark(self):
        return self.get_device_interface()

    def get_benchmarker(self):
        """For triton.autotune: a cost instead of a time, the larger of the MMAs' and the copies', in ms at a GPU's rates."""

        def cost(kernel_call, quantiles=(0.5, ), **_):
            before = collections.Counter(self.counts)
            kernel_call()
            did = {name: self.counts[name] - before[name] for name in self.counts}
            flops = did.get("MMA FLOPs", 0) / 800e9
            copies = (did.get("TMA load bytes", 0) + did.get("TMA store bytes", 0)) / 4e9
            overhead = (did.get("barrier waits", 0) + did.get("programs", 0)) * 1e-6
            return [max(flops, copies) + overhead for _ in quantiles]

        return cost

    # Running.

    def launch(self, program, arguments, grid):
        import torch

        from .tma import Descriptor
        from .translate import shape_of
        values, tensors = [], []
        for name, kind in program.arguments:
            value = resolve(name[1:], arguments)
            if "tensordesc" in kind:
                value = Descriptor(value, shape_of(kind)[0], name[1:])
                tensors.append((name[1:], value.base))
            elif torch.is_tensor(value):
                tensors.append((name[1:], value))
                value = value.data_ptr()
            elif hasattr(value, "item"):
                value = value.item()
            values.append(value)
        schedules = self.settings["schedules"]
        before = [tensor.untyped_storage().clone() for _, tensor in tensors] if schedules > 1 else []
        for schedule in range(schedules):
            if schedule:
                for (_, tensor), storage in zip(tensors, before):
                    tensor.untyped_storage().copy_(storage)
            self.run(program, values, grid, tensors, random.Random(self.settings["seed"] + schedule))

    def run(self, program, values, grid, tensors, rng):
        from tqdm import tqdm

        from .machine import Cta
        from .memory import GlobalMemory
        memory = GlobalMemory(tensors)
        programs = itertools.product(range(grid[2]), range(grid[1]), range(grid[0]))
        total = grid[0] * grid[1] * grid[2]
        for z, y, x in tqdm(programs, program.kernel.name, total, disable=None, leave=False, delay=2):
            self.counts["programs"] += 1
            cta = Cta(program, (x, y, z), grid, memory, rng, self.counts, self.settings["capacity"])
            cta.spawn("default partition", program.make(cta, *values), program.num_warps)
            cta.run()
