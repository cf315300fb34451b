"""Tiles by measurement, for those who ask: each shape is timed once for a problem, and the fastest kept on disk."""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile

import torch
import triton

from . import ahead, heuristics, timing
from . import memory as mem


def file_of(device):
    """Where the choices for a device are kept, with Triton's own cache."""
    name = torch.cuda.get_device_name(device).replace(" ", "-")
    return pathlib.Path(triton.knobs.cache.dir) / "triton_conv" / f"{name}-{triton.__version__}.json"


def key_of(problem, dtype, options, flagged, may_strip):
    return json.dumps([dataclasses.astuple(problem), str(dtype), *options.values(), flagged, may_strip])


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path, key, tile):
    """Add a choice to the file, which other processes may be writing as well: each writes a whole file and renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    choices = read(path) | {key: dataclasses.asdict(tile)}
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(choices, file)
    os.replace(file.name, path)


def candidates(problem, size, shapes, multiprocessors, may_split=True, may_strip=True):
    """Each shape, with weights that stay where they can, with tiles drawn where steps are few enough for memory to be the
    limit, and with tiles in parts where programs would have none; and strips of pixels."""
    block_k, tiles = heuristics.block_of_channels(problem, size), []
    for shape in shapes:
        tile = heuristics.make_streamed(shape, problem, block_k, size)
        tiles.append(tile)
        if heuristics.num_steps(problem, block_k) <= 4 * heuristics.SHORT:
            tiles.append(dataclasses.replace(tile, drawn=True))
        tiles.append(heuristics.make_resident(shape, problem, block_k, size, multiprocessors))
        possible = heuristics.possible_parts(problem, shape, block_k, multiprocessors)
        tiles += [dataclasses.replace(tile, parts=parts) for parts in possible if may_split and parts > 1]
    if may_strip:
        tiles += heuristics.possible_strips(problem, size, multiprocessors)
    return [tile for tile in tiles if tile]


def best_tile(problem, dtype, device, shapes, multiprocessors, options, flagged, may_strip, launch_with):
    """The fastest tile for a problem; ``launch_with(tile)`` gives a function that launches it. With ``flagged``, none in parts."""
    if device.type != "cuda":
        raise NotImplementedError(
            f"autotune is True, which measures times; the active driver runs on {device}, without a clock")
    path, key = file_of(device), key_of(problem, dtype, options, flagged, may_strip)
    known = read(path).get(key)
    if known and known.keys() == {field.name
                                  for field in dataclasses.fields(heuristics.Tile)}:  # not of another version
        return heuristics.Tile(**known)
    if mem.is_capturing(device):
        raise RuntimeError("autotune is True, which measures times; this call is the first for its problem, and a CUDA graph captures "
                           "it: call once before the capture")  # yapf: disable
    tiles = candidates(problem, dtype.itemsize, shapes, multiprocessors, not flagged, may_strip)
    launches = {tile: launch_with(tile) for tile in tiles}
    print(f"triton_conv: timing {len(tiles)} tiles for {problem}", file=sys.stderr)
    with ahead.compile_ahead():
        for launch in launches.values():
            launch()
    with ahead.launching():
        times = timing.side_by_side(launches, rounds=7)
    for tile, ms in sorted(times.items(), key=lambda item: item[1]):
        print(f"  {heuristics.name_of(tile)}: {ms:.4f} ms", file=sys.stderr)
    tile = min(times, key=times.__getitem__)
    keep(path, key, tile)
    return tile
