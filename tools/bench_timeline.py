"""What a timeline costs: how long a trace of a million events takes to read, and how long to draw.

The run is of 20 clients, so every event is drawn. Limit with ``--check``: drawing takes at most 10 times as
long as reading the trace. To find the first event at which two runs part, here the last one, is timed beside
it. Times are of the processor.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsim.clock import read_trace
from fedsim.clock.event_trace import stored_hash
from fedsim.report.record_run import record
from fedsim.report.run_difference import run_difference
from fedsim.scenario import Plan, load_scenario
from fedsim.timeline.run_timeline import save_timeline

LIMIT = 10.0
SCENARIO = """
[run]
name = "timeline"
rounds = {rounds}

[data]
name = "sizes"
params = {{ samples = 100, input_shape = [64] }}

[models.linear]

[[fleet]]
count = {clients}
device = "low"

[network]
model = "naive"

[engine]
executor = "null"

[evaluation]
every = 0
"""


def seconds(work: Callable[[], Any]) -> float:
    """Return how long something takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def read(folder: Path) -> int:
    """Read a trace as anybody would; return the number of its records."""
    with (folder / "trace.msgpack").open("rb") as file:
        return sum(1 for _ in read_trace(file))


def change_last_event(folder: Path) -> None:
    """Let the last value of a trace be another, as if the run had gone so."""
    trace = folder / "trace.msgpack"
    content = bytearray(trace.read_bytes())
    content[-1] ^= 1
    trace.write_bytes(content)
    with trace.open("rb") as file:
        told = json.loads((folder / "summary.json").read_text()) | {"trace_hash": stored_hash(file)}
    (folder / "summary.json").write_text(json.dumps(told))


def main() -> None:
    """Do a run, and time what is made of its trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="records of the trace, about")
    parser.add_argument("--clients", type=int, default=20, help="of the fleet")
    parser.add_argument("--check", action="store_true", help="fail where drawing takes too long")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        rounds = max(1, options.events // (7 * options.clients))
        (place / "run.toml").write_text(SCENARIO.format(rounds=rounds, clients=options.clients))
        scenario = load_scenario(place / "run.toml")
        folder = record(Plan.of(scenario, "run.toml"), place / "run").folder
        file = place / "run.pftrace"
        other = place / "other"
        shutil.copytree(folder, other)
        change_last_event(other)
        num_events = read(folder)
        reading_s = seconds(lambda: read(folder))
        drawing_s = seconds(lambda: save_timeline(folder, file))
        print(f"{num_events:,} events of {options.clients} clients")
        print(f"reading the trace  {reading_s:6.2f} s")
        print(f"timeline           {drawing_s:6.2f} s  {drawing_s / reading_s:.1f} times as long")
        print(f"                   {file.stat().st_size / 1e6:6.1f} MB")
        print(f"difference         {seconds(lambda: run_difference(folder, other)):6.2f} s")
    if options.check and drawing_s > LIMIT * reading_s:
        raise SystemExit(f"a timeline takes more than {LIMIT:g} times as long as reading the trace")


if __name__ == "__main__":
    main()
