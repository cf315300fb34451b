"""Time what a call costs besides the kernel: on the host, and the first time.

    python calls.py [--out FILE]

Host times are medians of rounds of 1,000 eager calls of a tiny layer that do not wait for the GPU, ours and cuDNN's in turn.
First calls are timed until the GPU is done, those of all layers in one process that has called a tiny layer before: with
nothing in Triton's cache on disk, then in another process from that cache. A layer whose kernel an earlier one has needed
finds it loaded. What compiling takes differs from time to time, so this is done again with new caches, and medians are given.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import triton_conv
from triton_conv import bench
from triton_conv.timing import environment, without_drift

HERE = pathlib.Path(__file__).parent
TINY = "a tiny layer"
LAYERS = [layer for file in ("layers", "small") for layer in json.loads((HERE / f"{file}.json").read_text())]


def host_times(functions, calls=1000, rounds=9, wait=torch.cuda.synchronize):
    """Time in us of a call of each function (a dict by name), in turn, by ``without_drift``; the first round is not counted."""
    times: dict[str, list] = {name: [] for name in functions}
    for _ in range(rounds + 1):
        for name, function in functions.items():
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    wait()
    return without_drift({name: found[1:] for name, found in times.items()})


def tiny_layer(with_bias):
    """Functions without arguments that compute it, by name."""
    x, w = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
            for shape in ((1, 64, 8, 8), (64, 64, 3, 3)))
    bias = torch.randn(64, device="cuda", dtype=torch.bfloat16) if with_bias else None
    return {
        bench.OURS: lambda: triton_conv.conv2d(x, w, bias, padding=1), bench.CUDNN:
        lambda: torch.nn.functional.conv2d(x, w, bias, padding=1)
    }


def time_first_calls():
    """Seconds of the first call of each layer in this process, by its name, and before it that of the tiny one."""
    found = {}
    for layer in [None] + LAYERS:
        functions = bench.candidates(layer, torch.bfloat16) if layer else tiny_layer(with_bias=False)
        torch.cuda.synchronize()
        start = time.perf_counter()
        functions[bench.OURS]()
        torch.cuda.synchronize()
        found[layer["name"] if layer else TINY] = time.perf_counter() - start
    return found


def in_a_process(cache):
    done = subprocess.run([sys.executable, __file__, "--first"], env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"first calls failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def first_calls(run=in_a_process, rounds=3):
    """Of each layer with an empty cache and with what that leaves, and how many kernels these are."""
    new, from_disk = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            new.append(run(cache))
            kernels = len(list(pathlib.Path(cache).rglob("*.cubin")))
            from_disk.append(run(cache))
    found = []
    for name in new[0]:
        seconds = [times[name] for times in new]
        found.append({
            "name": name, "new_s": statistics.median(seconds), "slowest_new_s": max(seconds), "from_disk_s":
            statistics.median(times[name] for times in from_disk)
        })
    return {"kernels": kernels, "rounds": rounds, "calls": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="result file to write")
    parser.add_argument("--commit", help="what is measured; default: git describe")
    parser.add_argument("--first", action="store_true", help="time first calls in this process, and nothing else")
    options = parser.parse_args()
    with torch.inference_mode():
        if options.first:
            print(json.dumps(time_first_calls()))
            return
        torch.backends.cudnn.benchmark = True
        host = {}
        for with_bias in (False, True):
            kind = "with a bias" if with_bias else "without a bias"
            host[kind] = host_times(tiny_layer(with_bias))
            print(f"host time {kind}, us:", host[kind], flush=True)
    first = first_calls()
    print(first["kernels"], "kernels")
    for call in sorted(first["calls"], key=lambda call: -call["new_s"]):
        print(f"{call['name']:28} first call {call['new_s']:.2f} s, at most {call['slowest_new_s']:.2f} s, from disk "
              f"{call['from_disk_s']:.3f} s")
    if options.out:
        found = {"environment": environment(options.commit), "host_us": host, "first_calls": first}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
