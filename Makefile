# Two targets do all set-up on a fresh Debian machine with Python 3.11 or later: `make run` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done
TEST_SETUP := $(VENV)/.test-setup-done
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test bench lint types walls unit clean

run: $(SETUP)
	@$(BIN)/herdscope run $(ARGS)

test: lint types walls unit

$(SETUP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes, about 1 GB)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is needed: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) -e .
	@touch $@

$(TEST_SETUP): $(SETUP)
	@$(PIP) -e '.[dev,export,attach]'
	@touch $@

lint: $(TEST_SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST_SETUP)
	$(BIN)/mypy

walls: $(TEST_SETUP)
	$(BIN)/lint-imports

unit: $(TEST_SETUP)
	$(BIN)/python -m pytest $(ARGS)

bench: $(TEST_SETUP)
	$(BIN)/python -m pytest tests/benchmarks -m benchmark -o addopts= -q -s $(ARGS)

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
