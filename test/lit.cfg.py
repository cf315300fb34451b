# -*- Python -*-
"""Configuration of lit, in the form of Triton's own: with a Triton build's tools where one is named, else the stand-ins in bin."""

import os
import sys

import lit.formats
import triton

config.name = "TRITON"  # noqa: F821
config.test_format = lit.formats.ShTest(False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
# Triton 3.8 has no cache policies, and puts the mask of a multicast before the im2col offsets, which PTX does not allow.
if triton.__version__.startswith("3.8."):
    config.excludes = ["tma_im2col_cache_policy.mlir", "tma_im2col_modifiers_to_llvm.mlir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.test_exec_root = os.path.join(  # noqa: F821
    getattr(config, "triton_obj_root", os.path.join(os.path.dirname(__file__), "..", "build")), "test")  # noqa: F821

# A system LLVM's opt or llc must never be taken for Triton's: only these folders are searched first.
build = os.environ.get("TRITON_BUILD_DIR") or lit_config.params.get("triton_build_dir")  # noqa: F821
root = os.path.dirname(config.test_source_root)  # noqa: F821
if build:
    tools = [os.path.join(build, "bin"), os.path.join(build, "third_party", "bin")]
    tools += [
        folder for folder in [os.environ.get("LLVM_BUILD_DIR") and os.path.join(os.environ["LLVM_BUILD_DIR"], "bin")]
        if folder
    ]
else:
    tools = [os.path.join(root, "bin")]
tools.append(os.path.dirname(triton.__file__))  # FileCheck
python = os.path.dirname(sys.executable)
config.environment["PATH"] = os.pathsep.join([*tools, python, os.environ["PATH"]])  # noqa: F821
for name in ("LD_LIBRARY_PATH", "TRITON_DEFAULT_FP_FUSION", "HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]  # noqa: F821
