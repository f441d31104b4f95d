"""What fedsim costs per dispatch when nothing is learned.

100 rounds of 1,000 clients from a fleet of 10,000, sample counts only, the null executor: 100,000 dispatches,
each a frame down, a job, a frame up, a lease, and its records. Limit with ``--check``: 30 s on one core.
"""

from __future__ import annotations

import argparse
import sys
import time

from world import counted, world

from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.runtime.run import run

LIMIT_S = 30.0


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the limit is missed")
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    parts = world(
        counted(10_000, 100, (64,)),
        LINEAR(LINEAR.Config()),
        NULL,
        1,
        rounds=arguments.rounds,
        clients_per_round=1000,
    )
    began, began_cpu = time.perf_counter(), time.process_time()
    result = run(parts)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    dispatches = sum(row.asked for row in result.rounds)
    print(
        f"{dispatches} dispatches, {len(result.ledger)} frames: {wall_s:.1f} s wall, {cpu_s:.1f} s CPU, "
        f"{1e6 * wall_s / dispatches:.0f} us each; {result.simulated_s:.1f} s simulated"
    )
    missed = wall_s > LIMIT_S * dispatches / 100_000
    if missed:
        print(f"above the limit of {LIMIT_S:.0f} s for 100,000")
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
