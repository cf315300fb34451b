"""Time what a call costs besides the kernel: on the host, and the first time.

    python calls.py [--out FILE]

Host times are medians of rounds of 1,000 eager calls of a tiny layer that do not wait for the GPU, ours and cuDNN's in turn.
First calls are timed until the GPU is done, each in a process of its own: with nothing in Triton's cache on disk, then from
that cache; and after it one with an image more, which needs no other kernel if the rule picks the same tile.
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
from triton_conv.timing import environment

HERE = pathlib.Path(__file__).parent
LAYERS = {
    layer["name"]: layer
    for file in ("layers", "small")
    for layer in json.loads((HERE / f"{file}.json").read_text())
}
# Packed, a matrix product, dense, in strips, in 3-D and 1-D, and in parts.
KINDS = [
    "resnet50.stem", "resnet50.c4.1x1.1024-256", "resnet50.c5.3x3.512", "resnext50.g32.128", "wan.vae.192",
    "whisper.conv1", "resnet50.b1.c5.3x3"
]


def host_times(functions, calls=1000, rounds=9, wait=torch.cuda.synchronize):
    """Median time in us of a call of each function (a dict by name), in turn; the first round is not counted."""
    times: dict[str, list] = {name: [] for name in functions}
    for _ in range(rounds + 1):
        for name, function in functions.items():
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    wait()
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def tiny_layer(with_bias):
    """Functions without arguments that compute it, by name."""
    x, w = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
            for shape in ((1, 64, 8, 8), (64, 64, 3, 3)))
    bias = torch.randn(64, device="cuda", dtype=torch.bfloat16) if with_bias else None
    return {
        bench.OURS: lambda: triton_conv.conv2d(x, w, bias, padding=1), bench.CUDNN:
        lambda: torch.nn.functional.conv2d(x, w, bias, padding=1)
    }


def first_call(layer):
    """Seconds of the first call of a layer in this process, and of the one after it."""
    calls = [bench.candidates(layer | {"batch": layer["batch"] + more}, torch.bfloat16)[bench.OURS] for more in (0, 1)]
    times = []
    for call in calls:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times


def in_a_process(name, cache):
    command = [sys.executable, __file__, "--first", name]
    done = subprocess.run(command, env=os.environ | {"TRITON_CACHE_DIR": str(cache)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the first call of {name} failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def first_calls(name, run=in_a_process):
    with tempfile.TemporaryDirectory() as cache:
        new, _ = run(name, cache)
        kernels = len(list(pathlib.Path(cache).rglob("*.cubin")))
        from_disk, after = run(name, cache)
    return {"name": name, "kernels": kernels, "new_s": new, "from_disk_s": from_disk, "another_s": after}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="result file to write")
    parser.add_argument("--commit", help="what is measured; default: git describe")
    parser.add_argument("--first", metavar="NAME",
                        help="time this layer's first call in this process, and nothing else")
    options = parser.parse_args()
    with torch.inference_mode():
        if options.first:
            print(json.dumps(first_call(LAYERS[options.first])))
            return
        torch.backends.cudnn.benchmark = True
        host = {}
        for with_bias in (False, True):
            kind = "with a bias" if with_bias else "without a bias"
            host[kind] = host_times(tiny_layer(with_bias))
            print(f"host time {kind}, us:", host[kind], flush=True)
    first = []
    for name in KINDS:
        first.append(first_calls(name))
        print(first[-1], flush=True)
    if options.out:
        found = {"environment": environment(options.commit), "host_us": host, "first_calls": first}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
