"""What tells two runs apart, as text."""

import re
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.report.difference_text import _WORDS, event_words, instant, remarks, tables, verdict
from fedsim.report.run_difference import Parting, RunDifference

PART = {"client": 3, "dispatch": 0}
END = {"kind": "transfer_end", "at_ns": 7, **PART, "up": True, "outcome": "delivered", "cause": ""}


def difference(parting: Parting | None = None, models: str = "m1", **changes: Any) -> RunDifference:
    first = {"trace_hash": "t1", "model_hash": "m1"}
    values: dict[str, Any] = {"settings": {}, "facts": {}, "is_real_time": False, **changes}
    return RunDifference(
        summaries=(first, {"trace_hash": "t1", "model_hash": models}), parting=parting, **values
    )


def test_runs_that_are_equal() -> None:
    same = difference()
    assert verdict(same) == [
        "the runs are equal: they have the same events, and end with the same models",
        "  trace_hash  t1",
        "  model_hash  m1",
    ]
    assert [*tables(same), *remarks(same)] == []


def test_runs_that_differ_in_their_models_alone() -> None:
    other = difference(models="m2", settings={"training.lr": (0.1, 0.2)})
    assert verdict(other) == [
        "the runs have the same events, but end with other models",
        "  trace_hash  t1",
        "  model_hash  m1 (first)",
        "  model_hash  m2 (second)",
    ]
    assert remarks(other) == []


def test_runs_that_part() -> None:
    start = {"kind": "job_start", "at_ns": 8, **PART, "job": "fit", "flops": 1.0}
    parting = Parting(4, [END], {**start, "duration_s": 0.25}, {**start, "duration_s": 0.5})
    assert verdict(difference(parting)) == [
        "the runs are equal for 4 events; the last of them:",
        "  0.000000007 s  the frame of the reply of dispatch 0 to client 3 has arrived",
        "then they part:",
        "  first   0.000000008 s  client 3, dispatch 0, begins job fit: 1 operations, 0.25 s",
        "  second  0.000000008 s  client 3, dispatch 0, begins job fit: 1 operations, 0.5 s",
        "which differ in:",
        "  duration_s  0.25 and 0.5",
    ]


def test_long_lines_go_on_under_their_words() -> None:
    assert verdict(difference(Parting(0, [], END, None)), 60) == [
        "the runs part at their first event:",
        "  first   0.000000007 s  the frame of the reply of dispatch",
        "                         0 to client 3 has arrived",
        "  second  no more events",
    ]


def test_settings_are_a_table_and_long_values_are_shown_where_they_differ() -> None:
    widths = [*range(100, 130)]
    settings = {"run.seed": (0, None), "models.a.params.hidden": (widths, [*widths[:-1], 7])}
    (table,) = tables(difference(Parting(0, [], END, None), settings=settings))
    assert table.title == "settings that differ"
    assert table.rows == [
        ("run.seed", "0", "not set"),
        ("models.a.params.hidden", "...26, 127, 128, 129]", "...26, 127, 128, 7]"),
    ]


def test_remarks_say_what_to_think_of_it() -> None:
    apart = Parting(0, [], END, None)
    (said,) = remarks(difference(apart))
    assert said.startswith("no setting, version or host tells the runs apart")
    assert remarks(difference(apart, facts={"machine": ("x86_64", "arm64")})) == []
    (said,) = remarks(difference(apart, is_real_time=True))
    assert said.startswith("over sockets times are real")
    evaluation = {"kind": "evaluation", "at_ns": 7, "round": 1, "clients": 2}
    (said,) = remarks(difference(Parting(1, [END], evaluation, END), settings={"training.lr": (1, 2)}))
    assert said.startswith("events hold no models")


FAMILY = {"client": 3, "dispatch": 0}


def test_every_kind_of_record_has_words() -> None:
    sources = (file.read_text() for file in sorted(Path(fedsim.__file__).parent.rglob("*.py")))
    kinds = {kind for source in sources for kind in re.findall(r'RecordKind\(\s*"(\w+)"', source)}
    assert kinds == set(_WORDS)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            {"kind": "dispatch", **FAMILY, "round": 1, "exchange": "train", "turn": 0},
            "the server asks client 3, dispatch 0: exchange train of round 1",
        ),
        (
            {"kind": "transfer_start", **FAMILY, "up": False, "message": "model", "bytes": 1234},
            "the server sends model to client 3, dispatch 0: 1,234 B",
        ),
        (
            {"kind": "transfer_start", **FAMILY, "up": True, "message": "update", "bytes": 12},
            "client 3, dispatch 0, sends update: 12 B",
        ),
        (
            {"kind": "transfer_end", **FAMILY, "up": True, "outcome": "delivered", "cause": ""},
            "the frame of the reply of dispatch 0 to client 3 has arrived",
        ),
        (
            {"kind": "transfer_copy", **FAMILY, "up": False, "outcome": "lost", "cause": "left"},
            "once more: the frame of the request of dispatch 0 to client 3 is lost: left",
        ),
        (
            {"kind": "job_start", **FAMILY, "job": "fit", "flops": 2.5e6, "duration_s": 0.25},
            "client 3, dispatch 0, begins job fit: 2.5e+06 operations, 0.25 s",
        ),
        (
            {"kind": "job_end", "client": -1, "dispatch": -1, "job": "predict", "outcome": "done"},
            "the server ends job predict",
        ),
        (
            {"kind": "job_end", **FAMILY, "job": "fit", "outcome": "cancelled"},
            "client 3, dispatch 0, ends job fit: cancelled",
        ),
        (
            {"kind": "merge", "round": 2, "exchange": "train", "version": 5, "clients": [*range(10)]},
            "the server merges 10 replies of clients 0, 1, 2, 3, 4, 5, 6, 7 and 2 more: "
            "exchange train of round 2, version 5",
        ),
        (
            {"kind": "merge", "round": 2, "exchange": "train", "version": 5, "clients": [4]},
            "the server merges 1 reply of client 4: exchange train of round 2, version 5",
        ),
        (
            {"kind": "evaluation", "round": 1, "clients": 20, "personal_mean": 0.5, "global": None},
            "evaluation of 20 clients after round 1: accuracy mean over clients 0.5000",
        ),
        (
            {"kind": "evaluation", "round": 1, "clients": 20, "personal_mean": None, "global": None},
            "evaluation of 20 clients after round 1",
        ),
        (
            {"kind": "edge_start", "edge": 1, "round": 2, "up": False, "message": "model", "bytes": 1234},
            "the frame to edge 1 in round 2 is sent: model, 1,234 B",
        ),
        (
            {"kind": "edge_end", "edge": 1, "round": 2, "up": True, "outcome": "delivered"},
            "the frame from edge 1 in round 2 is delivered",
        ),
        (
            {"kind": "edge_merge", "round": 2, "exchange": "train", "edge": 1, "clients": [4, 5]},
            "edge 1 averages what 2 clients sent: exchange train of round 2",
        ),
        ({"kind": "drop", **FAMILY, "cause": "timeout"}, "dispatch 0 to client 3 is dropped: timeout"),
        ({"kind": "leave", "client": 3, "policy": "resume"}, "client 3 leaves; its work will resume"),
        (
            {"kind": "spent", **FAMILY, "download_ns": 1, "compute_ns": 10**9, "upload_ns": 0},
            "dispatch 0 to client 3 took 0.000000001 s to download, 1.000000000 s to compute, "
            "0.000000000 s to upload",
        ),
        (
            {"kind": "battery", **FAMILY, "level_j": 12_345.6},
            "client 3 has 12.3 kJ left after dispatch 0",
        ),
        ({"kind": "later", "at_ns": 7, "fields": [1, 2], "x": None}, "later: fields [1, 2], x None"),
    ],
)
def test_words(record: dict[str, object], words: str) -> None:
    assert event_words(record) == words


def test_instants_are_told_to_the_nanosecond() -> None:
    assert instant(1_250_000_001) == "1.250000001 s"
