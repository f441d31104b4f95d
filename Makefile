# `make demo` and `make test` need Python 3.11+ and make, and set up everything else in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test slow lint types check bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## run the main job and print its table
	$(BIN)/fedsim compare scenarios/quickstart.toml --algorithms local,fedavg,fedprox,fedmd --force

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest

slow: $(READY)  ## run the tests that `make test` leaves out: whole runs between processes
	$(BIN)/python -m pytest -m slow

lint: $(READY)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## check types
	$(BIN)/mypy

check: lint types test  ## all of it, as CI does

bench: $(READY)  ## measure speed and memory against their limits
	$(BIN)/python tools/bench_loop.py --check
	$(BIN)/python tools/bench_wire.py --check
	$(BIN)/python tools/bench_train.py --check
	$(BIN)/python tools/bench_dispatch.py --check
	$(BIN)/python tools/bench_network.py --check
	$(BIN)/python tools/bench_scale.py --check
	$(BIN)/python tools/bench_http.py --check
	$(BIN)/python tools/flood_http.py --check
	$(BIN)/python tools/crowd_http.py --check

clean:
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache .hypothesis
