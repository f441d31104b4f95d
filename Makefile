# Needs Python 3.11+ and make; everything else is set up in .venv. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Looks for what keeps people out of a page.
AXE := build/npm/node_modules/axe-core/axe.min.js

# pytest keeps the tests it has rewritten as byte code; without, each of its processes takes seconds to start.
unexport PYTHONDONTWRITEBYTECODE

# Files of tests run beside each other, one process for each core.
PARALLEL := -n auto --dist loadfile

# Tests that need neither sockets nor nets; property tests of few examples.
QUICK := tests/bus/test_*.py tests/clock tests/data tests/fleet tests/network tests/scenario tests/wire \
	$(addprefix tests/test_, $(addsuffix .py, bounded_unpacking config constraints csv_rows durable errors layers \
	numerals params plugins quoting ranges rng shares toml_writer units walk)) --hypothesis-profile quick

.PHONY: help demo quick browser test slow processors lint types check docs bench wheel install clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*##/\1\t/p' Makefile | expand -t 10

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## compare four algorithms on twenty phones
	$(BIN)/fedsim compare scenarios/quickstart.toml --algorithms local,fedavg,fedmd,dsfl --seeds 0,1,2,3,4 --target 0.88 --jobs 2 --report

quick: $(READY)  ## run the tests that need neither sockets nor nets
	$(BIN)/python -m pytest $(PARALLEL) $(QUICK)

browser: $(AXE)  ## get what pages are tested with: Chromium, by apt unless it is there, and axe-core, by npm
	command -v chromium || command -v chromium-browser || command -v google-chrome || (apt-get update && apt-get install -y chromium)

$(AXE):
	command -v npm || (apt-get update && apt-get install -y npm)
	npm install --prefix build/npm --no-audit --no-fund --silent axe-core@4.14.1

test: $(READY)  ## run the tests, but not the slow ones
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile quick --durations 10

slow: $(READY)  ## run what `make test` leaves out: longer runs, runs between processes, more examples
	$(BIN)/python -m pytest $(PARALLEL) -m 'slow or hypothesis' --durations 10

processors: $(READY)  ## check under simulated processors that jobs computed together have the bits of single jobs
	$(BIN)/python tools/check_processors.py --seeds 0-29

lint: $(READY)  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## check types
	$(BIN)/mypy

check: lint types test  ## check style, types and tests

docs: $(READY)  ## build the manual into build/docs
	$(BIN)/sphinx-build -q -E -W --keep-going docs build/docs

bench: $(READY)  ## measure speed and memory against their limits
	$(BIN)/python tools/bench_startup.py --check
	$(BIN)/python tools/bench_loop.py --check
	$(BIN)/python tools/bench_wire.py --check
	$(BIN)/python tools/bench_train.py --check
	$(BIN)/python tools/bench_train.py --memory --check
	$(BIN)/python tools/bench_live.py --check
	$(BIN)/python tools/bench_timeline.py --check
	$(BIN)/python tools/bench_network.py --check
	$(BIN)/python tools/bench_scale.py --check
	$(BIN)/python tools/bench_ray.py --check
	$(BIN)/python tools/bench_http.py --check

wheel: $(READY)  ## build the package into dist
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist

# In a new environment, outside the repository.
install: wheel  ## try the built package as a user would install it
	rm -rf build/try && mkdir -p build/try
	$(PYTHON) -m venv build/try/venv
	PIP_CONSTRAINT=constraints.txt build/try/venv/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/try && venv/bin/fedsim run quickstart --set run.rounds=2 && venv/bin/fedsim new fleet_files && venv/bin/fedsim check fleet_files.toml

clean:  ## remove everything that is made: environment, results, caches
	rm -rf $(VENV) build dist runs .mypy_cache .pytest_cache .ruff_cache .hypothesis
