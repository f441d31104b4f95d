"""Ten thousand clients over real sockets, hosted by two processes: three rounds, a thousand asked in each.

Runs ``fedsim run --bus http --processes 2`` as a user would, on data sets of ``sizes`` with the ``null``
executor, so that nothing but messages costs time. Every client asked must be merged, and a round must take no
longer than a generous limit. ::

    python tools/crowd_http.py [--check]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

CLIENTS, ASKED, ROUNDS, PROCESSES = 10_000, 1_000, 3, 2
MOST_ROUND_S = 20.0
SCENARIO = f"""
[run]
name = "crowd"
rounds = {ROUNDS}

[data]
name = "sizes"

[models.linear]

[[fleet]]
count = {CLIENTS}
device = "high"

[participation]
clients_per_round = {ASKED}

[engine]
executor = "null"

[evaluation]
every = 0
"""


def measure() -> bool:
    """Run, print the figures, and say whether they are as they must be."""
    with TemporaryDirectory() as folder:
        scenario, out = Path(folder, "crowd.toml"), Path(folder, "out")
        scenario.write_text(SCENARIO)
        command = [sys.executable, "-m", "fedsim", "run", str(scenario), "--out", str(out), "--quiet"]
        command += ["--bus", "http", "--processes", str(PROCESSES)]
        began = perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        whole_s = perf_counter() - began
        if done.returncode:
            print(f"the run ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
            return False
        summary = json.loads((out / "summary.json").read_text())
    merged, round_s = summary["participation"]["merged"], summary["simulated_s"] / ROUNDS
    print(
        f"{CLIENTS:,} clients of {PROCESSES} processes, {ROUNDS} rounds of {ASKED:,}: {merged:,} merged, "
        f"{summary['bytes_up'] / 1e6:.1f} MB up, {summary['bytes_down'] / 1e6:.1f} MB down"
    )
    print(f"  a round {round_s:.2f} s of at most {MOST_ROUND_S:.0f}; the whole command {whole_s:.1f} s")
    return bool(merged == ROUNDS * ASKED and round_s <= MOST_ROUND_S)


def main() -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(description="Run ten thousand clients over sockets.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 where a limit is missed")
    arguments = parser.parse_args()
    return int(not measure() and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
