"""What large fleets cost: time, memory above the interpreter with torch loaded, bytes of an idle client.

1. 1,000,000 clients, 1,000 asked per round, 100 rounds, sample counts only, the null executor, small
   messages over shared links. Limits with ``--check``: 40 s on one core, 300 MB at the peak.
2. The same with diurnal availability. Limit: twice the time that the first has taken.
3. A simulated day of 10,000 clients with an availability trace, 100 asked every 5 simulated minutes.
   Limit: 10 s.
4. An idle client, in a run under way, with and without availability: by how many bytes all that Python and
   NumPy hold grows from half a million clients to a million, after a round of ten. Limit: 50.

Each case runs in a process of its own, since memory is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_fixture import counted, world

from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run

CASES = ("million", "diurnal", "day")
IDLE = ("million", "diurnal")


def parts_of(case: str, rounds: int, num: int, per_round: int) -> Parts:
    """Return the parts of a case with so many clients."""
    data = counted(num, 100, (16,))
    parts = world(
        data,
        LINEAR(LINEAR.Config()),
        NULL,
        1,
        rounds=rounds,
        clients_per_round=per_round,
        network=FLUID(FLUID.Config()),
    )
    if case == "million":
        return parts
    if case == "day":
        pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"interval": "5 min"}))
        parts = replace(parts, pacing=pacing, client_timeout_s=240.0)
        availability = made("trace", file=str(trace_file()), step="30 min")
    else:
        availability = made("diurnal")
    groups = [GroupConfig(count=num // 2, device=device) for device in ("low", "high")]
    fleet = build_fleet(
        groups, ServerConfig(), Key.root(0), default_model="model", availability=[availability] * 2
    )
    return replace(parts, fleet=fleet)


def made(name: str, **params: Any) -> Any:
    """Return an availability model."""
    plugin = load("fedsim.fleet.availability", name)
    return plugin(plugin.Config.model_validate(params))


def trace_file() -> Path:
    """Write a grid of 500 devices and 48 half hours, each there a third of the time; return its path."""
    states = Key.root(0).child("trace").numpy().random((500, 48)) < 1 / 3
    path = Path(tempfile.mkdtemp()) / "grid.csv"
    path.write_text("".join(",".join(str(int(state)) for state in row) + "\n" for row in states))
    return path


def resident_mb() -> float:
    """Return this process's memory, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def peak_mb() -> float:
    """Return the most memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def held_bytes(case: str, num: int) -> int:
    """Return what is held in the middle of a run of so many clients, of whom ten have been asked."""
    held = []

    def watch(row: RoundRow) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        run(parts_of(case, 1, num, 10), watch=watch)
    finally:
        tracemalloc.stop()
    return held[0]


def idle_bytes(case: str) -> float:
    """Return what one more idle client costs."""
    _, few, many = (held_bytes(case, num) for num in (10_000, 500_000, 1_000_000))  # the first imports
    return (many - few) / 500_000


def measure(case: str, rounds: int) -> dict[str, float]:
    """Run a case in this process."""
    before_mb = resident_mb()
    parts = parts_of(case, rounds, *((10_000, 100) if case == "day" else (1_000_000, 1_000)))
    began = time.perf_counter()
    result = run(parts)
    return {
        "seconds": time.perf_counter() - began,
        "memory_mb": peak_mb() - before_mb,
        "simulated_s": result.simulated_s,
        "asked": sum(row.asked for row in result.rounds),
        "merged": sum(row.merged for row in result.rounds),
    }


def in_a_process(*arguments: str) -> Any:
    """Return what this program prints in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(text.splitlines()[-1])


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a limit is missed")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--case", choices=CASES, help="measure one in this process, and print JSON")
    parser.add_argument("--idle", action="store_true", help="of --case, the bytes of an idle client")
    arguments = parser.parse_args()
    if arguments.case and arguments.idle:
        print(json.dumps(idle_bytes(arguments.case)))
        return 0
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.rounds)))
        return 0
    share, figures = arguments.rounds / 100, {}
    for case in CASES:
        rounds = 288 if case == "day" else arguments.rounds
        figures[case] = one = in_a_process("--case", case, "--rounds", str(rounds))
        print(
            f"{case}: {one['seconds']:.1f} s, {one['memory_mb']:.0f} MB at the peak; "
            f"{one['asked']} asked, {one['merged']} merged, {one['simulated_s']:.0f} s simulated"
        )
    idle = {case: in_a_process("--case", case, "--idle") for case in IDLE}
    print("; ".join(f"an idle client of {case}: {num_bytes:.1f} bytes" for case, num_bytes in idle.items()))
    kept = [
        figures["million"]["seconds"] <= 40 * share,
        figures["million"]["memory_mb"] <= 300,
        figures["diurnal"]["seconds"] <= 2 * figures["million"]["seconds"],
        figures["day"]["seconds"] <= 10,
        max(idle.values()) <= 50,
    ]
    return int(arguments.check and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
