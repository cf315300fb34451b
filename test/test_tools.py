"""The stand-ins of bin on the command line: options, exit codes, diagnostics."""

import os
import pathlib
import subprocess
import sys

import pytest

BIN = pathlib.Path(__file__).parents[1] / "bin"

MODULE = """
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @twice(%x: i32) -> i32 {
    %a = arith.addi %x, %x : i32
    %b = arith.addi %x, %x : i32
    %c = arith.muli %a, %b : i32
    tt.return %c : i32
  }
}
"""
INVALID = 'tt.func @f(%x: i32) -> i32 {\n  %a = arith.addi %x, %y : i32\n  tt.return %a : i32\n}\n'


def run(tool, *arguments, text=""):
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1"}
    return subprocess.run([sys.executable, str(BIN / tool), *arguments], input=text, capture_output=True, text=True,
                          env=environment)


def test_help_lists_the_passes_with_their_options():
    result = run("triton-opt", "--help")
    assert result.returncode == 0
    assert "\n  --convert-triton-gpu-to-llvm  compute-capability  ptx-version" in result.stdout
    assert "\n  --cse\n" in result.stdout and "\n  --inline\n" in result.stdout


@pytest.mark.parametrize("flags", [["--cse"], ["-cse"], ["-", "-cse"], ["-pass-pipeline=builtin.module(cse)"],
                                   ["--pass-pipeline", "builtin.module( tt.func(cse), canonicalize )"]])
def test_a_pass_runs_on_stdin(flags):
    result = run("triton-opt", *flags, text=MODULE)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("arith.addi") == 1 and "loc(" not in result.stdout


def test_options_in_a_pipeline():
    pipeline = "builtin.module(allocate-shared-memory-nv{compute-capability=90 ptx-version=83},cse)"
    result = run("triton-opt", f"-pass-pipeline={pipeline}", text=MODULE)
    assert result.returncode == 0 and "ttg.shared" in result.stdout and result.stdout.count("arith.addi") == 1


@pytest.mark.parametrize("pipeline, message", [
    ("cse", "--pass-pipeline=cse: expected builtin.module(...)"),
    ("builtin.module(cse", "expected builtin.module(...)"),
    ("builtin.module(cse,nonsense)", "'nonsense' in --pass-pipeline is not a pass of the installed Triton"),
    ("builtin.module(cse{max=3})", "cse takes no option max=3"),
])  # yapf: disable
def test_wrong_pipelines(pipeline, message):
    result = run("triton-opt", "--pass-pipeline", pipeline, text=MODULE)
    assert result.returncode == 1 and message in result.stderr and "Traceback" not in result.stderr


def test_debug_info_and_output_file(tmp_path):
    result = run("triton-opt", "--mlir-print-debuginfo", "-o", str(tmp_path / "out.mlir"), text=MODULE)
    assert result.returncode == 0 and "arith" not in result.stdout
    assert (tmp_path / "out.mlir").read_text().count("loc(") > 3


@pytest.mark.parametrize("flags, message", [
    (["--no-such-pass"], "unknown command line argument '--no-such-pass'"),
    (["--cse=fast=true"], "cse takes no option fast=true; it takes none"),
    (["--tritongpu-pipeline=num-stages=many"], "num-stages=many"),
    (["a.mlir", "b.mlir"], "too many inputs: a.mlir and b.mlir"),
    (["no/such/file.mlir"], "no/such/file.mlir"),
])
def test_wrong_words(flags, message):
    result = run("triton-opt", *flags, text=MODULE)
    assert result.returncode == 1 and message in result.stderr
    assert "Traceback" not in result.stderr


def test_diagnostics_on_stderr():
    result = run("triton-opt", text=INVALID)
    assert result.returncode == 1 and result.stdout.strip() == ""
    assert "<stdin>:2:23: error: use of undeclared SSA value name" in result.stderr


def test_split_input_and_verify_diagnostics():
    good = INVALID.replace("  %a", "  // expected-error @+1 {{use of undeclared}}\n  %a")
    pieces = MODULE + "// -----\n" + good
    assert run("triton-opt", "-split-input-file", "-verify-diagnostics", text=pieces).returncode == 0
    missing = run("triton-opt", "-split-input-file", "-verify-diagnostics", text=MODULE + "// -----\n" + INVALID)
    assert missing.returncode == 1 and "unexpected error: use of undeclared SSA value name" in missing.stderr
    never = run("triton-opt", "-verify-diagnostics", text=MODULE.replace("    %a",
                                                                         "    // expected-error @below {{no}}\n    %a"))
    assert never.returncode == 1 and 'expected error "no" was not produced' in never.stderr
    regular = good.replace("expected-error @+1 {{use of undeclared}}",
                           "expected-error-re @+1 {{use of {{[a-z]+}} SSA}}")
    assert run("triton-opt", "-verify-diagnostics", text=regular).returncode == 0
    assert run("triton-opt", "-verify-diagnostics", text=INVALID).returncode == 1
    assert run("triton-opt", "-verify-diagnostics=only-expected", text=INVALID).returncode == 0
    wrong = run("triton-opt", "-verify-diagnostics=never", text=INVALID)
    assert wrong.returncode == 1 and "=only-expected" in wrong.stderr and "Traceback" not in wrong.stderr


UNREGISTERED = """
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @f(%n: i32) {
    %a = "producer"() {tt.latency = 2 : i32} : () -> tensor<128xf32, #blocked>
    %b = arith.addf %a, %a : tensor<128xf32, #blocked>
    %c = arith.addf %a, %a : tensor<128xf32, #blocked>
    %d:2 = "two.results"(%b, %n) : (tensor<128xf32, #blocked>, i32) -> (i32, tensor<128xf32, #blocked>)
    "use"(%c, %d#0, %d#1) : (tensor<128xf32, #blocked>, i32, tensor<128xf32, #blocked>) -> ()
    tt.return
  }
}
"""


def test_unregistered_operations_pass_through():
    refused = run("triton-opt", "--cse", text=UNREGISTERED)
    assert refused.returncode == 1
    result = run("triton-opt", "--allow-unregistered-dialect", "--cse", text=UNREGISTERED)
    assert result.returncode == 0, result.stderr
    assert '= "producer"() {tt.latency = 2 : i32} : () -> tensor<128xf32, #blocked>' in result.stdout
    assert '"two.results"(%1, %arg0) : (tensor<128xf32, #blocked>, i32) -> (i32, tensor<128xf32, #blocked>)' in result.stdout
    assert '"use"(%1, %2#0, %2#1) :' in result.stdout  # the two sums have become one
    assert "__unregistered" not in result.stdout and "private" not in result.stdout


def test_an_unregistered_operation_with_a_region_is_refused():
    text = 'tt.func @f(%x: i32) {\n  "loop"(%x) ({\n    "end"() : () -> ()\n  }) : (i32) -> ()\n  tt.return\n}\n'
    result = run("triton-opt", "-allow-unregistered-dialect", text=text)
    assert result.returncode == 1
    assert "<stdin>:2:" in result.stderr and "no regions here" in result.stderr
    assert "please use -allow-unregistered-dialect" not in result.stderr
    assert "please use -allow-unregistered-dialect" in run("triton-opt", text=text).stderr


def test_local_scope():
    result = run("triton-opt", "--mlir-print-local-scope", "-allow-unregistered-dialect", text=UNREGISTERED)
    assert result.returncode == 0, result.stderr
    assert "#blocked" not in result.stdout
    assert "tensor<128xf32, #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>>" in result.stdout


def test_from_ttgir_to_ptx():
    lowered = run("triton-opt", "--allocate-shared-memory-nv=compute-capability=90 ptx-version=83",
                  "--convert-triton-gpu-to-llvm=compute-capability=90 ptx-version=83", "--convert-nv-gpu-to-llvm",
                  "--reconcile-unrealized-casts", text=MODULE.replace("-> i32 ",
                                                                      "").replace("tt.return %c : i32", "tt.return"))
    assert lowered.returncode == 0, lowered.stderr
    translated = run("mlir-translate", "--mlir-to-llvmir", text=lowered.stdout)
    assert "define" in translated.stdout and "@twice" in translated.stdout
    optimized = run("opt", "-O3", "-S", text=translated.stdout)
    assert "@twice" in optimized.stdout and " mul " not in optimized.stdout
    ptx = run("llc", "-mtriple=nvptx64-nvidia-cuda", "-mcpu=sm_90a", "-mattr=+ptx83", text=optimized.stdout)
    assert ".visible .entry twice(" in ptx.stdout and ".target sm_90a" in ptx.stdout


@pytest.mark.parametrize("tool, flags, message", [
    ("mlir-translate", [], "say what to translate"),
    ("mlir-translate", ["--mlir-to-cpp"], "unknown command line argument '--mlir-to-cpp'"),
    ("opt", ["-passes=gvn"], "unknown command line argument '-passes=gvn'"),
    ("opt", ["-O3"], "not what this folder's mlir-translate printed"),
    ("llc", ["-mtriple=x86_64"], "for nvptx64-nvidia-cuda only"),
    ("llc", ["--stop-after=isel"], "unknown command line argument"),
])
def test_other_tools_say_what_they_cannot_do(tool, flags, message):
    result = run(tool, *flags, text="define void @f() { ret void }\n")
    assert result.returncode == 1 and message in result.stderr
    assert "Traceback" not in result.stderr


def test_scratch_memory_of_two_kernels():
    # docs/gluon/upstream-findings.md: the pass takes one kernel a module and crashes on two.
    kernel = """
  tt.func public @NAME() {
    %0 = ttg.global_scratch_alloc {alignment = 128 : i32, nbytes = 128 : i32} : !tt.ptr<i8>
    tt.return
  }"""
    head = 'module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {'
    flag = "--tritongpu-global-scratch-memory-allocation"
    one = run("triton-opt", flag, text=head + kernel.replace("NAME", "a") + "\n}\n")
    assert one.returncode == 0 and "ttg.global_scratch_memory_size = 128" in one.stdout, one.stderr
    two = run("triton-opt", flag, text=head + kernel.replace("NAME", "a") + kernel.replace("NAME", "b") + "\n}\n")
    assert two.returncode == 1 and "A signal was caught" in two.stderr
    assert "Traceback" not in two.stderr


@pytest.mark.parametrize("tool, flags", [("triton-opt", []), ("mlir-translate", ["--mlir-to-llvmir"])])
def test_what_does_not_parse_is_reported(tool, flags):
    result = run(tool, *flags, text=INVALID)
    assert result.returncode == 1 and "use of undeclared SSA value name" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("tool, flag", [("triton-opt", "-o"), ("llc", "-o"), ("llc", "-mcpu")])
def test_an_option_without_its_value(tool, flag):
    result = run(tool, flag)
    assert result.returncode == 1 and f"{tool}: '{flag}' needs a value" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_tools_of_a_named_build_are_used(tmp_path):
    """lit takes the tools of TRITON_BUILD_DIR, here wrappers that note their use, and the tests pass on them unchanged."""
    used = tmp_path / "used"
    for tool in ("triton-opt", "mlir-translate", "opt", "llc"):
        wrapper = tmp_path / "bin" / tool
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\necho {tool} >> {used}\nexec {sys.executable} {BIN / tool} "$@"\n')
        wrapper.chmod(0o755)
    environment = {**os.environ, "TRITON_BUILD_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, "-c", "import lit.main; lit.main.main()", "-v", str(BIN.parent / "test" / "Conversion")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout
    assert set(used.read_text().split()) == {"triton-opt", "mlir-translate", "opt", "llc"}
