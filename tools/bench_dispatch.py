"""Real time of a dispatch when nothing is trained: 100 rounds of 1,000 clients from a fleet of 10,000.

A dispatch has a frame down, a job, a frame up, a lease and its records. The time of ``fedsim run``, from the
start of Python to the run folder, is shown beside it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench_harness import Bench, main, without_training

from fedsim import toml
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

MAX_US = 300.0


def measure(bench: Bench) -> None:
    """Time the run alone, and the command."""
    tables = without_training(10_000, bench.options.rounds, 1_000)
    dispatches: int = 1_000 * bench.options.rounds

    def run_us() -> float:
        parts = build(load_scenario(tables))
        started = perf_counter()
        run(parts)
        return 1e6 * (perf_counter() - started) / dispatches

    def command_us() -> float:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.toml"
            file.write_text(toml.document(tables))
            command = [sys.executable, "-m", "fedsim", "run", str(file), "--out", f"{folder}/run", "--quiet"]
            started = perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return 1e6 * (perf_counter() - started) / dispatches

    times = bench.in_turns({"run": run_us, "fedsim run, with its folder": command_us})
    bench.show("run", times["run"], "us each", at_most=MAX_US)
    bench.show("fedsim run, with its folder", times["fedsim run, with its folder"], "us each")


if __name__ == "__main__":
    main(__doc__, measure, repeats=1, rounds={"type": int, "default": 100})
