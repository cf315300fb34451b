"""Prove the lit tests: each fault, put into the tools' output, must make some test fail.

    python test/mutation_check.py

Every RUN line that ends in FileCheck is run up to it; the output is mutated as a wrong lowering would have made it, and FileCheck must
refuse it. A mutation that changes no test's output, or that all tests still accept, fails the check.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
LOAD = r"cp\.async\.bulk\.tensor\.\dd\.shared::(?:cta|cluster)\.global\.im2col"


def on_loads(change):
    """Apply a change to each line that holds an im2col load."""
    return lambda text: "\n".join(change(line) if re.search(LOAD, line) else line for line in text.split("\n"))


def swap(pattern):
    """Exchange the two groups of a pattern."""
    return lambda line: re.sub(
        pattern, lambda m: m.group(0).replace(m.group(1), "\0").replace(m.group(2), m.group(1)).replace(
            "\0", m.group(2)), line, count=1)


# Operands of the instruction in the LLVM dialect: predicate, address, descriptor, coordinates..., barrier, offsets...
def llvm_operands(line):
    match = re.search(r'(" )(%[\w, %]+)( : \()', line)
    return (match, match.group(2).split(", ")) if match else (None, [])


def permute_llvm(first, second):
    """Exchange two operands, counted from the front, or from the back if negative."""

    def change(line):
        match, operands = llvm_operands(line)
        if match is None or len(operands) < 8:
            return line
        operands[first], operands[second] = operands[second], operands[first]
        return line[:match.start(2)] + ", ".join(operands) + line[match.end(2):]

    return change


MUTATIONS = {
    "another mode":
    on_loads(lambda line: line.replace(".im2col.", ".im2col::w.")),
    "tiled mode":
    on_loads(lambda line: line.replace(".global.im2col", ".global")),
    "another completion mechanism":
    on_loads(lambda line: line.replace("mbarrier::complete_tx::bytes", "bulk_group")),
    "one dimension less":
    on_loads(lambda line: re.sub(r"tensor\.(\d)d", lambda m: f"tensor.{int(m.group(1)) - 1}d", line)),
    "no predicate":
    on_loads(lambda line: line.replace("@$0 ", "").replace("@%p", "//%p")),
    "the message twice":
    on_loads(lambda line: line + "\n" + line),
    "no message":
    on_loads(lambda line: ""),
    "channel and w exchanged, in the LLVM dialect":
    on_loads(permute_llvm(3, 4)),
    "w and the next coordinate exchanged, in the LLVM dialect":
    on_loads(permute_llvm(4, 5)),
    "the offsets exchanged, in the LLVM dialect":
    on_loads(permute_llvm(-1, -2)),
    "barrier and last coordinate exchanged, in the LLVM dialect":
    on_loads(lambda line: permute_llvm(-2, -3)(line) if "3d" in line else permute_llvm(-3, -4)(line)),
    "coordinates exchanged in the string":
    on_loads(lambda line: line.replace("{$3, $4", "{$4, $3")),
    "offsets exchanged in the string":
    on_loads(lambda line: line.replace("{$8, $9}", "{$9, $8}")),
    "channel and w exchanged, in PTX":
    on_loads(swap(r"\{(%r\d+), (%r\d+)")),
    "w and h exchanged, in PTX":
    on_loads(swap(r"\{%r\d+, (%r\d+), (%r\d+)")),
    "the offsets exchanged, in PTX":
    on_loads(swap(r"\{(%rs\d+), (%rs\d+)")),
    "the load's predicate dropped":
    lambda text: re.sub(r"llvm\.and %arg\d+, (%\d+) : i1", r"llvm.and \1, \1 : i1", text),
    "every thread elected":
    lambda text: text.replace("nvvm.elect.sync", "nvvm.chosen"),
    "the second message at the first one's channels":
    lambda text: text.replace("llvm.mlir.constant(6 : i32)", "llvm.mlir.constant(0 : i32)"),
    "the second message over the first":
    lambda text: text.replace("llvm.mlir.constant(12 : i32)", "llvm.mlir.constant(0 : i32)"),
    "the second program at the first one's part":
    lambda text: text.replace("llvm.mlir.constant(5 : i32)", "llvm.mlir.constant(0 : i32)"),
    "a warp too few":
    lambda text: text.replace("llvm.mlir.constant(64 : i32)", "llvm.mlir.constant(32 : i32)"),
    "a ring of one slot":
    lambda text: re.sub(r"llvm\.mul %arg7, %\d+", "llvm.mul %arg7, %arg7", text),
    "another expected count":
    lambda text: text.replace("12288;", "4096;"),
    "no proxy fence":
    lambda text: text.replace("fence.proxy.async", "fence.acq_rel"),
    "offsets printed in another order":
    lambda text: re.sub(r"offsets = \[(%\w+), (%\w+)", r"offsets = [\2, \1", text),
}

# For Tritons whose loads take cache policies and whose multicast has its operands in order.
MODIFIER_MUTATIONS = {
    "the mask before the offsets":
    on_loads(lambda line: line.replace("{$8, $9}, $10", "$10, {$8, $9}")),
    "mask and policy exchanged":
    on_loads(lambda line: permute_llvm(-1, -2)(line) if "multicast::cluster.L2" in line else line),
    "no cache hint":
    on_loads(lambda line: line.replace(".L2::cache_hint", "")),
    "another policy":
    lambda text: text.replace("L2::evict_first.b64 $0, 1", "L2::evict_last.b64 $0, 1"),
    "an attribute lost in printing":
    lambda text: text.replace(" {multicast}", "").replace("evict_first, l2_secondary", "evict_last, l2_secondary"),
}


def commands():
    """(test, command up to FileCheck, FileCheck command) of each RUN line of the tests that lit runs."""
    shown = subprocess.run([sys.executable, "-c", "import lit.main; lit.main.main()", "--show-tests",
                            str(HERE)], capture_output=True, text=True, check=True).stdout
    for path in sorted(HERE / name for name in re.findall(r"TRITON :: (\S+)", shown)):
        for line in re.findall(r"// RUN: (.*)", path.read_text()):
            if "| FileCheck" in line:
                command, _, check = line.replace("%s", str(path)).rpartition("| FileCheck")
                yield path, command, "FileCheck" + check


def main():
    import triton
    environment = dict(os.environ)
    folders = [HERE.parent / "bin", pathlib.Path(triton.__file__).parent, pathlib.Path(sys.executable).parent]
    environment["PATH"] = os.pathsep.join([*map(str, folders), environment["PATH"]])

    def shell(command, text=None):
        return subprocess.run(command, shell=True, capture_output=True, text=True, input=text, env=environment)

    outputs = []
    for path, command, check in commands():
        produced = shell(command)
        if shell(check, produced.stdout).returncode:
            sys.exit(f"{path}: fails before any mutation\n{produced.stderr}")
        outputs.append((path, produced.stdout, check))
    mutations, survivors = dict(MUTATIONS), []
    if any("multicast::cluster" in text for _, text, _ in outputs):
        mutations |= MODIFIER_MUTATIONS
    for name, mutate in mutations.items():
        changed = killed = 0
        for path, text, check in outputs:
            mutated = mutate(text)
            if mutated != text:
                changed += 1
                killed += shell(check, mutated).returncode != 0
        print(f"{name:62} changes {changed} outputs, {killed} tests fail")
        if not killed:
            survivors.append(name)
    print(f"{len(mutations)} mutations, {len(survivors)} not noticed" + "".join(f"\n  {name}" for name in survivors))
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
