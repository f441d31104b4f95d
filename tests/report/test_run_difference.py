"""Where runs part."""

from collections.abc import Callable, Iterator
from itertools import count
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from fedsim.clock import RecordKind
from fedsim.errors import OutputError
from fedsim.report.record_run import record
from fedsim.report.run_difference import Parting, part, run_difference
from fedsim.runtime.parts import Parts
from fedsim.scenario import Plan, load_scenario
from tests.conftest import there

Stored = tuple[RecordKind, list[Any]]


def stored(*values: Any, kind: str = "a", number: int = 0) -> Iterator[Stored]:
    return ((RecordKind(kind, ("x",)), [number, at_ns, value]) for at_ns, value in enumerate(values))


def told(at_ns: int, value: Any, kind: str = "a") -> dict[str, Any]:
    return {"kind": kind, "at_ns": at_ns, "x": value}


def test_equal_traces_do_not_part() -> None:
    for values in ((), (1, [2, 3], None, "word", nan, inf)):
        assert part(stored(*values), stored(*values)) is None


def test_the_first_event_that_differs() -> None:
    assert part(stored(5, 6, 7, 8), stored(5, 6, 9, 8)) == Parting(
        2, [told(0, 5), told(1, 6)], told(2, 7), told(2, 9)
    )


def test_one_trace_ends_before() -> None:
    assert part(stored(5), stored(5, 6)) == Parting(1, [told(0, 5)], None, told(1, 6))
    assert part(stored(5), stored()) == Parting(0, [], told(0, 5), None)


def test_another_kind_with_the_same_values_differs() -> None:
    assert part(stored(5), stored(5, kind="b")) == Parting(0, [], told(0, 5), told(0, 5, "b"))


def test_only_the_last_events_before_are_kept() -> None:
    parting = there(part(stored(*range(100)), stored(*range(99), -1)))
    assert parting.num_common == 99
    assert [one["x"] for one in parting.before] == [94, 95, 96, 97, 98]


def test_nothing_is_read_beyond_the_first_event_that_differs() -> None:
    endless = (one for number in count() for one in stored(number))
    parting = there(part(endless, stored(0, -1)))
    assert parting.num_common == 1


def test_runs_of_two_seeds(tmp_path: Path, tiny_scenario: str) -> None:
    (tmp_path / "tiny.toml").write_text(tiny_scenario)
    folders = []
    of_another = "algorithms.fedprox.mu=0.5"  # which this run is not
    for name, overrides in (
        ("a", ["engine.workers=1"]),
        ("b", ["engine.workers=2", of_another]),
        ("c", ["run.seed=1"]),
        ("d", ["run.rounds=1"]),
    ):
        scenario = load_scenario(tmp_path / "tiny.toml", overrides)
        folders.append(record(Plan.of(scenario, "tiny"), tmp_path / name).folder)
    same = run_difference(folders[0], folders[1])
    assert same.is_none
    assert same.settings == {"engine.workers": (1, 2)}
    assert same.facts == {"workers": (1, 2)}
    other = run_difference(folders[0], folders[2])
    assert not other.is_none
    assert other.settings == {"run.seed": (0, 1), "engine.workers": (1, "auto")}
    assert other.parting is not None
    assert other.parting.first != other.parting.second
    assert not other.is_real_time
    # How many cohorts there were is what a run came to.
    assert run_difference(folders[0], folders[3]).facts == other.facts
    assert set(other.facts) == {"workers"}


def test_equal_events_with_other_models_differ(make_parts: Callable[..., Parts], tmp_path: Path) -> None:
    folders = []
    for name, lr in (("a", 0.1), ("b", 0.2)):
        parts = make_parts()
        training = parts.training.model_copy(update={"lr": lr})
        evaluation = parts.evaluation.model_copy(update={"every": 0})
        parts = make_parts(training=training, evaluation=evaluation)
        folders.append(record(Plan("tiny", "fedavg", "", parts), tmp_path / name).folder)
    difference = run_difference(*folders)
    assert difference.parting is None
    assert not difference.is_none


def test_damaged_folders_are_told(make_parts: Callable[..., Parts], tmp_path: Path) -> None:
    whole = record(Plan("tiny", "fedavg", "", make_parts(executor="null")), tmp_path / "a").folder
    with pytest.raises(OutputError, match="is not the folder of a run"):
        run_difference(whole, tmp_path / "b")
    (whole / "scenario.toml").write_text("[run")
    with pytest.raises(OutputError, match=r"scenario\.toml cannot be read"):
        run_difference(whole, whole)
    for content, said in (("[]", "it is no JSON object"), ("{}", "it has no 'fedsim'")):
        (whole / "scenario.toml").write_text("")
        (whole / "run.json").write_text(content)
        with pytest.raises(OutputError, match=rf"run\.json cannot be read.*: {said}"):
            run_difference(whole, whole)
    (whole / "run.json").unlink()
    with pytest.raises(OutputError, match=r"run\.json cannot be read"):
        run_difference(whole, whole)
