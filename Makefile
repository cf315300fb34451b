# make tutorial   make test     on a fresh machine: set up an environment, then run
# PYTHON=...      use an existing environment instead of setting one up
# TRITON=3.8.0    another Triton than the pinned one, in an environment of its own

.DEFAULT_GOAL := help
PINNED := 3.9.0
TRITON ?= $(PINNED)
PYTHON3 ?= python3
export TRITON_DEFAULT_FP_FUSION ?= 1

ifdef PYTHON
READY :=
else
VENV := .venv$(if $(filter $(PINNED),$(TRITON)),,-$(TRITON))
PYTHON := $(VENV)/bin/python
READY := $(VENV)/ready
endif

TUTORIAL := python/tutorials/gluon/13-conv-im2col.py
REQUIREMENTS := python/requirements.txt python/test-requirements.txt docs/requirements.txt
SIMULATOR := third_party/simulator
LIBRARY := python/triton_conv
CLANG_FORMAT = $(PYTHON) -c "from clang_format import clang_format; clang_format()"
CUDA_SOURCES := $(wildcard third_party/nvidia/unittest/*/*.cu)
SOURCES := python docs $(SIMULATOR) test bin
# Without a GPU the tutorial runs on the simulator, which reports what the kernels did.
RUN := $(shell command -v nvidia-smi >/dev/null 2>&1 || echo -m triton_simulator --counts)

# There, two processes test side by side; on a GPU one does, since tests measure its memory.
PYTEST = $(shell command -v nvidia-smi >/dev/null 2>&1 || echo OMP_NUM_THREADS=1) $(PYTHON) -m pytest \
	$(shell command -v nvidia-smi >/dev/null 2>&1 || echo "--numprocesses 2")

HAS_CMAKE := $(shell command -v cmake >/dev/null 2>&1 && echo yes)

.PHONY: help
help:
	@sed -n '1,/^$$/s/^# //p' Makefile
	@echo "other targets: venv test-lit test-gluon test-tutorial test-simulator test-bench test-conv test-docs lint format figures bench docs clean"

# Triton comes last and alone: torch depends on a Triton of its own, if on any. The simulator is a plugin that Triton finds.
$(VENV)/ready: $(REQUIREMENTS) $(SIMULATOR)/pyproject.toml $(LIBRARY)/pyproject.toml Makefile
	$(PYTHON3) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet $(addprefix -r ,$(REQUIREMENTS))
	$(VENV)/bin/python -m pip install --quiet --no-deps triton==$(TRITON)
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e $(SIMULATOR) -e $(LIBRARY)
	$(VENV)/bin/python -c "import torch, triton; assert triton.__version__ == '$(TRITON)', triton.__version__"
	touch $@

.PHONY: venv
venv: $(READY)

.PHONY: tutorial
tutorial: $(READY)
	$(PYTHON) $(RUN) $(TUTORIAL)

# On a GPU, or where there is none on a simulated sm_90; then, with the pinned Triton, on a simulated sm_100 in any case.
.PHONY: test test-gluon test-tutorial test-bench test-simulator
test: $(if $(filter $(PINNED),$(TRITON)),lint test-docs) test-lit test-simulator test-bench test-gluon test-tutorial test-conv

test-gluon: $(READY)
	$(PYTEST) python/test/gluon
ifeq ($(TRITON),$(PINNED))
	$(PYTEST) python/test/gluon --simulate sm_100
endif

test-tutorial: $(READY)
	$(PYTEST) $(TUTORIAL)
ifeq ($(TRITON),$(PINNED))
	$(PYTEST) $(TUTORIAL) --simulate sm_100
endif

# The library. Its kernels for sm_100, its models, random problems, all epilogues, infinities, and what kernels take of a multiprocessor
# are looked at with one Triton only.
LESS := $(if $(filter $(PINNED),$(TRITON)),,-k "not random and not infinities and not epilogues" $(foreach name,resources models,--ignore $(LIBRARY)/tests/test_$(name).py))

.PHONY: test-conv
test-conv: $(READY)
	$(PYTEST) $(LIBRARY)/tests $(LESS)
ifeq ($(TRITON),$(PINNED))
	$(PYTEST) $(LIBRARY)/tests/test_conv.py --simulate sm_100 -k "not random and not infinities"
endif

test-bench: $(READY)
	$(PYTHON) -m pytest $(LIBRARY)/bench docs/gluon

# The lit tests by CMake's target, as in Triton's build, where there is CMake; then what proves them, and the tools that run them.
.PHONY: test-lit run-lit
test-lit: $(READY)
ifeq ($(TRITON)$(HAS_CMAKE),$(PINNED)yes)
	cmake -S . -B build $(if $(READY),,-DPYTHON=$(PYTHON)) >/dev/null
	cmake --build build --target check-triton-lit-tests
else
	$(MAKE) run-lit
endif
	$(PYTHON) test/mutation_check.py
	$(PYTHON) -m pytest test/test_tools.py

run-lit: $(READY)
	$(PYTHON) -c "import lit.main; lit.main.main()" -v test

test-simulator: $(READY)
	$(PYTEST) $(SIMULATOR)/tests

.PHONY: lint format
lint: $(READY)
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m yapf --diff --recursive --parallel $(SOURCES)
	$(PYTHON) -m mypy
	$(CLANG_FORMAT) --dry-run -Werror $(CUDA_SOURCES)

format: $(READY)
	$(PYTHON) -m ruff check --fix $(SOURCES)
	$(PYTHON) -m yapf --in-place --recursive --parallel $(SOURCES)
	$(CLANG_FORMAT) -i $(CUDA_SOURCES)

# The drawings, and the plot of the newest results.
.PHONY: figures bench
figures: $(READY)
	$(PYTHON) docs/gluon/draw_im2col.py
	$(PYTHON) python/triton_conv/bench/plot.py python/triton_conv/bench/results/tutorial-h200.json docs/gluon/conv-im2col-h200.svg
	$(PYTHON) python/triton_conv/bench/plot.py python/triton_conv/bench/results/library-h200.json docs/gluon/library-h200.svg
	$(PYTHON) python/triton_conv/bench/report.py python/triton_conv/bench/results/tutorial-h200.json README.md
	$(PYTHON) python/triton_conv/bench/report.py python/triton_conv/bench/results/library-h200.json README.md

bench: $(READY)
	$(PYTHON) python/triton_conv/bench/tutorial.py

# The documentation, with the tutorial run for its page; then its links, examples and explorer.
.PHONY: docs test-docs
docs: $(READY)
	$(PYTHON) -m sphinx -W --keep-going -n -q -b html docs build/docs
	@echo build/docs/index.html

test-docs: docs
	$(PYTHON) -m pytest docs/test_site.py

.PHONY: clean
clean:
	rm -rf .venv .venv-* build docs/_generated docs/gluon/tutorials
