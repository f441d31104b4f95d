import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.clock import read_trace
from fedsim.errors import OutputError, ScenarioError
from fedsim.report.continued_runs import resumed_plan
from fedsim.report.forked_runs import forked
from fedsim.report.places import can_go_on, holds_run, holds_scenario, is_own
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_provenance
from fedsim.report.record_run import record
from fedsim.report.run_difference import run_difference
from fedsim.report.summary import read_summary
from fedsim.runtime import run as runtime_run
from fedsim.scenario import Plan, load_scenario

ROUNDS = 5


pytestmark = pytest.mark.usefixtures("each_round")


@pytest.fixture
def whole(tiny: dict[str, Any], tmp_path: Path) -> Path:
    return run(tiny, tmp_path / "whole")


def run(tiny: dict[str, Any], folder: Path, changes: dict[str, Any] | None = None) -> Path:
    values = {"run.rounds": ROUNDS, "run.checkpoint.keep": 99} | (changes or {})
    return record(Plan.of(load_scenario(tiny, values), "tiny"), folder).folder


def fork(folder: Path, after: int, changes: dict[str, Any], out: Path | None = None) -> Path:
    plan, place = forked(folder, end_s(folder, after), changes, out)
    return record(plan, place, goes_on=True, tell=lambda text: None).folder


def end_s(folder: Path, number: int) -> float:
    """Return when a round ended."""
    return float(read_columns(folder / "rounds.parquet", ["ended_at_s"])["ended_at_s"][number - 1])


def hashes(folder: Path) -> list[str]:
    return [read_summary(folder)[name] for name in ("trace_hash", "model_hash")]


def test_a_fork_with_the_same_settings_is_the_same_run(whole: Path) -> None:
    assert hashes(fork(whole, 2, {})) == hashes(whole)


def test_it_leaves_the_run_at_the_end_of_a_round(whole: Path, tmp_path: Path) -> None:
    place = fork(whole, 3, {"training.lr": 0.5})
    assert place == (tmp_path / "whole-fork").resolve()
    origin = read_provenance(place)["fork"]
    assert origin == {
        "of": str(whole.resolve()),
        "trace_hash": hashes(whole)[0],
        "after_round": 3,
        "at_s": end_s(whole, 3),
    }
    difference = run_difference(whole, place)
    assert dict(difference.settings) == {"training.lr": (0.05, 0.5)}
    assert difference.facts["fork.after_round"] == (None, 3)
    assert not difference.is_none
    accuracies = [
        read_columns(folder / "rounds.parquet", ["accuracy_mean"])["accuracy_mean"]
        for folder in (whole, place)
    ]
    assert accuracies[0][:3].tolist() == accuracies[1][:3].tolist()
    again, _ = forked(whole, (end_s(whole, 3) + end_s(whole, 4)) / 2, {"training.lr": 0.5})
    assert again.origin["after_round"] == 3


def test_the_past_is_computed_where_no_checkpoint_has_it(whole: Path, tmp_path: Path) -> None:
    place = fork(whole, 2, {"training.lr": 0.5})
    bare = tmp_path / "bare"
    shutil.copytree(whole, bare, ignore=shutil.ignore_patterns("checkpoints"))
    assert hashes(fork(bare, 2, {"training.lr": 0.5})) == hashes(place)


def test_a_fork_can_be_resumed_and_forked(whole: Path, tmp_path: Path) -> None:
    place = fork(whole, 2, {"training.lr": 0.5})
    plan, again = forked(whole, end_s(whole, 2), {"training.lr": 0.5}, tmp_path / "again")
    with pytest.raises(KeyboardInterrupt):
        record(plan, again, goes_on=True, watch=interrupting(3), tell=lambda text: None)
    assert not is_own(again, plan.scenario_toml)  # another run of this scenario does not go on there
    assert not can_go_on(again, plan.scenario_toml)
    record(resumed_plan(again), again, goes_on=True, tell=lambda text: None)
    assert hashes(again) == hashes(place)
    assert not holds_run(again, plan.scenario_toml)
    assert not holds_scenario(again, plan.scenario_toml)
    # Back to the old rate: only between the two it was another one.
    back = fork(again, 3, {"training.lr": 0.05}, tmp_path / "back")
    assert hashes(back) not in (hashes(again), hashes(whole))
    assert hashes(fork(back, 4, {}, tmp_path / "same")) == hashes(back)


def test_a_fork_of_a_fork_from_before_it_is_one_of_the_run(whole: Path, tmp_path: Path) -> None:
    late = fork(whole, 3, {"training.lr": 0.5}, tmp_path / "late")
    early = fork(late, 1, {"training.epochs": 2}, tmp_path / "early")
    assert hashes(early) == hashes(fork(whole, 1, {"training.epochs": 2}, tmp_path / "of-whole"))


def test_a_budget_of_energy_counts_what_was_spent_before(tiny: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tiny, tmp_path / "whole", {"energy": {}})
    joules = read_columns(whole / "rounds.parquet", ["receive_j", "transmit_j", "compute_j"])
    spent_j = sum(float(column[:4].sum()) for column in joules.values())
    budget = {"run.until.joules": f"{spent_j:.3f} J"}
    wanted = run(tiny, tmp_path / "wanted", budget | {"energy": {}})
    assert read_summary(wanted)["stopped_by"] == "joules"
    assert hashes(fork(whole, 2, budget)) == hashes(wanted)


def test_forks_of_one_round_in_a_row_have_the_last_settings(whole: Path, tmp_path: Path) -> None:
    first = fork(whole, 2, {"training.lr": 0.5}, tmp_path / "first")
    second = fork(first, 2, {"training.lr": 0.05}, tmp_path / "second")
    assert hashes(second) == hashes(whole)


@pytest.mark.parametrize(
    ("pacing", "changes"),
    [
        ("synchronous", {"run.rounds": 7, "participation.clients_per_round": 1}),
        ("synchronous", {"participation.pacing.params.over_selection": 2.0}),
        ({"name": "buffered", "params": {"concurrency": 3, "buffer": 2}}, {"run.rounds": 7}),
        (
            {"name": "buffered", "params": {"concurrency": 3, "buffer": 2}},
            {"participation.pacing.params": {"concurrency": 1, "buffer": 1, "staleness": "constant"}},
        ),
        ({"name": "lagged", "params": {"concurrency": 3}}, {"run.rounds": 7, "evaluation.every_s": 0.1}),
        ("synchronous", {"aggregation": {"name": "norm_clipping", "params": {"c": 0.01}}}),
        ("synchronous", {"participation.selector": "by_size"}),
        (
            "synchronous",
            {"training.epochs": 3, "participation.workload": "variable_epochs"},
        ),
    ],
)
def test_what_decides_each_round_changes(
    tiny: dict[str, Any], tmp_path: Path, pacing: Any, changes: dict[str, Any]
) -> None:
    whole = run(
        tiny,
        tmp_path / "whole",
        {"participation.pacing": pacing, "participation.clients_per_round": 2},
    )
    place = fork(whole, 2, changes)
    assert read_summary(place)["rounds"] == changes.get("run.rounds", ROUNDS)
    assert hashes(place) != hashes(whole)
    shutil.rmtree(whole / "checkpoints")
    assert hashes(fork(whole, 2, changes)) == hashes(place)


BUFFERED = {"name": "buffered", "params": {"concurrency": 3, "buffer": 2}}
LAGGED = {"name": "lagged", "params": {"concurrency": 4}}
TIERED = {"name": "tiered", "params": {"tiers": 2, "profiling": 1}}
UP = "codec.up.models.chain"
AGAIN = {"participation.retry": {"times": 2, "after": "20 ms"}}


def faults(*each: dict[str, Any]) -> dict[str, Any]:
    return {"faults": list(each)}


LOSS = {"kind": "loss", "probability": 0.3}
CRASH = {"kind": "crash", "at": "10 ms", "every": "45 ms", "probability": 0.5}


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"run.until.simulated": "150 ms"}),
    ({}, {"participation.client_timeout": "41.7 ms"}),
    (faults({**CRASH, "keeps_state": False}), faults({**CRASH, "keeps_state": False, "at": "20 ms"})),
    (faults(LOSS), faults(LOSS) | AGAIN),
    ({UP: ["int8"]}, {UP: ["delta", "topk"]}),
    ({}, {"network.overhead.protocol": "none"}),
]
MORE_CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"run.until.simulated": "190 ms"}, {"run.until.simulated": "150 ms"}),
    ({"run.until.bytes": "70 kB"}, {"run.until.bytes": "80 kB"}),
    ({}, {"run.until.bytes": "75 kB"}),
    ({}, {"run.until.accuracy": 0.01}),
    ({"participation.client_timeout": "41.7 ms"}, {"participation.client_timeout": "1 h"}),
    ({}, faults(LOSS)),
    (faults(LOSS), {"faults": []}),
    (faults(LOSS) | AGAIN, faults({**LOSS, "probability": 0.6})),
    (faults(LOSS), faults({"kind": "partition", "at": "130 ms", "for": "20 ms"})),
    ({}, faults(CRASH)),
    ({}, faults({"kind": "slow", "factor": 3})),
    (faults({"kind": "slow", "factor": 3}), faults({"kind": "slow", "factor": 2})),
    ({}, faults({"kind": "sign_flip", "share": 0.5})),
    ({}, {UP: ["int8"], "codec.down.models.chain": ["float16"]}),
    ({UP: ["int8"]}, {UP: []}),
    ({}, {"network.model": "naive"}),
    ({"network.model": "naive"} | faults(LOSS), {"network.model": "none"}),
]


@pytest.mark.parametrize(
    ("before", "changes"),
    [*CHANGES, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE_CHANGES)],
    ids=str,
)
@pytest.mark.parametrize(
    ("pacing", "after"),
    [pytest.param("synchronous", 3, marks=pytest.mark.slow, id="waits"), pytest.param(BUFFERED, 4, id="not")],
)
def test_what_is_under_way_goes_on_and_the_rest_is_other(
    tiny: dict[str, Any],
    tmp_path: Path,
    before: dict[str, Any],
    changes: dict[str, Any],
    pacing: Any,
    after: int,
) -> None:
    devices = {"participation.pacing": pacing, "fleet.0.device": "flash_phones", "run.rounds": 7}
    whole = run(tiny, tmp_path / "whole", {**devices, **before})
    check_fork(whole, after, changes)  # after 0.125 s, as long as three dispatches take


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("synchronous", BUFFERED),
        pytest.param(BUFFERED, "synchronous", marks=pytest.mark.slow),
        pytest.param(BUFFERED, {"name": "immediate", "params": {"concurrency": 2}}, marks=pytest.mark.slow),
        (LAGGED, TIERED),
        (TIERED, LAGGED),
    ],
)
def test_another_pacing_begins_at_the_end_of_a_round(
    tiny: dict[str, Any], tmp_path: Path, first: Any, then: Any
) -> None:
    whole = run(
        tiny,
        tmp_path / "whole",
        {
            "participation.pacing": first,
            "fleet.0.device": "flash_phones",
            "participation.clients_per_round": 2,
        },
    )
    place = check_fork(whole, 2, {"participation.pacing": then, "run.rounds": 6})
    assert read_summary(place)["rounds"] == 6
    causes = read_summary(place)["drops_by_cause"]
    assert causes.keys() <= {"another pacing has begun", "the run ended"}
    assert ("another pacing has begun" in causes) == (first in (BUFFERED, LAGGED))


def test_a_fork_ends_where_its_budget_is_spent_already(whole: Path) -> None:
    place = fork(whole, 3, {"run.until.bytes": "1 kB"})
    summary = read_summary(place)
    assert (summary["stopped_by"], summary["rounds"]) == ("bytes", 3)
    assert summary["simulated_s"] == end_s(whole, 3)


def test_a_round_that_a_budget_has_ended_is_left_out(tiny: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tiny, tmp_path / "whole")
    stopped = run(tiny, tmp_path / "stopped", {"run.until.simulated": f"{end_s(whole, 3) + 0.01} s"})
    assert read_summary(stopped)["rounds"] == 4
    plan, place = forked(stopped, read_summary(stopped)["simulated_s"], {"run.until.simulated": "1 h"})
    assert plan.origin["after_round"] == 3
    record(plan, place, goes_on=True, tell=lambda text: None)
    assert hashes(place) == hashes(whole)


def check_fork(whole: Path, after: int, changes: dict[str, Any]) -> Path:
    """Check forks of a run: without changes, with some, without checkpoints and resumed; return one."""
    beside = whole.with_name
    assert hashes(fork(whole, after, {}, beside("same"))) == hashes(whole)
    place, left_ns = fork(whole, after, changes, beside("place")), round(end_s(whole, after) * 1e9)
    assert hashes(place)[0] != hashes(whole)[0]
    pasts = [[one for one in records(folder) if one["at_ns"] < left_ns] for folder in (whole, place)]
    assert pasts[0] == pasts[1]
    bare = beside("bare")
    shutil.copytree(whole, bare, ignore=shutil.ignore_patterns("checkpoints"))
    assert hashes(fork(bare, after, changes, beside("anew"))) == hashes(place)
    plan, cut = forked(whole, end_s(whole, after), changes, beside("cut"))
    stop = interrupting(min(after + 1, read_summary(place)["rounds"] - 1))
    with pytest.raises(KeyboardInterrupt):
        record(plan, cut, goes_on=True, watch=stop, tell=lambda text: None)
    record(resumed_plan(cut), cut, goes_on=True, tell=lambda text: None)
    assert hashes(cut) == hashes(place)
    return place


def interrupting(number: int) -> Callable[[Any], None]:
    """Return what ends a run when a round begins after this one, of which there is a checkpoint."""

    def stop(row: Any) -> None:
        if row.round > number:
            raise KeyboardInterrupt

    return stop


def records(folder: Path) -> list[dict[str, Any]]:
    with (folder / "trace.msgpack").open("rb") as file:
        return list(read_trace(file))


def test_rounds_that_wait_for_nobody_any_more_are_driven_by_the_loop(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"participation.pacing.params.deadline": "30 ms"}  # a round takes 42 ms
    assert read_provenance(whole)["cohorts"]["run_beforehand"] > 0
    place = fork(whole, 2, changes, tmp_path / "place")
    assert read_summary(place)["drops"] > 0
    monkeypatch.setattr(runtime_run, "CohortDrivers", lambda *_: None)
    assert hashes(fork(whole, 2, changes, tmp_path / "by_the_loop")) == hashes(place)


def test_a_fork_of_the_folder_at_hand_lies_beside_it(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    assert forked(Path(), end_s(whole, 2), {})[1] == whole.resolve().with_name("whole-fork")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run.seed": 1}, "run.seed: a fork has it from the run that it comes from"),
        ({"algorithm.name": "fedprox"}, "algorithm.name: a fork has it"),
        ({"data.split": [0.5, 0.25, 0.25]}, "data.split"),
        ({"fleet.0.device": "low"}, "fleet.0.device"),
        ({"evaluation.split": "val"}, "evaluation.split"),
        (
            {"faults": [{"kind": "label_flip", "share": 0.5}]},
            "faults.0.kind: the labels on which clients train are those from the beginning",
        ),
    ],
)
def test_what_a_fork_cannot_change(whole: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        forked(whole, end_s(whole, 2), changes)
    assert not whole.with_name("whole-fork").exists()


@pytest.mark.parametrize(
    ("settings", "changes", "problem"),
    [
        (
            {"participation.pacing": {"name": "tiered", "params": {"tiers": 2}}},
            {"run.rounds": 9},
            "pacing 'tiered' has it from the beginning",
        ),
        (
            {"training.momentum": 0.5, "training.keep_optimiser": True},
            {"training.momentum": 0.9},
            "optimisers that clients keep",
        ),
    ],
)
def test_what_it_cannot_change_where_something_is_kept(
    tiny: dict[str, Any], tmp_path: Path, settings: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    folder = run(tiny, tmp_path / "run", settings)
    with pytest.raises(ScenarioError, match=problem):
        forked(folder, end_s(folder, 2), changes)


def test_the_instant_is_one_of_the_run(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"is known until .*, and not at 1 h: choose an earlier time"):
        forked(whole, 3600, {})
    with pytest.raises(OutputError, match=r"no round of the run in .* had ended by 1 µs: the first ended at"):
        forked(whole, 1e-6, {})
    with pytest.raises(
        OutputError, match=r"5 rounds of the run in .* had ended, and the fork has run\.rounds = 5"
    ):
        forked(whole, end_s(whole, ROUNDS), {})
    with pytest.raises(OutputError, match="replace it with the option force"):
        forked(whole, end_s(whole, 2), {}, whole)
