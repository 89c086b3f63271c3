# Two commands do everything on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow test-versions lint format bench docs docs-serve notebook clean

demo: $(VENV)/.core  ## PSPO on optimal liquidation: a table and the path of an HTML report
	$(BIN)/pspo train liquidation --preset laptop --seed 0

test: $(VENV)/.dev  ## everything that runs in minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/.dev  ## the longer checks
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-versions: $(VENV)/.uv  ## a fast part, in fresh environments: newest versions on each Python here, and the lowest
	$(BIN)/python tests/versions.py $(BIN)/uv $(if $(PYTHONS),--pythons $(PYTHONS))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.core  ## speed, as ratios measured in one process; also benchmarks/results/speed.json
	NPROC=1 $(BIN)/python -m benchmarks.speed

notebook: $(VENV)/.dev  ## run notebooks/liquidation.ipynb again, in place: some minutes of one core
	NPROC=1 $(BIN)/python notebooks/run.py

docs: $(VENV)/.docs  ## the documentation as a site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs  ## the same at http://127.0.0.1:8000, rebuilt at every change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pspo needs Python 3.11 or newer, and $(PYTHON) is older: run make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --constraint constraints.txt --editable ".[dev]"
	touch $@

$(VENV)/.uv: $(VENV)/.made
	$(PIP) "uv>=0.8,<1"
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .ruff_cache .hypothesis
