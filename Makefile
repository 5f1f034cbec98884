# Two commands for everyone: `make demo` and `make test`. Both work on a fresh clone with python3 and pip.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint bench clean
.DEFAULT_GOAL := test

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plots,test]"
	@touch $@

demo: $(INSTALLED)  ## moons, circles and digits against the usual alternatives, with a report in runs/demo
	$(RUN)/samekind demo --out runs/demo

lint: $(INSTALLED)  ## style and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

test: lint  ## everything that must hold
	$(RUN)/python -m pytest -n auto

bench: $(INSTALLED)  ## the measurements behind docs/results.md; takes hours on 2 cores
	$(RUN)/python benchmarks/toys.py --draws 10
	$(RUN)/python benchmarks/digits.py --splits 10
	$(RUN)/python benchmarks/defaults.py
	$(RUN)/python benchmarks/similarity.py
	$(RUN)/python benchmarks/similarity_figures.py

clean:  ## what can be made again
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
