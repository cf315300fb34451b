"""Ask a GPU, past Triton, what the TMA im2col load does, and hold the answers against the reference.

The program that asks is in third_party/nvidia/unittest/TmaIm2Col. ``python im2col_oracle.py --cases 5000`` builds it,
draws random cases, and counts those on which the hardware and the reference agree; ``--record`` also keeps answers,
which machines without a GPU check in test_im2col_oracle.py.
"""

import argparse
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
from im2col_reference import sources

SOURCE = pathlib.Path(__file__).parents[3] / "third_party" / "nvidia" / "unittest" / "TmaIm2Col"
RECORD = pathlib.Path(__file__).parent / "im2col_answers.jsonl"
NO_GPU = 2

TYPES = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "float32": 4}
FLOATS = {"float16": (0x7C00, 0x03FF), "bfloat16": (0x7F80, 0x007F), "float32": (0x7F800000, 0x007FFFFF)}
CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
OFFSETS = {3: 65535, 4: 255, 5: 31}


def build(directory):
    """The program, built in that directory; None where there is no CUDA compiler or no CMake."""
    if not shutil.which("nvcc") or not shutil.which("cmake"):
        return None
    for command in (["cmake", "-S", SOURCE, "-B", directory], ["cmake", "--build", directory]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(directory) / "tma-im2col"


def contents(seed, count):
    """The first bytes of the tensor's memory: the hash of place and seed that the program computes."""
    value = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 40503 % 2**32)
    value ^= value >> np.uint32(15)
    value *= np.uint32(2246822519)
    value ^= value >> np.uint32(13)
    return value.astype(np.uint8)


def swizzled(block, swizzle):
    """The bytes [pixels, bytes of a pixel] of a block as they lie in shared memory, a row of 16-byte chunks after another.

    Within 1024, 512 or 256 bytes, the number of a chunk in its group of 128, 64 or 32 bytes is XORed with that of the
    line of 128 bytes that it is in.
    """
    chunks = block.reshape(-1, 16)
    place = np.arange(len(chunks))
    place ^= (place >> 3) & (max(swizzle // 16, 1) - 1)
    return chunks[place].reshape(-1)


def expected(case):
    """What the reference says: the bytes in shared memory, and which of them are filled."""
    size, (pixels, channels) = TYPES[case["type"]], case["block"]
    shape, strides, start = case["shape"], case["strides"], case["coordinates"]
    first, shift = start[-1], case.get("shift", 0)
    span = sum((extent - 1) * stride for extent, stride in zip(shape, strides)) + 1
    memory = contents(case["seed"], shift + span * size)
    block = np.zeros((pixels, channels * size), np.uint8)
    filled = np.ones(block.shape, bool)
    low, high = max(first, 0), min(first + channels, shape[-1])
    walk = sources(shape, case["lower"], case["upper"], case["element_strides"][1:-1], start[:-1], case["offsets"],
                   pixels)
    for row, source in enumerate(walk):
        if source is not None and low < high:
            begin = shift + (sum(p * stride for p, stride in zip(source, strides)) + low) * size
            there = slice((low - first) * size, (high - first) * size)
            block[row, there] = memory[begin:begin + (high - low) * size]
            filled[row, there] = False
    return swizzled(block, case["swizzle"]), swizzled(filled, case["swizzle"])


def refusal(case):
    """Which limit of the driver's a case is past; None if it is within all of them."""
    size, (pixels, channels) = TYPES[case["type"]], case["block"]
    low, high = CORNERS[len(case["shape"])]
    limits = {
        "corner": all(low <= corner <= high for corner in case["lower"] + case["upper"]),
        "element stride": all(1 <= stride <= 8 for stride in case["element_strides"]),
        "pixels": 1 <= pixels <= 1024,
        "channels": 1 <= channels <= 256 and channels * size % 16 == 0,
        "swizzle": not case["swizzle"] or channels * size <= case["swizzle"],
        "address": case.get("shift", 0) % 16 == 0,
        "stride": all(stride * size % 16 == 0 and stride * size < 2**40 for stride in case["strides"][:-1]),
        "extent": all(1 <= extent <= 2**32 for extent in case["shape"]),
        "NaN": not case["nan"] or case["type"] in FLOATS,
        "box": all(extent + high > low for extent, low, high in zip(case["shape"][1:-1], case["lower"], case["upper"])),
    }
    return next((limit for limit, kept in limits.items() if not kept), None)


def fault(case):
    """Why the instruction stops the kernel; None if it does not."""
    if case["coordinates"][-1] * TYPES[case["type"]] % 16:
        return "innermost coordinate is not a multiple of 16 bytes"
    inside = (low <= start < extent + high for start, extent, low, high in zip(case["coordinates"][1:-1], case["shape"]
                                                                               [1:-1], case["lower"], case["upper"]))
    return None if all(inside) else "base pixel is outside its box"


def sometimes(rng, value, *rare, chance=0.03):
    return rng.choice(rare) if rng.random() < chance else value


def draw(rng, rank=None, type=None, swizzle=None, most_bytes=2**16):
    """A random case; about one of seven is past a limit."""
    rank = rank or rng.choice([3, 4, 5])
    type = type or rng.choice(list(TYPES))
    swizzle = rng.choice([0, 32, 64, 128]) if swizzle is None else swizzle
    size, spatial, (low, high) = TYPES[type], rank - 2, CORNERS[rank]
    channels = (swizzle or 16 * rng.choice([1, 2, 3, 4, 8, 16])) // size
    channels = sometimes(rng, min(channels, 256), channels * 2, channels + 1)
    pixels = min(rng.choice([rng.randint(1, 40), 2**rng.randint(0, 10)]), max(1, most_bytes // (channels * size)))
    shape = [
        rng.randint(1, {3: 40, 4: 8, 5: 4}[rank]), *(sometimes(rng, rng.randint(1, 16), 40, 0) for _ in range(spatial)),
        rng.choice([channels, rng.randint(1, 2 * channels)])
    ]
    pitch = -(-shape[-1] * size // 16) * 16 // size
    strides = [1, sometimes(rng, pitch, pitch + 16 // size, pitch + 1)]
    for extent in shape[-2:0:-1]:
        strides.append(sometimes(rng, strides[-1] * extent, strides[-1] * extent + 32 // size))
    lower = [sometimes(rng, rng.choice([-1, 0, rng.randint(-4, 2)]), low, low - 1) for _ in range(spatial)]
    upper = [sometimes(rng, max(l - e + 1, rng.choice([-2, -1, 0, rng.randint(-4, 3)])), high, high + 1, l - e)
             for l, e in zip(lower, shape[1:-1])]  # yapf: disable
    steps = [sometimes(rng, rng.randint(1, 4), *range(1, 10)) for _ in range(spatial)]
    base = [
        l + s * rng.randint(0,
                            max(0, e - 1 + u - l) // max(s, 1)) for l, s, e, u in zip(lower, steps, shape[1:], upper)
    ]
    dim = rng.randrange(spatial)
    base[dim] = sometimes(rng, base[dim], lower[dim] - 1, shape[1 + dim] + upper[dim], chance=0.004)
    image = sometimes(rng, rng.randrange(shape[0]), -1, shape[0], shape[0] + 1)
    unit = 16 // size  # of the instruction, for the innermost coordinate
    chunks = -(-shape[-1] // unit)
    channel = unit * sometimes(rng, rng.choice([0, 0, rng.randrange(chunks)]), -1, chunks, chunks + 3)
    channel = sometimes(rng, channel, channel + unit // 2, chance=0.004)
    return {
        "type": type, "shape": shape, "strides": strides[::-1], "lower": lower, "upper": upper,
        "element_strides": [1, *steps, 1], "block": [sometimes(rng, pixels, 0, 1025), channels], "swizzle": swizzle,
        "nan": int(rng.random() < (0.3 if type in FLOATS else 0.03)), "coordinates": [image, *base, channel],
        "offsets": [sometimes(rng, rng.choice([0, 1, rng.randint(0, 4)]), OFFSETS[rank]) for _ in range(spatial)],
        "seed": rng.randrange(2**16), "shift": sometimes(rng, 16 * rng.randint(0, 8), 8)
    }  # yapf: disable


def ask(program, cases):
    """The hardware's answers. A launch that fails ends the program: its case gets the error, and the rest a new one."""
    answers: list[dict] = []
    while len(answers) < len(cases):
        lines = "\n".join(json.dumps(case) for case in cases[len(answers):])
        run = subprocess.run([program], input=lines, capture_output=True, text=True)
        answers += [json.loads(line) for line in run.stdout.splitlines()]
        if run.returncode == 3 and sum("error" in answer for answer in answers) < 100:
            answers.append({"encoded": 0, "error": run.stderr.strip()})
        elif run.returncode:
            raise SystemExit(f"{run.stderr.strip()} (exit status {run.returncode})", )
    return answers


def is_nan(values, type):
    exponent, mantissa = FLOATS[type]
    bits = values.view({2: np.uint16, 4: np.uint32}[TYPES[type]])
    return (bits & exponent == exponent) & (bits & mantissa != 0)


def disagreement(case, answer):
    """What is wrong with an answer by the reference; None if they agree."""
    limit = refusal(case)
    if limit or answer["encoded"]:
        return None if limit and answer[
            "encoded"] else f"the {limit} is past its limit; the driver says {answer['encoded']}"
    reason, stopped = fault(case), answer.get("error")
    if reason or stopped:
        right = reason and stopped and "illegal instruction" in stopped
        return None if right else f"the {reason}; the hardware says {stopped}"
    block, filled = expected(case)
    if not answer["arrived"] or answer["bytes"] != block.size or answer["overrun"]:
        return f"{answer['bytes']} bytes of {block.size}, arrived {answer['arrived']}, overrun {answer['overrun']}"
    if "sha256" in answer:
        return None if answer["sha256"] == hashlib.sha256(block).hexdigest() else "the block's hash differs"
    found = np.frombuffer(bytes.fromhex(answer["block"]), np.uint8)
    wrong = (found != block) & ~filled
    if filled.any():
        bad_fill = ~np.repeat(is_nan(found, case["type"]), TYPES[case["type"]]) if case["nan"] else found != 0
        wrong |= bad_fill & filled
    return f"{wrong.sum()} of {wrong.size} bytes differ, the first at {wrong.argmax()}" if wrong.any() else None


def recorded(case, answer):
    """The answer as it is kept: a large block as its hash, unless NaN is filled, whose bits the reference leaves open."""
    answer = dict(answer)
    if len(answer.get("block", "")) > 1024:
        answer["sha256"] = hashlib.sha256(bytes.fromhex(answer.pop("block"))).hexdigest()
    return json.dumps({"case": case, "answer": answer})


def read_record():
    return [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", help="the built program; built in build/TmaIm2Col if not given")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=int, metavar="N",
                        help=f"also keep the answers of N further cases in {RECORD.name}")
    options = parser.parse_args(arguments)
    program = options.program or build(SOURCE.parents[3] / "build" / "TmaIm2Col")
    if program is None:
        print("nvcc and cmake are needed to build the program", file=sys.stderr)
        return NO_GPU
    if subprocess.run([program], stdin=subprocess.DEVNULL).returncode == NO_GPU:
        return NO_GPU
    rng = random.Random(options.seed)
    cases = [draw(rng) for _ in range(options.cases)]
    small = [draw(rng, most_bytes=2**9 if rng.random() < 0.7 else 2**14) for _ in range(options.record or 0)]
    for case in small:
        case["nan"] *= case["block"][0] * case["block"][1] * TYPES[case["type"]] <= 512
    answers = ask(program, cases + small)
    refused = sum(bool(answer["encoded"]) for answer in answers)
    wrong = [(case, answer, what)
             for case, answer in zip(cases + small, answers)
             if (what := disagreement(case, answer))]
    for case, answer, what in wrong[:20]:
        print(f"{what}\n  {json.dumps(case)}\n  {json.dumps(answer)[:400]}")
    print(
        f"{len(answers)} cases, {len(answers) - len(wrong)} agree with the reference; {refused} refused by the driver")
    if options.record:
        kept = map(recorded, small, answers[len(cases):])
        RECORD.write_text("".join(line + "\n" for line in kept))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
