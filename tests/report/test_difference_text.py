"""What tells two runs apart, as text."""

from __future__ import annotations

from typing import Any

from fedsim.report.difference_text import remarks, tables, verdict
from fedsim.report.run_difference import Parting, RunDifference

PART = {"client": 3, "dispatch": 0}
END = {"kind": "transfer_end", "at_ns": 7, **PART, "up": True, "outcome": "delivered", "cause": ""}


def difference(parting: Parting | None = None, models: str = "m1", **changes: Any) -> RunDifference:
    first = {"trace_hash": "t1", "model_hash": "m1"}
    values: dict[str, Any] = {"settings": {}, "facts": {}, "is_real_time": False, **changes}
    return RunDifference(
        summaries=(first, {"trace_hash": "t1", "model_hash": models}),
        parting=parting,
        **values,
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
