"""Timing of alternatives side by side: each in a CUDA graph of its own, the graphs replayed in rounds."""

import datetime
import math
import random
import statistics
import subprocess
import sys

import torch
import triton


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def capture(function, calls):
    """A CUDA graph of ``calls`` calls of ``function``, which has run before it is captured."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    return graph


def orders(names, rounds):
    """Of each round, at random: a kernel finds the power and the clocks that the one before it has left."""
    generator = random.Random(0)
    return [generator.sample(list(names), len(names)) for _ in range(rounds)]


def without_drift(rounds):
    """The time of each name, from those that it took in each round, where a drift is that of all in a round.

    What a round's geometric mean is above that of the median round is taken out of its times. When clocks fall in the middle of a
    measurement, the medians of two names may otherwise be of rounds before and after.
    """
    means = [geomean(times) for times in zip(*rounds.values())]
    return {
        name: statistics.median(time / mean
                                for time, mean in zip(times, means)) * statistics.median(means)
        for name, times in rounds.items()
    }


def side_by_side(functions, rounds=15, graph_ms=1.0):
    """Time in ms of one call of each of ``functions`` (a dict by name), by ``without_drift``.

    A graph holds as many calls as take about ``graph_ms``. Each round replays all graphs one after the other, so that
    all see the same clocks and temperature, and the GPU is not idle in between. The first two rounds are not counted.
    """
    graphs = {}
    for name, function in functions.items():
        graph = capture(function, 1)
        replay = _replay(graph)
        torch.cuda.synchronize()
        calls = max(1, min(100, round(graph_ms / _elapsed(replay))))
        graphs[name] = capture(function, calls), calls
    replays: dict[str, list] = {name: [] for name in graphs}
    for names in orders(graphs, rounds + 2):
        for name in names:
            replays[name].append(_replay(graphs[name][0]))
    torch.cuda.synchronize()
    return without_drift(
        {name: [_elapsed(replay) / calls
                for replay in replays[name][2:]]
         for name, (_, calls) in graphs.items()})


def side_by_side_cold(functions, rounds=25):
    """As ``side_by_side``, for single calls that find nothing of theirs in L2."""
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    graphs = {name: capture(function, 1) for name, function in functions.items()}
    replays: dict[str, list] = {name: [] for name in graphs}
    for names in orders(graphs, rounds + 2):
        for name in names:
            flush.zero_()
            replays[name].append(_replay(graphs[name]))
    torch.cuda.synchronize()
    return without_drift({name: [*map(_elapsed, found[2:])] for name, found in replays.items()})


def _replay(graph):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    return start, end


def _elapsed(events):
    return events[0].elapsed_time(events[1])


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def environment(commit=None):
    """What a result file says of its origin. Call it right after a measurement, while the clocks are still up."""
    fields = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
    smi = dict(
        zip(fields.split(","),
            _output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").split(", ")))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit or _output("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "gpu": torch.cuda.get_device_name(),
        **smi,
        "triton": triton.__version__,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "python": sys.version.split()[0],
    }
