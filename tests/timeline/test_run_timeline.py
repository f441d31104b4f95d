import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedsim.engine.job_times import TimedJobs
from fedsim.errors import OutputError
from fedsim.report.record_run import record
from fedsim.report.run_trace import read_spans
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.scenario import Plan, load_scenario
from fedsim.timeline.perfetto_trace import PerfettoTrace
from fedsim.timeline.run_timeline import add_run, add_workers, save_timeline
from tests.timeline.read_back import ReadBack, read_back

SCENARIO = """
[run]
name = "twenty"
rounds = 6

[data]
name = "sizes"
params = { samples = 100, input_shape = [64] }

[models.linear]

[[fleet]]
count = 20
device = "low"
up = { distribution = "lognormal", median = "48 kbit/s", sigma = 0.8 }
drop_out = "6 /min"
availability = { name = "duty_cycle", params = { period = "1.5 s", on_share = 0.6 } }

[participation]
clients_per_round = 18
client_timeout = "1.2 s"

[engine]
executor = "null"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("twenty")
    (place / "twenty.toml").write_text(SCENARIO)
    return record(Plan.of(load_scenario(place / "twenty.toml"), "twenty"), place / "run").folder


def timeline(folder: Path, **options: Any) -> ReadBack:
    trace = PerfettoTrace()
    add_run(trace, folder, **options)
    return read_back(bytes(trace.content))


@pytest.fixture(scope="module")
def drawn(folder: Path) -> ReadBack:
    return timeline(folder)


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(folder / f"{table}.parquet").to_pylist()
    return found


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def test_each_dispatch_is_a_slice_of_its_client_and_holds_its_phases(folder: Path, drawn: ReadBack) -> None:
    phase_ns: defaultdict[Any, Counter[str]] = defaultdict(Counter)
    found = {}
    for one in drawn.slices:
        process, *above, track = drawn.path(one.track)
        assert process == "simulated time"
        if above:  # the server's
            continue
        if one.parent is None:
            found[int(track.split()[1]), one.notes["dispatch"]] = one
        else:
            assert one.name in PHASES
            assert one.ended_ns is not None
            phase_ns[id(one.parent)][one.name] += one.ended_ns - one.began_ns
    table = rows(folder, "dispatches")
    assert len(found) == len(table) > 60
    for row in table:
        one = found[row["client"], row["dispatch"]]
        assert (one.began_ns, one.ended_ns) == (ns(row["asked_at_s"]), ns(row["ended_at_s"]))
        assert one.name == f"round {row['round']}: {row['exchange']}"
        assert one.notes["outcome"] == row["outcome"]
        assert one.notes.get("cause") == row["cause"]
        assert one.notes.get("staleness") == row["staleness"]
        for phase in PHASES:
            assert phase_ns[id(one)][phase] == ns(row[f"{phase}_s"])
    assert {row["outcome"] for row in table} >= {"merged", "dropped"}


def test_dispatches_of_a_client_that_overlap_lie_side_by_side(folder: Path, drawn: ReadBack) -> None:
    names = [path[1] for track in drawn.names if len(path := drawn.path(track)) == 2]
    tracks = Counter(name.split()[1] for name in names if name.startswith("client "))
    table = rows(folder, "dispatches")
    spans = [(str(row["client"]), row["asked_at_s"], row["ended_at_s"]) for row in table]
    at_once = Counter[str]()
    for client, asked_at_s, _ in spans:
        open_then = sum(one == client and began <= asked_at_s < ended for one, began, ended in spans)
        at_once[client] = max(at_once[client], open_then)
    assert tracks == at_once
    assert max(at_once.values()) >= 2


def test_slices_are_the_spans(folder: Path, drawn: ReadBack) -> None:
    spans = read_spans(folder)
    wanted = zip(spans["phase"], spans["began_at_s"], spans["ended_at_s"], strict=True)
    phases = [one for one in drawn.slices if one.name in PHASES]
    assert Counter((one.name, one.began_ns, one.ended_ns) for one in phases) == Counter(
        (phase, ns(began_s), ns(ended_s)) for phase, began_s, ended_s in wanted
    )


def test_each_frame_is_an_arrow_between_server_and_client(folder: Path, drawn: ReadBack) -> None:
    messages = rows(folder, "messages")
    assert sorted(drawn.flows) == list(range(1, len(messages) + 1))
    assert {"delivered", "lost"} <= {row["outcome"] for row in messages}
    for number, row in enumerate(messages, 1):
        (left, sent), *arrival = drawn.flows[number]
        at_server = ("simulated time", "server", "frames")
        sender, name = drawn.path(sent.track), f"send {row['kind']}"
        assert (left, sent.name, sent.began_ns) == ("leaves", name, ns(row["sent_at_s"]))
        assert sent.notes["bytes"] == row["bytes"] + row["overhead"]
        assert (sender != at_server) == row["up"]
        if row["outcome"] == "in_flight":
            assert not arrival
            continue
        ((arrived, got),) = arrival
        assert (arrived, got.notes["client"]) == ("arrives", row["client"])
        if row["outcome"] == "delivered":
            assert (got.name, got.began_ns) == (f"receive {row['kind']}", ns(row["arrived_at_s"]))
            assert (drawn.path(got.track) == at_server) == row["up"]
        else:
            assert got.name == f"{row['kind']} {row['outcome']}"
            assert drawn.path(got.track)[1].startswith(f"client {row['client']} ")


def test_what_happens_between_two_phases_lies_in_neither(drawn: ReadBack) -> None:
    of_clients = [one for one in drawn.instants if "server" not in drawn.path(one.track)]
    received = [one for one in of_clients if one.name.startswith("receive")]
    assert received
    assert {one.parent.name in PHASES for one in received if one.parent is not None} == {False}


def test_rounds_merges_and_drops_are_there(folder: Path, drawn: ReadBack) -> None:
    rounds = [one for one in drawn.slices if drawn.path(one.track)[-1] == "rounds"]
    assert [(one.name, one.began_ns, one.ended_ns) for one in rounds] == [
        (f"round {row['round']}", ns(row["began_at_s"]), ns(row["ended_at_s"]))
        for row in rows(folder, "rounds")
    ]
    names = Counter(one.name for one in drawn.instants)
    dispatches = rows(folder, "dispatches")
    dropped = Counter(f"dropped: {row['cause']}" for row in dispatches if row["cause"])
    assert dropped
    assert {name: names[name] for name in dropped} == dropped
    merges = [one for one in drawn.instants if one.name.startswith("merge: ")]
    assert sum(one.notes["replies"] for one in merges) == sum(
        row["outcome"] == "merged" for row in dispatches
    )
    assert drawn.values["model version"][-1] == (merges[-1].began_ns, merges[-1].notes["version"])


def test_counters_begin_and_end_at_nothing(folder: Path, drawn: ReadBack) -> None:
    for way, up in (("to clients", False), ("to the server", True)):
        assert drawn.values[f"bytes in flight {way}"][-1][1] == 0
        assert drawn.values[f"link use {way}"][-1][1] == 0
        largest = max(row["bytes"] + row["overhead"] for row in rows(folder, "messages") if row["up"] == up)
        assert max(value for _, value in drawn.values[f"bytes in flight {way}"]) >= largest


def test_of_a_large_fleet_some_clients_are_shown_and_the_trace_says_so(folder: Path) -> None:
    trace = PerfettoTrace()
    shown = add_run(trace, folder, most_clients=4)
    drawn = read_back(bytes(trace.content))
    (remark,) = shown.remarks
    asked = len({row["client"] for row in rows(folder, "dispatches")})
    assert shown.num_clients == 4
    assert remark.startswith(
        f"of {asked} clients that were asked, the 2 slowest, the 1 median and the 1 fastest"
    )
    (about,) = (one for one in drawn.instants if one.name == "about this run")
    assert about.notes["remark 1"] == remark
    parents = Counter(drawn.path(track)[1] for track in drawn.names if len(drawn.path(track)) == 3)
    parents.pop("server")
    assert set(parents) == {"2 clients, slowest", "1 client, median", "1 client, fastest"}
    clients = {one.notes["client"] for one in drawn.instants if "client" in one.notes}
    assert len(clients) == 4
    assert drawn.values == timeline(folder).values  # of all clients


def test_what_is_no_run_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        save_timeline(tmp_path, tmp_path / "new" / "out.pftrace")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_if_it_is_a_timeline(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "run.pftrace"
    for most in (60, 4):
        save_timeline(folder, file, most_clients=most)
    again = PerfettoTrace()
    add_run(again, folder, most_clients=4)
    assert file.read_bytes() == again.content
    (tmp_path / "thesis.txt").write_text("results")
    for place in (tmp_path / "thesis.txt", tmp_path):
        with pytest.raises(OutputError):
            save_timeline(folder, place)
    assert (tmp_path / "thesis.txt").read_text() == "results"


def test_clients_are_named_by_the_labels_of_their_devices(folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "run"))
    clients = parquet.read_table(place / "clients.parquet").drop(["label"])
    labelled = clients.append_column("label", pa.array(["old board"] * clients.num_rows))
    parquet.write_table(labelled, place / "clients.parquet")
    assert any(str(name).endswith("(old board)") for name in timeline(place).names.values())


def test_threads_are_tracks_of_real_time() -> None:
    trace = PerfettoTrace()
    jobs = [
        TimedJobs("fedsim-worker-1", "fit", 1, 10, 30),
        TimedJobs("MainThread", "fit", 8, 5, 40),
        TimedJobs("fedsim-worker-1", "evaluate", 1, 30, 35),
    ]
    add_workers(trace, jobs, [(1, 38), (2, 50)])
    drawn = read_back(bytes(trace.content))
    assert {name for path in map(drawn.path, drawn.names) for name in path[:1]} == {
        "real time of this computer"
    }
    assert [(drawn.path(one.track)[-1], one.name, one.began_ns, one.ended_ns) for one in drawn.slices] == [
        ("rounds", "round 1", 0, 38),
        ("simulation", "fit", 5, 40),
        ("worker 1", "fit", 10, 30),
        ("worker 1", "evaluate", 30, 35),
        ("rounds", "round 2", 38, 50),
    ]
    assert [one.notes.get("jobs") for one in drawn.slices] == [None, 8, 1, 1, None]
