# Every target sets up what it needs; a second run starts in seconds.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-12)
# The path of the virtual environment's python is all that the recipes rely on.
RUN    := PATH="$(CURDIR)/$(BIN):$$PATH"

.PHONY: help install test test-all dispatch lint bench gpu soak mutants docs site quickstart cluster-up cluster-test cluster-down constraints clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## set up .venv with the CPU builds (about 4 minutes, 3 GB)

$(STAMP): pyproject.toml constraints.txt $(wildcard tools/install*.sh)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" tools/install.sh
	@rm -f $(VENV)/.installed-*
	@touch $@

test: $(STAMP) ## the quick tests, and of the slow ones those that guard the most
	$(RUN) tools/test.sh core

test-all: $(STAMP) ## every test, with a seeded tenth of the long ones
	$(RUN) tools/test.sh all

dispatch: $(STAMP) ## check under nine settings of the processor's dispatch that tests pass and reports are the same (hours)
	$(RUN) python -m tools.dispatch

lint: $(STAMP) ## ruff, mypy --strict, room order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_structure.py

bench: $(STAMP) ## the measured ratios
	$(RUN) python -m tests.benchmarks

# A GPU's builds are in an environment of the user's; .venv has those for CPUs.
gpu: $(if $(VIRTUAL_ENV),,$(STAMP)) ## check this machine's GPUs, in the active environment (else .venv, on the CPU)
	$(if $(VIRTUAL_ENV),,$(RUN)) python -m tests.gpu

soak: $(STAMP) ## the long tests, whole
	RLBHPC_SOAK=1 $(RUN) tools/test.sh all

mutants: $(STAMP) ## put 100 small faults into the code and count those that tests notice (an hour or two)
	$(RUN) python -m tools.mutants

docs: $(STAMP) ## regenerate the generated pages of docs/
	$(RUN) python tools/make_docs.py
	$(RUN) python -m tools.sizing

site: ## build the documentation as a site into build/site, every link checked
	@[ -x build/site-env/bin/mkdocs ] || { "$(PYTHON)" -m venv build/site-env && \
	    build/site-env/bin/pip install --quiet --disable-pip-version-check mkdocs-material; }
	build/site-env/bin/mkdocs build --strict

quickstart: $(STAMP) ## the most that exists, end to end
	$(RUN) tools/quickstart.sh

cluster-up: ## a throw-away Slurm and Apptainer on this host, for the cluster tests (needs root)
	slurm/image.sh
	slurm/up.sh

cluster-test: $(STAMP) ## the tests on a real Slurm and a real Apptainer (about half an hour; after cluster-up)
	$(RUN) python -m pytest -m cluster

cluster-down: ## take it down again
	slurm/down.sh

constraints: ## resolve anew and write constraints.txt
	@PYTHON="$(PYTHON)" tools/make_constraints.sh

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis runs
