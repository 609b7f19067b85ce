# Two commands: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Continuous integration pins every package: CONSTRAINTS=.ci/requirements.lock
CONSTRAINTS ?=
PIP_FLAGS := --quiet --disable-pip-version-check $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
DEMO_MODEL := tests/models/mobilenetv1_vww_int8.onnx
DEMO_TARGET := mcu-16

.PHONY: demo test test-fast test-long lint clean

demo: $(VENV)/installed
	$(BIN)/tilewright compile $(DEMO_MODEL) --target $(DEMO_TARGET) -o build/demo --verify
	$(BIN)/tilewright run build/demo --random 0

test: lint test-fast

test-fast: $(VENV)/tested
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not long" tests

test-long: $(VENV)/tested
	$(BIN)/pytest -q -n 2 --dist loadfile -m long tests

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Tilewright needs Python 3.10 or newer; set PYTHON=/path/to/python3.10" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "python3 cannot make environments; install its venv module (Debian: python3-venv)" >&2; \
	    rm -rf $(VENV); exit 1; }

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install $(PIP_FLAGS) --editable .
	@touch $@

$(VENV)/tested: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install $(PIP_FLAGS) --editable '.[dev]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
