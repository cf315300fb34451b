"""The reference against the hardware: live where there is a GPU, and by recorded answers elsewhere."""

import json
import random
import subprocess

import im2col_oracle as oracle
import numpy as np
import pytest


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    built = oracle.build(tmp_path_factory.mktemp("TmaIm2Col"))
    if built is None:
        pytest.skip("there is no nvcc or no cmake")
    return built


def run(program, *arguments, text=""):
    return subprocess.run([program, *arguments], input=text, capture_output=True, text=True)


def test_the_program_explains_itself(program):
    help = run(program, "--help")
    assert help.returncode == 0 and "coordinates" in help.stdout
    result = run(program)
    if result.returncode:
        assert result.returncode == oracle.NO_GPU
        assert "needs an NVIDIA GPU of the Hopper generation" in result.stderr


def test_the_hardware_agrees(program, capsys):
    status = oracle.main(["--program", str(program), "--cases", "5000"])
    if status == oracle.NO_GPU:
        pytest.skip("there is no GPU with im2col mode")
    assert status == 0, capsys.readouterr().out
    case = json.dumps(oracle.draw(random.Random(0)))
    for text, message in [("[]", "expected '{'"), (case.replace('"type"', '"kind"'), "needs the string 'type'"),
                          (case.replace('"block": [', '"block": [1, '), "needs 'block' with 2 numbers")]:
        assert message in run(program, text=text).stderr


def test_recorded_answers_agree():
    record = oracle.read_record()
    if not record:
        pytest.skip(f"{oracle.RECORD.name} has not been recorded yet")
    assert len(record) >= 500
    for line in record:
        what = oracle.disagreement(line["case"], line["answer"])
        assert what is None, (what, line)


def perfect_answer(case):
    if oracle.refusal(case):
        return {"encoded": "CUDA_ERROR_INVALID_VALUE"}
    if oracle.fault(case):
        return {"encoded": 0, "error": "an illegal instruction was encountered"}
    block, filled = oracle.expected(case)
    if case["nan"]:
        block[filled] = 0xFF
    return {"encoded": 0, "arrived": 1, "bytes": block.size, "overrun": 0, "block": block.tobytes().hex()}


def test_cases_are_varied_and_wrong_answers_are_found():
    """Without hardware: what the reference itself would answer passes, also as it is recorded, and no change of it does."""
    rng = random.Random(1)
    cases = [oracle.draw(rng, most_bytes=2**11) for _ in range(1000)]
    refused = [case for case in cases if oracle.refusal(case)]
    assert 100 < len(refused) < 400
    assert len({oracle.refusal(case) for case in refused}) >= 9
    assert len({oracle.fault(case) for case in cases if case not in refused}) == 3
    mixed = 0
    for case in cases:
        answer = perfect_answer(case)
        assert oracle.disagreement(case, answer) is None
        if answer["encoded"]:
            assert oracle.disagreement(case, {**answer, "encoded": 0})
            continue
        assert oracle.disagreement(case, {"encoded": 0, "error": "an illegal address was encountered"})
        if "error" in answer:
            assert oracle.disagreement(case, {**answer, "error": "a timeout"})
            continue
        _, filled = oracle.expected(case)
        mixed += bool(filled.any() and not filled.all())
        if not case["nan"]:
            kept = json.loads(oracle.recorded(case, answer))
            assert oracle.disagreement(kept["case"], kept["answer"]) is None
        wrong = np.frombuffer(bytes.fromhex(answer["block"]), np.uint8).copy()
        wrong[rng.randrange(wrong.size)] ^= 0x7F  # takes a fill of NaN to a number, too
        for change in ({"bytes": answer["bytes"] - 16}, {"arrived": 0}, {"overrun":
                                                                         1}, {"block": wrong.tobytes().hex()}):
            if case["nan"] and "block" in change:
                wrong[:] ^= 0xFF
                change = {"block": wrong.tobytes().hex()}
            assert oracle.disagreement(case, {**answer, **change}), (case, change)
    assert mixed > 150


def test_the_swizzle_is_a_permutation_of_chunks_within_a_group():
    for swizzle, group in [(32, 256), (64, 512), (128, 1024)]:
        names = np.arange(2048 // 16).repeat(16).astype(np.uint8).reshape(-1, swizzle)
        found = oracle.swizzled(names, swizzle).reshape(-1, 16)[:, 0]
        assert sorted(found) == list(range(128))
        assert (found // (group // 16) == np.arange(128) // (group // 16)).all()
        # The same chunk of a group's lines lies in as many columns as the swizzle is wide.
        lines = found.reshape(-1, 8)[:group // 128]
        columns = {int(np.argmax(line == 8 * row)) for row, line in enumerate(lines)}
        assert len(columns) == swizzle // 16
