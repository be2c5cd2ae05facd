# Everything runs in .venv, created on first use with the pinned versions of pyproject.toml, and again when that file
# changes; one that exists already is used as it is. Needs nothing but make and Python 3.10 or later (PYTHON=... chooses one).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# The PyTorch that test-torch installs, in an environment of its own, and torchao (3 MB), whose weight-only layers are
# read: a release that PyTorch 2.13 and 2.14 load.
TORCH ?= 2.13.0
TORCHAO ?= 0.18.0
VENV_TORCH := .venv-torch-$(TORCH)
TESTS ?= tests

.PHONY: demo test test-torch test-browser bench lint docs figures clean
.DELETE_ON_ERROR:

demo: $(VENV)/with-onnx
	$(BIN)/tvm-tiling demo

test: $(VENV)/with-test
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Tests that need PyTorch; make test-torch TORCH=2.6.0 TESTS=tests/frontend for another one and fewer tests.
test-torch: $(VENV_TORCH)/with-torch
	$(VENV_TORCH)/bin/python -m pytest -n 2 --dist worksteal --torch $(TESTS)

test-browser: $(VENV)/with-test $(VENV)/with-docs
	$(BIN)/python -m pytest -n 2 tests/report

bench: $(VENV)/with-bench
	$(BIN)/tvm-tiling bench

lint: $(VENV)/with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Pages into build/docs; a warning is an error, but for the theme's notice about the next major version of MkDocs.
docs: $(VENV)/with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# Redraw the pictures of docs/
figures: $(VENV)/with-base
	$(BIN)/python docs/figures/draw.py

clean:
	rm -rf $(VENV) .venv-torch-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or later is needed, not " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@echo "Setting up $(VENV) ..."
	@if [ -e $(VENV)/created-by-make ]; then rm -rf $(VENV); fi
	@if [ ! -e $(VENV) ]; then $(PYTHON) -m venv $(VENV) && touch $(VENV)/created-by-make; fi
	@touch $@

$(VENV)/with-base: $(VENV)/made
	@echo "Installing the package (one to three minutes on first use) ..."
	@$(PIP) --editable .
	@touch $@

# What the tests need is installed once, and copied.
$(VENV_TORCH)/with-torch: $(VENV)/with-test
	@echo "Installing PyTorch $(TORCH) ..."
	@rm -rf $(VENV_TORCH)
	@$(BIN)/python -m venv --without-pip $(VENV_TORCH)
	@cp -R $(VENV)/lib/. $(VENV_TORCH)/lib/
	@$(VENV_TORCH)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile torch==$(TORCH) \
		torchao==$(TORCHAO) 'expecttest>=0.3,<1'
	@touch $@

# Extras of pyproject.toml: onnx, test, lint, bench, docs.
$(VENV)/with-%: $(VENV)/with-base
	@echo "Installing what '$*' needs ..."
	@$(PIP) --editable '.[$*]'
	@touch $@
