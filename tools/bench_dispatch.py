"""What fedsim costs per dispatch when nothing is learned.

100 rounds of 1,000 clients from a fleet of 10,000, from a scenario file: data set ``sizes``, the ``null``
executor, the ``naive`` network. That is 100,000 dispatches, each a frame down, a job, a frame up, a lease,
and its records. Limit with ``--check``: 30 s on one core. What ``fedsim run`` takes for it in all, from the
start of Python to the run folder, is printed beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

LIMIT_S = 30.0
SCENARIO = """
[run]
name = "dispatches"
rounds = {rounds}

[data]
name = "sizes"
params = {{ samples = 100, input_shape = [64] }}

[models.linear]

[algorithm]
name = "fedavg"

[training]
lr = 0.05
batch_size = 10
epochs = 1

[[fleet]]
count = 5000
device = "low"

[[fleet]]
count = 5000
device = "high"

[participation]
clients_per_round = 1000

[network]
model = "naive"

[engine]
executor = "null"

[evaluation]
every = 0
"""


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the limit is missed")
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dispatches.toml"
        file.write_text(SCENARIO.format(rounds=arguments.rounds))
        parts = build(load_scenario(file))
        began, began_cpu = time.perf_counter(), time.process_time()
        result = run(parts)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        dispatches = sum(row.asked for row in result.rounds)
        print(
            f"{dispatches} dispatches, {len(result.ledger)} frames: {wall_s:.1f} s wall, {cpu_s:.1f} s CPU, "
            f"{1e6 * wall_s / dispatches:.0f} us each; {result.simulated_s:.1f} s simulated"
        )
        began = time.perf_counter()
        command = [sys.executable, "-m", "fedsim", "run", str(file), "--out", f"{folder}/run", "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"fedsim run, with its folder: {time.perf_counter() - began:.1f} s wall")
    missed = wall_s > LIMIT_S * dispatches / 100_000
    if missed:
        print(f"above the limit of {LIMIT_S:.0f} s for 100,000")
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
