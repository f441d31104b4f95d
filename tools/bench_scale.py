"""What large fleets cost: time, memory above the interpreter with torch loaded, bytes of an idle client.

1. 1,000,000 clients, 1,000 asked per round, 100 rounds, sample counts only, the null executor, small
   messages over shared links. Limits with ``--check``: 40 s on one core, 300 MB, 64 bytes a client.
2. The same with diurnal availability. Limit: twice that time.
3. A simulated day of 10,000 clients with an availability trace, 100 asked every 5 simulated minutes.
   Limit: 10 s.

Each case runs in a process of its own, since memory is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from world import counted, world

from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.runtime.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import run

CASES = ("million", "diurnal", "day")


def parts_of(case: str, rounds: int) -> Parts:
    """Return the parts of a case."""
    num = 10_000 if case == "day" else 1_000_000
    per_round = 100 if case == "day" else 1_000
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


def measure(case: str, rounds: int) -> dict[str, float]:
    """Run a case in this process."""
    before_mb = resident_mb()
    parts = parts_of(case, rounds)
    began = time.perf_counter()
    result = run(parts)
    return {
        "seconds": time.perf_counter() - began,
        "memory_mb": resident_mb() - before_mb,
        "bytes_per_client": parts.fleet.nbytes / len(parts.fleet) + 8,  # devices, and the data's offsets
        "simulated_s": result.simulated_s,
        "asked": sum(row.asked for row in result.rounds),
        "merged": sum(row.merged for row in result.rounds),
    }


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a limit is missed")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--case", choices=CASES, help="measure one in this process, and print JSON")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.rounds)))
        return 0
    share, figures = arguments.rounds / 100, {}
    for case in CASES:
        rounds = 288 if case == "day" else arguments.rounds
        command = [sys.executable, __file__, "--case", case, "--rounds", str(rounds)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        figures[case] = one = json.loads(text.splitlines()[-1])
        print(
            f"{case}: {one['seconds']:.1f} s, {one['memory_mb']:.0f} MB, {one['bytes_per_client']:.0f} bytes "
            f"a client; {one['asked']} asked, {one['merged']} merged, {one['simulated_s']:.0f} s simulated"
        )
    kept = [
        figures["million"]["seconds"] <= 40 * share,
        figures["million"]["memory_mb"] <= 300,
        figures["million"]["bytes_per_client"] <= 64,
        figures["diurnal"]["seconds"] <= 80 * share,
        figures["day"]["seconds"] <= 10,
    ]
    return int(arguments.check and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
