"""Energy is the integral of power over the phases, and no run depends on it."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fedsim.fleet import Fleet
from fedsim.fleet.power import POWERS
from fedsim.fuzz.run_folder import RunFolder
from fedsim.report.energy import PARTS, powered_ns
from fedsim.report.record_run import Recorded, record
from fedsim.runtime.records.dispatch_phases import AWAY, COMPUTE, DOWNLOAD, UPLOAD, WAITING
from fedsim.scenario import Plan, load_scenario

Span = tuple[int, int, int, int]
"""Row of the dispatch, phase, begin and end."""


def powered(
    spans: Sequence[Span],
    client: Sequence[int],
    tail: int = 0,
    end: int = 100,
    gone: Mapping[int, int] | None = None,
) -> dict[str, Any]:
    """Return the result as lists."""
    columns = np.array([(*span, 1) for span in spans], np.int64).reshape(-1, 5)
    tails = np.full(len(client), tail, np.int64)
    gone_ns = np.array([(gone or {}).get(row, end) for row in range(len(client))], np.int64)
    found = powered_ns(columns, np.array(client, np.int64), tails, gone_ns, end)
    return {part: ns.tolist() for part, ns in found.items()}


def test_one_dispatch() -> None:
    spans = [(0, DOWNLOAD, 0, 10), (0, COMPUTE, 10, 40), (0, WAITING, 40, 45), (0, UPLOAD, 45, 60)]
    assert powered(spans, [7], tail=20) == {
        "compute": [30],
        "receive": [10],
        "transmit": [15],
        "tail": [20 + 20],  # after the download, until the upload would begin, and after the upload
        "idle": [5],
    }


def test_a_tail_ends_with_the_next_transfer_and_with_the_run() -> None:
    spans = [(0, DOWNLOAD, 0, 10), (0, COMPUTE, 10, 14), (0, UPLOAD, 14, 20), (1, DOWNLOAD, 90, 95)]
    assert powered(spans, [3, 3], tail=1000)["tail"] == [4 + 70, 5]


def test_the_tail_of_overlapping_transfers_is_that_of_the_last_to_end() -> None:
    spans = [(0, UPLOAD, 0, 30), (1, DOWNLOAD, 10, 20), (2, DOWNLOAD, 25, 50)]
    found = powered(spans, [3, 3, 3], tail=7)
    assert found["transmit"] == [30, 0, 0]
    assert found["receive"] == [0, 0, 20]  # what the one before does not cover
    assert found["tail"] == [0, 0, 7]


def test_clients_have_radios_of_their_own() -> None:
    spans = [(0, UPLOAD, 0, 30), (1, UPLOAD, 10, 20)]
    assert powered(spans, [3, 4], tail=7) | {"idle": 0} == {
        "compute": [0, 0],
        "receive": [0, 0],
        "transmit": [30, 10],
        "tail": [7, 7],
        "idle": 0,
    }


def test_waiting_for_other_work_of_the_client_is_not_idle() -> None:
    spans = [(0, COMPUTE, 0, 30), (1, WAITING, 10, 40), (1, COMPUTE, 40, 50), (2, WAITING, 35, 60)]
    assert powered(spans, [3, 3, 3])["idle"] == [0, 10, 10]
    assert powered(spans, [3, 4, 5])["idle"] == [0, 30, 25]


def test_being_away_costs_nothing() -> None:
    spans = [(0, DOWNLOAD, 0, 10), (0, AWAY, 10, 50), (0, DOWNLOAD, 50, 60)]
    assert powered(spans, [3], tail=5) == {
        "compute": [0],
        "receive": [20],
        "transmit": [0],
        "tail": [5 + 5],
        "idle": [0],
    }


def test_a_client_that_is_gone_draws_nothing() -> None:
    spans = [(0, DOWNLOAD, 0, 10), (0, WAITING, 10, 50), (1, DOWNLOAD, 70, 75), (1, WAITING, 75, 90)]
    found = powered(spans, [3, 3], tail=30, gone={0: 20, 1: 75})
    assert found["idle"] == [10, 0]
    assert found["tail"] == [10, 0]
    assert powered(spans, [3, 4], tail=30, gone={0: 20})["tail"] == [10, 25]


def test_no_spans() -> None:
    assert powered([], [3, 4], tail=5)["tail"] == [0, 0]


def slowly(spans: Sequence[Span], client: Sequence[int], tail: int, end: int) -> dict[str, int]:
    """Return the same summed over dispatches, instant by instant."""
    sums = dict.fromkeys(("compute", "receive", "transmit", "tail", "idle"), 0)
    for one in set(client):
        since = end
        for at in range(end):
            phases = [
                phase for row, phase, began, ended in spans if client[row] == one and began <= at < ended
            ]
            first = min(
                (
                    (began, row, phase)
                    for row, phase, began, ended in spans
                    if client[row] == one and began <= at < ended and phase in (DOWNLOAD, UPLOAD)
                ),
                default=None,
            )
            sums["compute"] += phases.count(COMPUTE)
            if first is not None:
                since = 0
                sums["receive" if first[2] == DOWNLOAD else "transmit"] += 1
            else:
                sums["tail"] += since < tail
                since += 1
            is_at_work = {COMPUTE, DOWNLOAD, UPLOAD} & set(phases)
            sums["idle"] += WAITING in phases and not is_at_work
    return sums


@st.composite
def dispatches(draw: st.DrawFn) -> tuple[list[Span], list[int]]:
    """Return spans of dispatches of three clients, each without gaps."""
    spans, clients = list[Span](), draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
    for row in range(len(clients)):
        at = draw(st.integers(0, 20))
        for phase, lasts in draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=5)):
            if not spans or spans[-1][:2] != (row, phase):
                spans.append((row, phase, at, at + lasts))
                at += lasts
    return spans, clients


@given(dispatches(), st.integers(0, 15))
def test_times_are_those_of_an_integral(drawn: tuple[list[Span], list[int]], tail: int) -> None:
    spans, clients = drawn
    found = powered(spans, clients, tail, 80)
    # Of two transfers that begin together, either may own the time.
    both = {part: sum(ns) for part, ns in found.items()}
    slow = slowly(spans, clients, tail, 80)
    for part in ("compute", "tail", "idle"):
        assert both[part] == slow[part]
    assert both["receive"] + both["transmit"] == slow["receive"] + slow["transmit"]
    begins = [(clients[row], began) for row, phase, began, _ in spans if phase in (DOWNLOAD, UPLOAD)]
    if len(set(begins)) == len(begins):
        assert both["receive"] == slow["receive"]


COMMON = """
[energy]
carbon_intensity = "300 g/kWh"
server_power = "45 W"
pue = 1.1

[data]
name = "sizes"
params = { samples = 60, input_shape = [16] }

[models.linear]

[[fleet]]
count = 12
device = "mid"
up = "200 kbit/s"
down = "300 kbit/s"
speed = { distribution = "lognormal", median = "400 kFLOP/s", sigma = 0.5 }
compute_power = { distribution = "uniform", low = "1 W", high = "4 W" }
idle_power = "0.3 W"

[fleet.radio]
base = "1.2 W"
up_per_mbit_s = "400 mW"
down_per_mbit_s = "50 mW"
tail = "150 ms"
tail_power = "1 W"

[engine]
executor = "null"

[run]
seed = 4
"""

LEAVING = """
[run]
rounds = 8

[[fleet]]
count = 8
device = "high"
up = "100 kbit/s"
speed = "500 kFLOP/s"
drop_out = "3 /min"
availability = { name = "duty_cycle", params = { period = "1 s", on_share = 0.6 } }

[participation]
client_timeout = "1500 ms"

[[faults]]
kind = "loss"
probability = 0.1

[participation.retry]
times = 1
after = "400 ms"
"""

BUFFERED = """
[run]
rounds = 20

[algorithm]
name = "fedbuff"

[participation.pacing]
name = "buffered"
params = { concurrency = 6, buffer = 3 }
"""

LAGGED = """
[run]
rounds = 15

[participation]
clients_per_round = 3

[participation.pacing]
name = "lagged"
params = { concurrency = 10, max_lag = 1 }
"""


def run_of(text: str, folder: Path, *overrides: str) -> Recorded:
    file = folder / "scenario.toml"
    joined = COMMON.replace("[run]\nseed = 4\n", "")
    file.write_text(joined + text.replace("[run]\n", "[run]\nseed = 4\n"))
    scenario = load_scenario(file, overrides)
    return record(Plan.of(scenario, "energy"), folder / "run", force=True)


def integral(folder: Path, fleet: Fleet) -> dict[tuple[int, int], float]:
    """Return the energy of each dispatch, J, from the stored trace and the powers alone.

    Client by client the time is cut at every instant at which anything begins or ends, and what happens in
    each piece is charged to the dispatch whose it is.
    """
    events: dict[int, list[tuple[int, int, str, int]]] = defaultdict(list)
    joules: dict[tuple[int, int], float] = defaultdict(float)
    powers = {name: fleet.values(name) for name in POWERS}
    run = RunFolder.read(folder)
    for one in run.records:
        client, at_ns = one.get("client", -1), one["at_ns"]
        match one["kind"]:
            case "transfer_start" | "transfer_end":
                way, change = ("up" if one["up"] else "down"), 1 if one["kind"] == "transfer_start" else -1
                events[client].append((at_ns, one["dispatch"], way, change))
                if change > 0:
                    name = "transmit_per_mbit_s" if one["up"] else "receive_per_mbit_s"
                    mbit = (one["bytes"] + one["overhead"]) * 8 / 1e6
                    joules[client, one["dispatch"]] += powers[name][client] * mbit
            case "job_start" | "job_end" if client >= 0:
                change = 1 if one["kind"] == "job_start" else -1
                events[client].append((at_ns, one["dispatch"], "compute", change))
            case "leave":
                events[client].append((at_ns, -1, "away", 1))
            case "return":
                events[client].append((at_ns, -1, "away", -1))
            case "abandon":
                events[client] += [(at_ns, -1, "away", -1), (at_ns, one["dispatch"], "gone", 1)]
    for row in run.tables["dispatches"]:
        for column, change in (("asked_at_s", 1), ("ended_at_s", -1)):
            events[row["client"]].append((round(row[column] * 1e9), row["dispatch"], "open", change))
    ended_ns = run.records[-1]["at_ns"]
    for client, own in events.items():
        power = {name: values[client] for name, values in powers.items()}
        active: dict[tuple[int, str], int] = defaultdict(int)
        is_away, since_ns, last, began, gone = False, 0, None, dict[int, int](), frozenset[int]()
        instants = sorted({at_ns for at_ns, *_ in own if at_ns <= ended_ns} | {ended_ns})
        for at_ns, next_ns in pairwise(instants):
            for when_ns, dispatch, what, change in own:
                if when_ns == at_ns and what == "away":
                    is_away = change > 0
                elif when_ns == at_ns and what == "gone":
                    gone, last = gone | {dispatch}, None
                elif when_ns == at_ns:
                    active[dispatch, what] += change
            passed_s, phases = (next_ns - at_ns) / 1e9, dict[int, str]()
            for dispatch in {number for number, _ in active if active[number, "open"] > 0} - gone:
                doing = [what for what in ("compute", "up", "down") if active[dispatch, what] > 0]
                phases[dispatch] = ("away" if is_away else doing[0]) if doing else "waiting"
            moving = {dispatch: what for dispatch, what in phases.items() if what in ("up", "down")}
            began = {dispatch: began.get(dispatch, at_ns) for dispatch in moving}
            for dispatch, what in phases.items():
                if what == "compute":
                    joules[client, dispatch] += power["compute_power"] * passed_s
            if moving:
                last = min(moving, key=lambda dispatch: (began[dispatch], dispatch))
                way = "transmit_power" if moving[last] == "up" else "receive_power"
                joules[client, last] += power[way] * passed_s
                since_ns = next_ns
            elif last is not None:
                tail_s = max(0.0, min(since_ns / 1e9 + power["radio_tail"], next_ns / 1e9) - at_ns / 1e9)
                joules[client, last] += power["tail_power"] * tail_s
            if set(phases.values()) <= {"waiting", "away"} and "waiting" in phases.values():
                first = min(dispatch for dispatch, what in phases.items() if what == "waiting")
                joules[client, first] += power["idle_power"] * passed_s
    return joules


@pytest.mark.parametrize("text", [LEAVING, BUFFERED, LAGGED], ids=["leaving", "buffered", "lagged"])
def test_energy_is_the_integral_of_power_over_the_stored_trace(text: str, tmp_path: Path) -> None:
    done = run_of(text, tmp_path)
    table = parquet.read_table(done.folder / "dispatches.parquet").to_pydict()
    plan = Plan.of(load_scenario(tmp_path / "scenario.toml"), "energy")
    by_dispatch = integral(done.folder, plan.parts.fleet)
    by_client: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, of in enumerate(zip(table["client"], table["dispatch"], strict=True)):
        by_client[of[0]][0] += sum(table[part][place] for part in PARTS)
        by_client[of[0]][1] += by_dispatch[of]
    for ours, theirs in by_client.values():
        assert ours == pytest.approx(theirs, rel=1e-9)
    assert len(table["client"]) > 30


def test_columns_sum_to_the_totals(tmp_path: Path) -> None:
    done = run_of(LEAVING, tmp_path)
    energy = done.summary["energy"]
    for name in ("rounds", "clients", "dispatches"):
        table = parquet.read_table(done.folder / f"{name}.parquet").to_pydict()
        for part in PARTS:
            assert energy[part] > 0
            assert sum(table[part]) == pytest.approx(energy[part], rel=1e-12)
    rounds = parquet.read_table(done.folder / "rounds.parquet").to_pydict()
    assert energy["clients_j"] == pytest.approx(sum(energy[part] for part in PARTS))
    assert energy["server_j"] == pytest.approx(45 * 1.1 * done.summary["simulated_s"])
    assert sum(rounds["server_j"]) == pytest.approx(energy["server_j"])
    assert energy["total_j"] == energy["clients_j"] + energy["server_j"]
    assert energy["carbon_g"] == pytest.approx(energy["total_j"] / 3.6e6 * 300)
    assert sum(rounds["carbon_g"]) == pytest.approx(energy["carbon_g"])


def test_no_event_depends_on_energy(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    text = LEAVING.replace('executor = "null"', "")
    done = run_of(text, tmp_path / "with", "engine.executor=threads", "data={name='digits', limit=200}")
    file = tmp_path / "without" / "scenario.toml"
    written = (tmp_path / "with" / "scenario.toml").read_text()
    start, end = written.index("[energy]"), written.index("[data]")
    file.write_text(written[:start] + written[end:])
    overrides = ["engine.executor=threads", "data={name='digits', limit=200}", "engine.workers=2"]
    other = record(Plan.of(load_scenario(file, overrides), "energy"), tmp_path / "without" / "run")
    assert other.summary["trace_hash"] == done.summary["trace_hash"]
    assert other.summary["model_hash"] == done.summary["model_hash"]
    assert "energy" not in other.summary
    assert not set(PARTS) & set(parquet.read_schema(other.folder / "dispatches.parquet").names)


def test_without_powers_there_is_no_energy(tmp_path: Path) -> None:
    done = run_of(
        *(BUFFERED, tmp_path, "fleet.0.radio={tail='9 s'}"),
        *("fleet.0.compute_power=0 W", "fleet.0.idle_power=0 W", "energy={}"),
    )
    energy = done.summary["energy"]
    assert all(energy[part] == 0 for part in (*PARTS, "total_j"))
    assert energy["carbon_g"] is None


def test_run_json_has_the_constants(tmp_path: Path) -> None:
    done = run_of(BUFFERED, tmp_path)
    constants = json.loads((done.folder / "run.json").read_text())["energy"]
    assert constants["model"].startswith("an estimate")
    assert constants["server_power"] == "45 W"
    group = constants["groups"]["mid"]
    assert group["radio_tail"] == "150 ms"
    assert group["transmit_per_mbit_s"] == "400 mW"
    assert " to " in group["compute_power"]
