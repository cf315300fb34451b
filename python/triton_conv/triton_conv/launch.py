"""From a problem and tensors to launches: which kernel, on which memory."""

import dataclasses
import functools
import math

import torch
import triton
from triton.backends.nvidia.driver import CudaLauncher, wrap_handle_tensordesc

from . import ahead, descriptors, heuristics, tuning
from . import memory as mem
from .geometry import ConvProblem, ceil_div, fold_width, folded_row, in_strips, round_up, split_batch
from .kernels.direct import direct_kernel
from .kernels.fprop import fprop_kernel
from .kernels.pipeline import EVICT_FIRST


def active_driver():
    """Triton's active driver, or None on a machine without one."""
    try:
        return triton.runtime.driver.active
    except RuntimeError:
        return None


def active_target():
    driver = active_driver()
    return None if driver is None else driver.get_current_target()


def active_device():
    return triton.runtime.driver.active.get_active_torch_device()


@functools.lru_cache
def multiprocessors(driver, index):
    return driver.utils.get_device_properties(index)["multiprocessor_count"]


def in_three(values, filler):
    """Sizes of one to three spatial dimensions as (d, h, w)."""
    return (filler, ) * (3 - len(values)) + tuple(values)


def geometry_arguments(problem):
    return (*in_three(problem.out, 1), *in_three(problem.taps, 1), *in_three(problem.strides, 1),
            *in_three(problem.before, 0), *in_three(problem.dilations, 1))


@dataclasses.dataclass
class Epilogue:
    """What is added to and done with the product, on memory of the output's shape."""
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    activation: str

    def part(self, images):
        return dataclasses.replace(self, residual=None if self.residual is None else self.residual[images])

    def options(self):
        return dict(HAS_BIAS=self.bias is not None, HAS_RESIDUAL=self.residual is not None, ACTIVATION=self.activation)


def based_on(descriptor, tensor):
    """A copy of a descriptor for another tensor of the same shape, strides and alignment, without checking it again."""
    copy = object.__new__(type(descriptor))
    copy.__dict__.update(descriptor.__dict__, base=tensor)
    return copy


_counters: dict = {}
MOST_COUNTERS = 256  # of a launch: for columns of tiles and a flag, or for tiles that are in parts
CAPTURED_COUNTERS = 2**18
MOST_EXPANDED = 256
_launches: dict = {}
MOST_LAUNCHES = 1024


class Counters:
    """Zeros that launches count tiles with and leave at 0: the same for all launches of a stream, others for each launch that
    a CUDA graph captures, since graphs may run beside each other."""

    def __init__(self, device):
        self.device = device
        self.of_streams: dict = {}
        self.sums_of_streams: dict = {}
        self.captured, self.used = None, 0
        self.unused = self.zeros(4)

    def zeros(self, count):
        return mem.lasting(lambda: torch.zeros(count, dtype=torch.int32, device=self.device), self.device)

    def take(self, count, stream):
        if mem.is_capturing(self.device):
            start = self.used
            self.used += round_up(count, 4)  # 16 bytes, as Triton assumes of pointers that it has seen
            if self.captured is None or self.used > CAPTURED_COUNTERS:
                return torch.zeros(count, dtype=torch.int32, device=self.device)  # the graph sets them itself
            return self.captured[start:start + count]
        found = self.of_streams.get(stream)
        if found is None:
            if self.captured is None:
                self.captured = self.zeros(CAPTURED_COUNTERS)
            found = self.of_streams[stream] = self.zeros(MOST_COUNTERS)
        return found

    def sums(self, count, stream):
        """Memory for the sums of a launch's parts of tiles."""
        allocate = functools.partial(torch.empty, count, dtype=torch.float32, device=self.device)
        if mem.is_capturing(self.device):
            return allocate()  # the graph's own
        found = self.sums_of_streams.get(stream)
        if found is None or found.numel() < count:
            found = self.sums_of_streams[stream] = mem.lasting(allocate, self.device)
        return found


def counters(device):
    found = _counters.get(device)
    if found is None:
        found = _counters[device] = Counters(device)
    return found


_runtime = triton.knobs.runtime


def is_watched():
    """Whether someone, such as a profiler, is to be told of launches."""
    enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


def constants_of(tile, rank, hopper, options, flagged=False):
    """The constexpr arguments of ``fprop_kernel``, in its order; rank 0 is for rows of pixels."""
    return dict(RANK=rank, BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, STRIP=tile.strip, TAPS=tile.taps, STEP=tile.step,
                TOGETHER=tile.together, SKIPPED=tile.skipped, GROUP_M=tile.group_m, SPLIT=tile.parts > 1, HOPPER=hopper,
                IN_TURNS=tile.in_turns, STAGES=tile.stages, RESIDENT=tile.resident, PASSING=tile.passing
                and EVICT_FIRST is not None, DRAWN=tile.drawn, SLABS=tile.slabs, **options, FLAGGED=flagged)


def num_warps_of(tile, hopper):
    """Of the partition that a kernel begins with: on Hopper each four have 64 rows of the accumulators, or all of them."""
    return 8 if hopper and not tile.in_turns and tile.line > 64 else 4


class FpropLaunch:
    """A launch of ``fprop_kernel``, prepared for a problem.

    It can be called with all tensors that have the shapes, strides, dtypes, device and 16-byte alignment of those that it was made
    with. The first call goes through Triton's JIT, and those after it past its inspection of the arguments; where all
    tensors are where they were in an earlier call, as they are when memory is used again, descriptors are not encoded
    again either.
    """

    def __init__(self, problem, x, strides, w, pitch, y, epilogue, tile=None, autotune=False, flagged=False):
        count = multiprocessors(triton.runtime.driver.active, x.device.index or 0)
        hopper = active_target().arch // 10 == 9
        shapes = heuristics.shapes_for(hopper, epilogue.activation, epilogue.residual is not None)
        if autotune:
            # Pixels side by side are as one with the channels of all.
            may_strip = hopper and strides[-1] == problem.channels

            def launch_with(tile):
                launch = FpropLaunch(problem, x, strides, w, pitch, y, epilogue, tile)
                return lambda: launch(x, w, y, epilogue.bias, epilogue.residual)

            tile = tuning.best_tile(problem, x.dtype, x.device, shapes, count, epilogue.options(), flagged, may_strip,
                                    launch_with)
        # Parts of a sum do not tell whether it is finite.
        tile = tile or heuristics.choose(problem, x.element_size(), count, shapes, may_split=not flagged)
        self.w_desc = descriptors.weight_descriptor(problem, w, pitch, tile)
        if tile.together:
            problem = in_strips(problem, tile.strip, problem.groups, tile.together)
            strides = [*strides[:-1], strides[-1] * tile.together]
        product = problem.is_product and mem.rows_are_even(problem, strides)
        rank = 0 if product else problem.rank
        describe_input = descriptors.rows_descriptor if product else descriptors.input_descriptor
        self.x_desc = describe_input(problem, x, strides, tile)
        self.y_desc = descriptors.output_descriptor(problem, y, tile)
        for template in (self.x_desc, self.w_desc, self.y_desc):
            template.base = None  # a launch outlives its tensors
        self.sizes = (problem.rows, problem.group_out_channels, problem.group_channels, problem.groups,
                      *geometry_arguments(problem), tile.parts)
        self.constants = tuple(constants_of(tile, rank, hopper, epilogue.options(), flagged).values())
        self.grid = heuristics.grid(problem, tile, count), 1, 1
        self.counters = counters(y.device)
        self.columns = 0  # counters that it needs
        if tile.drawn:
            self.columns = heuristics.num_columns(problem, tile) if tile.resident else 1
        elif tile.parts > 1:
            self.columns = heuristics.num_tiles(problem, tile)
        self.num_warps = num_warps_of(tile, hopper)
        self.num_sums = 0
        if tile.parts > 1:
            self.num_sums = heuristics.num_tiles(problem, tile) * tile.parts * tile.block_m * tile.block_n
        self.compiled = self.expand = None
        self.expanded: dict = {}
        self.current_stream = triton.runtime.driver.active.get_current_stream
        self.device_index = triton.runtime.driver.active.get_current_device()

    def __call__(self, x, w, y, bias, residual, state=None):
        """``state`` has counters and then the flag of a launch that sets one."""
        stream = self.current_stream(self.device_index)
        counter = state
        if counter is None:
            counter = self.counters.take(self.columns, stream) if self.columns else self.counters.unused
        sums = self.counters.sums(self.num_sums, stream) if self.num_sums else counter
        if self.expand is not None and not is_watched():
            key = (x.data_ptr(), w.data_ptr(), y.data_ptr(), None if bias is None else bias.data_ptr(),
                   None if residual is None else residual.data_ptr(), counter.data_ptr(), sums.data_ptr())
            arguments = self.expanded.get(key)
            if arguments is None:
                if len(self.expanded) >= MOST_EXPANDED:
                    self.expanded.clear()
                descriptors, tensors = self.descriptors_and_tensors(x, w, y, bias, residual, counter, sums)
                pointers = (tensor.data_ptr() for tensor in tensors)
                arguments = self.expanded[key] = self.expand((*descriptors, *pointers, *self.sizes, *self.constants))
            self.launch(*self.grid, stream, *self.launch_options, arguments)
            return
        descriptors, tensors = self.descriptors_and_tensors(x, w, y, bias, residual, counter, sums)
        arguments = *descriptors, *tensors, *self.sizes, *self.constants
        if self.compiled is None:
            kernel = ahead.launcher(fprop_kernel, self.grid)(*arguments, num_warps=self.num_warps, launch_pdl=True)
            if ahead.only_compiling():
                y.zero_()
                return
            if isinstance(kernel, triton.FutureKernel):
                kernel = kernel.result()
            self.compiled = kernel
            self.prepare(kernel)
            return
        kernel = self.compiled
        kernel.run(*self.grid, stream, kernel.function, kernel.packed_metadata,
                   kernel.launch_metadata(self.grid, stream, *arguments), _runtime.launch_enter_hook,
                   _runtime.launch_exit_hook, *arguments)

    def descriptors_and_tensors(self, x, w, y, bias, residual, counter, sums):
        x_desc, w_desc, y_desc = based_on(self.x_desc, x), based_on(self.w_desc, w), based_on(self.y_desc, y)
        residual_desc = y_desc if residual is None else based_on(self.y_desc, residual)
        return (x_desc, w_desc, y_desc, residual_desc), (w if bias is None else bias, counter, sums, y,
                                                         y if residual is None else residual)

    def prepare(self, kernel):
        """For calls with tensors seen before: expand arguments once, which encodes their descriptors, and keep what comes out."""
        run = kernel.run
        if type(run) is not CudaLauncher or run.global_scratch_size or run.profile_scratch_size:
            return
        self.expand = wrap_handle_tensordesc(lambda *arguments: arguments[-1], kernel.src.signature,
                                             kernel.metadata.tensordesc_meta)
        self.launch = triton.runtime.driver.active.utils.launch
        self.launch_options = (kernel.function, run.launch_cooperative_grid, run.launch_pdl, kernel.packed_metadata,
                               None, None, None, None, None, run.arg_annotations, run.kernel_signature)


def launch_fprop(problem, x, strides, w, pitch, y, epilogue, tile=None, autotune=False, state=None, warm_up=None):
    """One launch on the tensor cores, prepared at the first of its kind. ``state``, if given, has counters and then a flag,
    set if a sum is not finite. ``warm_up``, if given, compiles what comes after."""
    bias = epilogue.bias
    key = (active_driver(), problem, tuple(strides), pitch, x.dtype, x.device, None if bias is None else
           (bias.dtype, bias.data_ptr() % 16), epilogue.residual is None, epilogue.activation, tile, autotune, state
           is None)
    launch = _launches.get(key)
    if launch is None:
        if len(_launches) >= MOST_LAUNCHES:
            _launches.clear()
        launch = _launches[key] = FpropLaunch(problem, x, strides, w, pitch, y, epilogue, tile, autotune, state
                                              is not None)
        if warm_up is not None:
            with ahead.beside(threads=2):
                warm_up()
                launch(x, w, y, bias, epilogue.residual, state)
            return
    launch(x, w, y, bias, epilogue.residual, state)


@functools.lru_cache(MOST_LAUNCHES)
def direct_arguments(problem, strides, programs):
    """Grid, sizes and constants of ``direct_kernel`` for x with strides of (N, *extents); at most ``programs``, if given."""
    tile = heuristics.choose_direct(problem)
    grid = (ceil_div(problem.rows, tile.block_m) * ceil_div(problem.groups, tile.block_g) *
            ceil_div(problem.group_out_channels, tile.block_n))
    image, *spatial = strides
    sizes = (problem.rows, problem.groups, problem.group_out_channels, problem.group_channels,
             *in_three(problem.extents, 1), *geometry_arguments(problem), image, *in_three(spatial, 0))
    constants = dict(BLOCK_M=tile.block_m, BLOCK_G=tile.block_g, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k,
                     VECTOR=tile.vector, WHOLE_K=tile.block_k == problem.group_channels,
                     WHOLE_N=tile.block_n == problem.group_out_channels)
    return (min(grid, programs or grid), ), sizes, constants


def launch_direct(problem, x, w, y, epilogue, flag=None, only_compile=False):
    """One launch on the CUDA cores; sizes and strides of any kind. With a flag, only if it is set."""
    programs = None if flag is None else 4 * multiprocessors(triton.runtime.driver.active, x.device.index or 0)
    grid, sizes, constants = direct_arguments(problem, x.stride()[:-1], programs)
    residual, bias = epilogue.residual, epilogue.bias
    launch = functools.partial(direct_kernel.warmup, grid=grid) if only_compile else ahead.launcher(direct_kernel, grid)
    launch(x, w, y, y if residual is None else residual, w if bias is None else bias,
           counters(x.device).unused if flag is None else flag, *sizes, **constants, **epilogue.options(), REPAIRS=flag
           is not None, num_warps=4, launch_pdl=True)
    if ahead.only_compiling():
        y.zero_()


def suits_tensor_cores(problem, size):
    """Groups of whole 32-byte steps of channels, whose outputs are whole 16 bytes; a single group has no condition."""
    return problem.groups == 1 or (problem.group_channels * size % 32 == 0
                                   and problem.group_out_channels * size % 16 == 0)


def is_narrow(problem, size):
    """Whether groups do not fill the tensor cores by themselves: those of a few channels, and more where several fit into the
    least tile together."""
    if not suits_tensor_cores(problem, size):
        return True
    if problem.groups == 1 or problem.obstacles():
        return False
    bundle = heuristics.choose_bundle(problem, size)
    together = (bundle or 0) // problem.group_channels
    return (together > 1 and bundle * size <= heuristics.WIDEST_SWIZZLE
            and together * problem.group_out_channels <= heuristics.NARROW.block_n)


def parts(problem):
    """The images of each launch, and the problem that they are."""
    for start, length in split_batch(problem):
        yield slice(start, start + length), dataclasses.replace(problem, batch=length)


def run_direct(problem, x, w, y, epilogue):
    x, w = mem.channels_innermost(x), mem.dense_weight(w)
    if x.stride(-1) != 1:
        x = x.contiguous()
    for images, part in parts(problem):
        launch_direct(part, x[images], w, y[images], epilogue.part(images))


@functools.lru_cache(MOST_LAUNCHES)
def launches_together(problem, size, multiprocessors, hopper):
    """How narrow groups go on the tensor cores, several as one: the width of a bundle, a tile if they are in strips of pixels, and
    for each launch its images, the problem of these, and what that is together. None where they cannot."""
    strips = heuristics.choose_strips(problem, size, multiprocessors) if hopper else None
    bundle = None if problem.obstacles() else heuristics.choose_bundle(problem, size)
    if not strips and not bundle:
        return None
    together, tile = strips or (dataclasses.replace(problem, groups=problem.channels // bundle), None)
    return bundle, tile, [(images, part, dataclasses.replace(together, batch=part.batch))
                          for images, part in parts(problem)]


def run_narrow(problem, x, w, y, epilogue, autotune=False):
    """Groups too narrow to fill an MMA, where that can be several as one, by a weight that has zeros where they do not meet.

    These times an infinity or a NaN of another group would be NaN, so a result with a sum that is not finite is computed
    again without them.
    """
    size, driver = x.element_size(), triton.runtime.driver.active
    way = launches_together(problem, size, multiprocessors(driver, x.device.index or 0),
                            active_target().arch // 10 == 9)
    if way is None:
        run_direct(problem, x, w, y, epilogue)
        return
    bundle, tile, launches = way
    if tile:
        whole = mem.strip_weight(w, heuristics.BUNDLE_BYTES // size, heuristics.BUNDLES, problem.strides[-1])
    else:
        whole = mem.bundled_weight(w, problem.groups, bundle)
    x = mem.pitched(mem.channels_innermost(x))
    strides = mem.element_strides(x)
    dense, pitch = mem.weight_memory(whole)
    repairing = mem.dense_weight(w)
    stream = driver.get_current_stream(driver.get_current_device())
    for images, part, together in launches:
        state = counters(x.device).take(heuristics.MOST_COLUMNS + 2, stream)
        images_x, images_y, images_epilogue = x, y, epilogue
        if len(launches) > 1:
            images_x, images_y, images_epilogue = x[images], y[images], epilogue.part(images)
        repair = functools.partial(launch_direct, part, images_x, repairing, images_y, images_epilogue,
                                   state[heuristics.MOST_COLUMNS:])
        launch_fprop(together, images_x, strides, dense, pitch, images_y, images_epilogue, tile, autotune and not tile,
                     state, functools.partial(repair, only_compile=True))
        repair()


def run_fprop(problem, x, w, y, epilogue, autotune=False):
    x = mem.channels_innermost(x)
    size = x.element_size()
    fold = fold_width(problem, size) if problem.channels * size < 16 else None
    if fold and not fold[0].obstacles():
        folded, padded = fold
        pixels = folded_row(problem, padded, size)
        x = mem.folded_input(problem, x, padded, pixels)
        w, pitch = mem.folded_weight(w, padded)
        row = pixels * padded
        strides = [problem.strides[-1] * padded]
        for extent in reversed(problem.extents[:-1]):
            strides.append(row)
            row *= extent
        strides = [row, *strides[::-1]]
        problem = folded
    else:
        x = mem.pitched(x)
        strides = mem.element_strides(x)
        w, pitch = mem.weight_memory(w)
    for images, part in parts(problem):
        launch_fprop(part, x[images], strides, w, pitch, y[images], epilogue.part(images), autotune=autotune)


def run_patches(problem, x, w, y, epilogue, autotune=False):
    """Filters as wide as their stride, without padding: each input pixel is in one patch. A copy puts them in rows, and the
    rest is a matrix product, a convolution of one tap."""
    taps, out = problem.taps, problem.out
    x = mem.channels_innermost(x)
    x = x[(slice(None), *(slice(0, p * t) for p, t in zip(out, taps)))]
    for dim in reversed(range(problem.rank)):
        x = x.unflatten(1 + dim, (out[dim], taps[dim]))
    order = [0, *range(1, 2 * problem.rank, 2), *range(2, 2 * problem.rank + 1, 2), 2 * problem.rank + 1]
    rows = x.permute(order).reshape(1, problem.rows, problem.reduction)
    product = ConvProblem(1, problem.reduction, problem.out_channels, (problem.rows, ), (1, ), (1, ), (0, ), (0, ),
                          (1, ))
    flat = lambda memory: None if memory is None else memory.reshape(1, problem.rows, -1)
    w = mem.dense_weight(w).reshape(problem.out_channels, -1, 1)
    run_fprop(product, rows.movedim(-1, 1), w, flat(y), dataclasses.replace(epilogue, residual=flat(epilogue.residual)),
              autotune)


def are_patches(problem):
    return problem.groups == 1 and problem.taps == problem.strides and not any(problem.before + problem.after) and set(
        problem.dilations) == {1}


def run(problem, x, w, epilogue, autotune=False):
    """The output's memory (N, *out, K); the problem is not empty."""
    size = x.element_size()
    out_channels = problem.out_channels
    y_shape = (problem.batch, *problem.out)
    if is_narrow(problem, size):
        y = x.new_empty((*y_shape, out_channels))
        run_narrow(problem, x, w, y, epilogue, autotune)
        return y
    run_on_tensor_cores = run_patches if problem.obstacles() else run_fprop
    whole = round_up(out_channels, 16 // size)
    if whole != out_channels:  # outputs are stored in 16 bytes
        w = mem.whole_weight(w, whole)
        bias = None if epilogue.bias is None else mem.padded_channels(epilogue.bias, whole)
        residual = None if epilogue.residual is None else mem.padded_channels(epilogue.residual, whole)
        epilogue = Epilogue(bias, residual, epilogue.activation)
        problem = dataclasses.replace(problem, out_channels=whole)
    y = x.new_empty((*y_shape, whole))
    run_on_tensor_cores(problem, x, w, y, epilogue, autotune)
    return y[..., :out_channels].contiguous() if whole != out_channels else y


def obstacles_of(problem, size):
    """Why a problem cannot be computed, as a list of sentences; empty if it can."""
    return problem.obstacles() if suits_tensor_cores(problem, size) and not are_patches(problem) else []


def check_supported(problem, size):
    obstacles = obstacles_of(problem, size)
    if obstacles:
        raise NotImplementedError("the im2col mode cannot express this convolution: " + "; ".join(obstacles) +
                                  ". Use torch.nn.functional for this layer")


def is_empty(problem):
    return math.prod((problem.batch, *problem.out, problem.out_channels)) == 0


def one_launch(problem, x, size):
    """Whether a problem is one launch on the tensor cores that reads x and writes y in place; the weight may be a copy that is kept."""
    return (not is_empty(problem) and not problem.obstacles() and not is_narrow(problem, size)
            and problem.out_channels * size % 16 == 0 and problem.channels * size >= 16
            and mem.readable(mem.channels_innermost(x)) and len(split_batch(problem)) == 1)


def plan(problem, x, w, bias, residual, activation, autotune=False):
    """A function of (x, w, bias, residual) that computes the problem, for tensors that agree with these in all but contents.

    It returns the output (N, K, *out) in channels_last memory.
    """
    size = x.element_size()
    check_supported(problem, size)
    y_shape = (problem.batch, *problem.out, problem.out_channels)

    def epilogue(bias, residual):
        return Epilogue(None if bias is None else bias.contiguous(),
                        None if residual is None else mem.dense_residual(residual), activation)

    if is_empty(problem):
        return lambda x, w, bias, residual: x.new_empty(y_shape).movedim(-1, 1)
    if not one_launch(problem, x, size):
        return lambda x, w, bias, residual: run(problem, x, w, epilogue(bias, residual), autotune).movedim(-1, 1)

    y = x.new_empty(y_shape).movedim(-1, 1)
    shape, strides = y.shape, y.stride()
    memory, pitch = mem.weight_memory(w)
    in_place = memory.data_ptr() == w.data_ptr()
    launch = FpropLaunch(problem, x, mem.element_strides(mem.channels_innermost(x)), memory, pitch, y,
                         Epilogue(bias, residual, activation), autotune=autotune)  # yapf: disable

    def convolve(x, w, bias, residual):
        y = x.new_empty_strided(shape, strides)
        if residual is not None and (residual.stride() != strides or residual.data_ptr() % 16):
            residual = mem.dense_residual(residual)
        launch(x, w if in_place else mem.weight_memory(w)[0], y, bias if bias is None else bias.contiguous(), residual)
        return y

    return convolve
