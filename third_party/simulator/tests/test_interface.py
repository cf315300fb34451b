"""How the simulator is found, switched and asked."""

import os
import pathlib
import re
import subprocess
import sys
import time

import kernels
import pytest
import test_faults
import torch
import triton
import triton_simulator as simulator
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton_simulator.translate import Program

HERE = pathlib.Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
SCRIPT = """
import torch, triton
import sys
sys.path.insert(0, {here!r})
import kernels
x = torch.arange(128, dtype=torch.int32)
out = torch.zeros((5, 128), dtype=torch.int32)
kernels.memory_kernel[(1, )](x, out, 100, num_warps=1)
assert out[0, 99] == 99 and out[0, 100] == 7
target = triton.runtime.driver.active.get_current_target()
print("ran on", target.backend, target.arch, sys.argv[1:])
"""


def run_python(*arguments, **environment):
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(here=str(HERE)))
    return str(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is the default where there is one")
def test_it_is_the_default_driver_and_says_so_once(script):
    result = run_python(script)
    assert result.returncode == 0, result.stderr
    assert "ran on cuda 90" in result.stdout
    assert result.stderr.count("triton_simulator: no GPU here, so kernels run on a simulated sm_90") == 1


def test_python_m_runs_a_script(script):
    result = run_python("-m", "triton_simulator", "--arch", "sm_103", "--counts", script, "one", "--two")
    assert result.returncode == 0, result.stderr
    assert "ran on cuda 103 ['one', '--two']" in result.stdout
    assert "programs" in result.stdout and "no GPU" not in result.stderr


def test_activation_ends_with_the_block():
    from triton.runtime import driver
    before = driver._active
    with simulator.activate("sm_100"):
        assert driver.active.get_current_target().arch == 100
        with simulator.activate("sm_90"):
            assert driver.active.get_current_target().arch == 90
        assert driver.active.get_current_target().arch == 100
    assert driver._active is before


@pytest.mark.parametrize("settings, message",
                         [({"arch": "sm_80"}, "arch is 'sm_80'; expected one of sm_90, sm_100, sm_103"),
                          ({"schedules": 0}, "schedules is 0; expected at least 1")])
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        simulator.activate(**settings)


def test_counts():
    tiles, steps = test_faults.TILES, test_faults.STEPS
    m, n, k = test_faults.M, test_faults.N, test_faults.K
    with simulator.activate("sm_90") as run:
        test_faults.hopper("")
        counts, table = run.counts, run.report()
    assert counts["MMA FLOPs"] == 2 * tiles * m * n * k * steps
    assert counts["TMA load bytes"] == 2 * tiles * steps * (m + n) * k
    assert counts["TMA store bytes"] == 2 * tiles * m * n
    assert counts["TMA loads"] == 2 * tiles * steps and counts["TMA stores"] == tiles
    assert counts["barrier waits"] == 2 * tiles * steps + 2 * tiles
    assert 2 * (2 *
                (m + n) * k + 2 * m * n) <= counts["peak bytes of shared memory"] < 2 * (2 *
                                                                                         (m + n) * k + 2 * m * n) + 1024
    assert "MMA FLOPs" in table and f"{counts['MMA FLOPs']:,}" in table


def test_schedules_differ_and_results_do_not():
    with simulator.activate("sm_90", schedules=5):
        test_faults.hopper("")
    with simulator.activate("sm_100", seed=7, schedules=5):
        test_faults.blackwell("")


@gluon.jit
def print_kernel(x, n):
    i = gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0]))
    value = gl.load(x + i)
    gl.device_print("n", n)
    gl.device_assert(value < n, "value too large")


def test_device_print_and_assert(capsys):
    x = torch.arange(32, dtype=torch.int32)
    with simulator.activate("sm_90"):
        print_kernel[(1, )](x, 77, debug=True, num_warps=1)
        assert "n: 77" in capsys.readouterr().out
        with pytest.raises(simulator.AssertionFailed,
                           match=r"test_interface.py:\d+: device_assert failed at \[20\]: value too"):
            print_kernel[(1, )](x, 20, debug=True, num_warps=1)


@triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 64, 128)], key=["n"])
@gluon.jit
def tuned_kernel(x, y, n, BLOCK: gl.constexpr):
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(y + i, gl.load(x + i, i < n), i < n)


def test_autotune_by_simulated_cost():
    x, y = torch.randn(1000), torch.zeros(1000)
    with simulator.activate("sm_90"):
        tuned_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]), )](x, y, 1000)
    assert torch.equal(x, y)
    assert tuned_kernel.best_config.kwargs == {"BLOCK": 128}  # the fewest programs


def test_do_bench_is_refused():
    with simulator.activate("sm_90"):
        with pytest.raises(NotImplementedError, match="the simulator has no clock.*counts"):
            triton.testing.do_bench(lambda: None)


def test_clusters_are_refused():
    x, y = torch.randn(128), torch.zeros(128)
    with simulator.activate("sm_90"):
        with pytest.raises(simulator.NotSimulated, match="clusters"):
            cluster_kernel[(1, )](x, y, num_warps=4, num_ctas=2)


@gluon.jit
def cluster_kernel(x, y):
    i = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[0]]))
    gl.store(y + i, gl.load(x + i))


@gluon.jit
def assembly_kernel(x, y):
    i = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    value = gl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [gl.load(x + i)], dtype=gl.float32, is_pure=True,
                                      pack=1)
    gl.store(y + i, value)


def test_an_unknown_operation_is_named_with_its_line():
    x, y = torch.randn(128), torch.zeros(128)
    with simulator.activate("sm_90"):
        with pytest.raises(simulator.NotSimulated,
                           match=r"test_interface.py:\d+: .* does not know tt.elementwise_inline_asm"):
            assembly_kernel[(1, )](x, y, num_warps=4)


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_step_costs_less_than_a_millisecond_beyond_its_product(one_thread):
    """In time of this process, so that whatever else the machine does is not counted."""
    a, b = torch.randn(128, 64).bfloat16(), torch.randn(128, 64).bfloat16()
    y = torch.zeros(128, 128).bfloat16()
    steps = 200
    a, b = a.repeat(1, steps), b.repeat(1, steps)
    blocks = (a, [128, 64]), (b, [128, 64]), (y, [128, 128])
    arguments = [test_faults.descriptor(tensor, block) for tensor, block in blocks]

    def seconds(count):
        start = time.process_time()
        kernels.pipelined_gemm[(1, 1)](*arguments, count, 3, num_warps=8)
        return time.process_time() - start

    with simulator.activate("sm_90"):
        seconds(2)
        step = (min(seconds(steps) for _ in range(3)) - min(seconds(2) for _ in range(3))) / (steps - 2)
    left, right = torch.randn(128, 64).bfloat16(), torch.randn(128, 64).bfloat16()
    start = time.process_time()
    for _ in range(steps):
        left.float() @ right.float().T
    product = (time.process_time() - start) / steps
    print(f"{step * 1e3:.3f} ms a step, {product * 1e3:.3f} ms of it the product")
    assert step - product < 1e-3


def test_the_example_of_the_documentation():
    example = DOCS / "examples" / "simulator_deadlock.py"
    result = run_python(str(example))
    assert result.returncode == 1
    message = result.stderr[result.stderr.index("triton_simulator.errors.Deadlock"):].split("nanobind:")[0]
    published = (DOCS / "simulator.rst").read_text()
    for line in message.replace(f"{example.parent}/", "").strip().split("\n"):
        assert f"   {line}\n" in published, line


def test_another_copy_of_a_kernel_in_the_cache(tmp_path):
    """Triton's cache does not know files, so it serves one copy's TTGIR to another: messages must name the one that ran."""
    example = DOCS / "examples" / "simulator_deadlock.py"
    for name in ("one/kernel.py", "two/kernel.py", "two/renamed.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(example.read_text())
        message = run_python(str(path), TRITON_CACHE_DIR=str(tmp_path / "cache")).stderr
        message = message[message.index("triton_simulator.errors.Deadlock"):]
        assert f"{path}:24" in message
        assert set(re.findall(r"/\S+\.py", message)) == {str(path)}
    assert len(list((tmp_path / "cache").rglob("*.ttgir"))) == 1


def test_a_copy_whose_path_ends_like_the_whole_path_of_the_first(tmp_path):
    """As a clone at /tmp/src/project of a checkout at /src/project."""
    path = tmp_path / "src" / "project" / "kernel.py"
    path.parent.mkdir(parents=True)
    path.touch()
    with simulator.activate("sm_90"):
        program = kernels.memory_kernel.warmup(torch.empty(128, dtype=torch.int32), torch.empty(640, dtype=torch.int32),
                                               100, num_warps=1, grid=(1, )).asm["ttgir"]
    moved = Program(program.replace(kernels.__file__, "/src/project/kernel.py"), 90, str(path))
    assert {file for file, _ in moved.frames(moved.kernel.location)} == {str(path)}
