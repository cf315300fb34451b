"""Every kernel that the heuristics can choose, compiled for each architecture: no spills, within shared and tensor memory."""

import dataclasses
import itertools
import re
import subprocess
import tempfile

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from triton_conv import descriptors, heuristics, launch
from triton_conv.geometry import ConvProblem
from triton_conv.kernels.direct import SIZES as DIRECT_SIZES
from triton_conv.kernels.direct import direct_kernel
from triton_conv.kernels.fprop import SIZES, fprop_kernel

TENSOR_MEMORY_COLUMNS = 512
TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}


def resources(arch, kernel, signature, constants, num_warps):
    """Registers of a thread, bytes spilled, bytes of shared memory, columns of tensor memory."""
    compiled = triton.compile(GluonASTSource(kernel, signature, constants), target=GPUTarget("cuda", arch, 32),
                              options={"num_warps": num_warps, "launch_pdl": True})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "-res-usage", cubin.name], check=True, text=True,
                               capture_output=True)
    found = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", usage.stdout + usage.stderr)
    registers, stack, local = map(int, found.groups())
    return registers, stack + local, compiled.metadata.shared, compiled.metadata.tmem_size or 0


def fprop_resources(arch, tile, dtype, rank, has_bias, has_residual, activation, flagged=False):
    """Rank 0 is that of a matrix product."""
    dims = max(rank, 1)
    ones = (1, ) * dims
    problem = ConvProblem(1, 64, 64, (8, ) * dims, (3, ) * dims, ones, ones, ones, ones)
    x = torch.empty(2**17, dtype=dtype)
    strides = [8**(dims - dim) * 64 for dim in range(dims + 1)]
    describe_input = descriptors.input_descriptor if rank else descriptors.rows_descriptor
    x_desc = describe_input(problem, x, strides, tile)
    w_desc = descriptors.weight_descriptor(problem, x, 64, tile)
    y_desc = descriptors.output_descriptor(problem, x, tile)
    types = [desc.__mangle__() for desc in (x_desc, w_desc, y_desc, y_desc)]
    options = dict(HAS_BIAS=has_bias, HAS_RESIDUAL=has_residual, ACTIVATION=activation)
    constants = launch.constants_of(tile, rank, arch == 90, options, flagged)
    pointers = [TYPES[dtype], "*i32", "*fp32" if tile.parts > 1 else "*i32", TYPES[dtype], TYPES[dtype]]
    signature = dict(zip(fprop_kernel.arg_names, [*types, *pointers])) | dict.fromkeys(SIZES, "i32") | dict.fromkeys(
        constants, "constexpr")
    return resources(arch, fprop_kernel, signature, constants, launch.num_warps_of(tile, arch == 90))


# Each tile in each dtype and width of a step, with the epilogue that takes most; each rank and each epilogue with the largest tile.
# In turns, gelu with a residual would not fit the registers and is not chosen.
WIDEST = (True, True, "gelu"), (True, True, "silu")
TILES = [(dtype, heuristics.make_tile(shape, block_bytes // dtype.itemsize, dtype.itemsize), 2, WIDEST[shape.in_turns])
         for dtype, shape, block_bytes in itertools.product(TYPES, heuristics.SHAPES, (32, 64, 128))]
EPILOGUES = list(itertools.product((False, True), (False, True), ("none", "relu", "silu")))
LARGEST = heuristics.make_tile(heuristics.TALL, 64, 2)
TILES += [(torch.bfloat16, LARGEST, rank, (True, True, "gelu")) for rank in (1, 3)]
TILES += [(dtype, dataclasses.replace(heuristics.make_tile(shape, 128 // dtype.itemsize, dtype.itemsize), passing=passing), 0,
           WIDEST[shape.in_turns])
          for dtype, shape, passing in itertools.product(TYPES, (heuristics.SQUARE, heuristics.IN_TURNS), (False, True))]  # yapf: disable
TILES += [(torch.bfloat16, heuristics.make_tile(shape, 64, 2), 2, epilogue)
          for shape, epilogue in itertools.product((heuristics.LARGE, heuristics.BROAD), EPILOGUES)]
TILES += [(torch.bfloat16, LARGEST, 2, epilogue) for epilogue in EPILOGUES]
TILES += [(dtype, heuristics.make_tile(shape, block_bytes // dtype.itemsize, dtype.itemsize, resident), 3, WIDEST[shape.in_turns])
          for dtype, (shape, block_bytes, resident) in itertools.product(
              TYPES, ((heuristics.NARROW, 128, 9), (heuristics.NARROW, 64, 27), (heuristics.IN_TURNS, 128, 2)))]  # yapf: disable

TILES += [(dtype, dataclasses.replace(heuristics.make_tile(shape, 128 // dtype.itemsize, dtype.itemsize), parts=2), 2, (True, True, "gelu"))
          for dtype, shape in itertools.product(TYPES, (heuristics.SMALL, heuristics.MEDIUM, heuristics.SQUARE, heuristics.NARROW))]  # yapf: disable
NARROW_GROUPS = ConvProblem(1, 128, 128, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 32)
TILES += [(dtype, heuristics.choose_strips(NARROW_GROUPS, dtype.itemsize, 132)[1], 2, epilogue)
          for dtype, epilogue in itertools.product(TYPES, ((True, True, "gelu"), (False, False, "none")))]


def strips_of_few_channels(size):
    """Those of each width that fills the registers, and of each number of pixels in a load."""
    for pixel, out_channels, strip in ((128, 64, 4), (64, 64, 4), (64, 32, 8), (32, 16, 8)):
        taps, ones = (3, 3, 3) if pixel == 64 else (3, 3), (1, ) * (3 if pixel == 64 else 2)
        problem = ConvProblem(1, pixel // size, out_channels, (64, ) * len(taps), taps, ones, ones, ones, ones)
        yield heuristics.make_strips(problem, size, strip), len(taps)


TILES += [(dtype, *strips, epilogue)
          for dtype in TYPES for strips in strips_of_few_channels(dtype.itemsize)
          for epilogue in ((True, True, "gelu"), (False, False, "silu"), (False, False, "none"))]  # yapf: disable


def fits_blackwell(tile):
    on_blackwell = {(shape.block_m, shape.block_n) for shape in heuristics.shapes_for(hopper=False)}
    return (tile.block_m, tile.block_n) in on_blackwell and not tile.in_turns and tile.strip == 1


# On Hopper, tiles of more than 128 sums a thread leave few registers for the rest of the epilogue, and without anything to wait
# for between slabs ptxas begins the exponentials of all: some of it is in memory, for a percent of a tile's time. With 128 sums and
# a residual, strips of few channels have a dozen scalars there, of which a line of the filter reads two.
MOST_SPILLED = 768


def may_spill(arch, tile, epilogue):
    has_bias, has_residual, activation = epilogue
    sums = tile.block_m * tile.block_n * (tile.strip if tile.together else 1) // (128 if tile.in_turns else 256)
    unordered = activation in ("silu", "gelu") and not (has_bias or has_residual)
    return arch == 90 and (sums > 128 or (sums == 128 and (unordered or (tile.together and has_residual))))


def cases():
    """A minute of them by default, and the rest, ten minutes of compiling, with ``pytest -m exhaustive``."""
    for arch, (dtype, tile, rank, epilogue) in itertools.product((90, 100, 103), TILES):
        if arch != 90 and not fits_blackwell(tile):
            continue
        # Set by narrow groups, and always by those in strips; not where there are no groups.
        for flagged in (not tile.together, ) if tile.strip > 1 else (
                False, True) if tile.resident and arch != 103 else (False, ):
            sample = (dtype == torch.bfloat16 and tile.block_k == 64 and epilogue == WIDEST[tile.in_turns]
                      and flagged == bool(tile.resident and not tile.together) and tile.passing == (rank == 0)
                      and (arch == 90 if rank in (0, 3) or tile.parts > 1 else arch != 103 and rank == 2))
            yield pytest.param(arch, dtype, tile, rank, epilogue, flagged,
                               marks=[] if sample else [pytest.mark.exhaustive])


@pytest.mark.parametrize("arch, dtype, tile, rank, epilogue, flagged", list(cases()))
def test_fprop(arch, dtype, tile, rank, epilogue, flagged):
    registers, spills, shared, columns = fprop_resources(arch, tile, dtype, rank, *epilogue, flagged)
    print(
        f"sm_{arch} {tile} {dtype} rank {rank} {epilogue}: {registers} registers, {spills} bytes spilled, {shared} bytes of "
        f"shared memory, {columns} columns")
    assert spills <= (MOST_SPILLED if may_spill(arch, tile, epilogue) else 0)
    assert shared <= heuristics.SHARED_BYTES and columns <= TENSOR_MEMORY_COLUMNS
    assert (columns > 0) == (arch >= 100)


def test_tiles_of_the_shapes():
    """A shape's own schedule arrives in its tile, and all fits into shared memory."""
    for size, shape in itertools.product((2, 4), heuristics.SHAPES):
        tile = heuristics.make_tile(shape, 128 // size, size)
        assert (tile.block_m, tile.block_n, tile.in_turns) == (shape.block_m, shape.block_n, shape.in_turns)
        assert shape.for_hopper == (shape not in heuristics.shapes_for(hopper=False))
        writers = 2 if tile.in_turns else 1
        slabs = writers * tile.slabs * tile.line * tile.width * size
        assert tile.block_m == tile.line * tile.lines and tile.stages % tile.lines == 0
        operands = tile.stages // tile.lines * tile.block_k * (tile.block_m + tile.block_n) * size
        assert tile.stages >= 3 * tile.lines and tile.slabs >= 1 and operands + slabs + 1024 <= heuristics.SHARED_BYTES


GROUPS = {"depthwise": (64, 1, 1), "a multiplier": (64, 1, 4), "narrow": (32, 4, 4), "odd": (5, 3, 6), "wide": (2, 24, 24),
          "one": (1, 16, 20)}  # yapf: disable


DIRECT = [
    pytest.param(
        arch, kind, repairs,
        marks=[] if arch == 90 and (repairs == (kind in ("narrow", "depthwise"))) else [pytest.mark.exhaustive])
    for arch, kind, repairs in itertools.product((90, 100, 103), GROUPS, (False, True))
]


@pytest.mark.parametrize("arch, kind, repairs", DIRECT)
def test_direct(arch, kind, repairs):
    groups, channels, out_channels = GROUPS[kind]
    problem = ConvProblem(1, groups * channels, groups * out_channels, (9, ), (3, ), (1, ), (1, ), (1, ), (1, ), groups)
    tile = heuristics.choose_direct(problem)
    constants = dict(BLOCK_M=tile.block_m, BLOCK_G=tile.block_g, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k,
                     VECTOR=tile.vector, WHOLE_K=tile.block_k == channels, WHOLE_N=tile.block_n == out_channels, HAS_BIAS=True, HAS_RESIDUAL=True, ACTIVATION="gelu", REPAIRS=repairs)  # yapf: disable
    pointers = dict.fromkeys(("x", "w", "y", "residual", "bias"), "*bf16") | {"flag": "*i32"}
    signature = pointers | dict.fromkeys(DIRECT_SIZES, "i32") | dict.fromkeys(constants, "constexpr")
    registers, spills, _, _ = resources(arch, direct_kernel, signature, constants, 4)
    print(f"sm_{arch} {kind} {tile}: {registers} registers, {spills} bytes spilled")
    assert spills == 0
