# Everything a developer or a CI machine runs. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
# Made anew when what is installed changes; otherwise a second run of any target starts at once.
STAMP := .venv/.installed
# Two processes suit two cores; more only helps on larger machines.
JOBS ?= 2
# In CI a skipped test hides a missing piece of the machine, so there it counts as a failure.
STRICT := $(if $(CI),-p tests.no_skips)
PYTEST := $(PY) -m pytest -n $(JOBS)

.PHONY: help setup demo test test-all check bench bench-decision soak chaos clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install everything; PostgreSQL through apt where it may
	@bash scripts/system-packages.sh

$(STAMP): pyproject.toml constraints/dev.txt scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

demo: $(STAMP) ## the main job with real workers, under 3 minutes; KEEP=1 leaves it running
	@$(PY) -m controlplane.cli.main demo $(if $(KEEP),--keep)

test: setup check ## check, then every test that is not slow
	$(PYTEST) $(STRICT) -m "not slow"

test-all: setup check ## every test, the slow ones too; a skip is a failure
	$(PYTEST) -p tests.no_skips

check: $(STAMP) ## lint, format, types and import contracts
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

bench: $(STAMP) ## measure what docs/benchmarks.md reports; writes .cache/bench.json
	$(PY) -m tests.bench.main

bench-decision: $(STAMP) ## rollback and promotion on thousands of streams, peers beside; minutes
	$(PY) -m tests.bench.decision.main --jobs $(JOBS)

soak: $(STAMP) ## the demo's workers under viewers for SOAK_SECONDS=600: rates and memory
	$(PY) -m tests.bench.soak --seconds $(or $(SOAK_SECONDS),600)

chaos: $(STAMP) ## kill a worker and the control plane during real canaries; SEED=1
	$(PY) -m tests.bench.chaos --seed $(or $(SEED),1)

clean: ## remove what the targets made: .venv, caches, build output
	rm -rf .venv .cache dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
