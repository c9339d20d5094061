# make demo    a real agent run, and what the service made of it       make lint    formatting, lint, types
# make test    installs and passes the tests                           make bench   measures against the budgets
# make nightly the same tests, and the random ones at length: an hour or so
# make clean   removes the environment and caches, never data
#
# Each makes .venv with PYTHON and installs what it needs there, again only when pyproject.toml has changed.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# One process a core; the tests of a file stay together, for they share its stores.
WORKERS ?= --numprocesses=auto --dist=loadfile --no-loadscope-reorder
DEMO_ARGS ?=
BENCH_ARGS ?=

bin := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_NO_INPUT := 1

.PHONY: demo test nightly lint bench clean
.DEFAULT_GOAL := demo
.DELETE_ON_ERROR:

demo: $(VENV)/.embedded
	@$(bin)/otel-blackboard demo $(DEMO_ARGS)

test: $(VENV)/.test
	$(bin)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

nightly: $(VENV)/.test
	BLACKBOARD_NIGHTLY=1 $(bin)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.lint
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy

bench: $(VENV)/.test
	$(bin)/python -m bench $(BENCH_ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# One rule for the extras of pyproject.toml, each with its stamp. Types are checked against the server's libraries.
$(VENV)/.embedded: extras := embedded
$(VENV)/.test: extras := test
$(VENV)/.lint: extras := embedded,lint
$(VENV)/.embedded $(VENV)/.test $(VENV)/.lint: pyproject.toml | $(bin)/python
	@echo "Installing otel-blackboard[$(extras)] into $(VENV) …"
	@$(bin)/python -m pip install --quiet --editable '.[$(extras)]'
	@touch $@

$(bin)/python:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "$(PYTHON) is not on this machine. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "otel-blackboard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	    echo "Name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "$(PYTHON) could not make a virtual environment. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
