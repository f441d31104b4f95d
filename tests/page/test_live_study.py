"""What a live page shows of a comparison in this process, and of a study in others."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fedsim.figures.chart_types import LineChart
from fedsim.page.live_snapshot import Snapshot
from fedsim.page.live_study import LiveStudy
from fedsim.page.page_content import Page
from fedsim.scenario import load_each
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.perform import Progress, perform
from fedsim.studies.plan import load_study
from tests.conftest import there

ALGORITHMS = ("fedavg", "local")


@pytest.fixture
def scenarios(tiny_scenario: str, tmp_path: Path) -> list[Any]:
    file = tmp_path / "tiny.toml"
    file.write_text(tiny_scenario)
    return load_each(file, (), ALGORITHMS, [0, 1])


def runs_of(look: Snapshot) -> dict[str, tuple[str, str]]:
    """Return state and word of each run of the table, by label."""
    assert look.page.table is not None
    return {row[0]: (row[1], row[2]) for row in look.page.table.table.rows}


def lines_of(look: Snapshot) -> list[str]:
    """Return the labels of the lines of the first curves."""
    (section,) = [one for one in look.page.sections if one.name == "quality"]
    chart = section.figures[0].chart
    assert isinstance(chart, LineChart)
    return [line.label for line in chart.lines]


def test_a_comparison_in_this_process(scenarios: list[Any], tmp_path: Path) -> None:
    parent = tmp_path / "there"
    plan = plan_of(scenarios, [0.5])
    live = LiveStudy(plan, parent)
    seen = dict[str, list[Snapshot]]()

    def watch(progress: Progress) -> None:
        live.update(progress)
        if progress.run is not None and progress.row is not None:
            seen.setdefault(progress.run.label, []).append(live.snapshot())

    before = live.snapshot()
    assert before.page.answer == "0 of 4 runs ended."
    assert set(runs_of(before).values()) == {("waiting", "")}
    perform(plan, parent, jobs=1, watch=watch, observe=live.observe)
    first, last = seen["fedavg-seed0"][0], seen["local-seed1"][-1]
    assert runs_of(first)["fedavg-seed0"] == ("running", "round 1 of 2")
    assert first.share == pytest.approx(0.5 / 4)
    assert last.page.answer.startswith("3 of 4 runs ended, 1 under way.")
    assert last.share == 1.0
    assert next(iter(runs_of(last))) == "local-seed1", "what is under way comes first"
    assert lines_of(last) == ["fedavg", "local", "local-seed1, so far"]
    assert [section.name for section in last.page.sections] == ["now", "quality"]
    assert [table.name for table in last.page.tables] == ["so-far", "events"]
    after = live.snapshot()
    assert set(runs_of(after).values()) == {("ended", "")}
    assert lines_of(after) == ["fedavg", "local"]
    again = LiveStudy(plan_of(scenarios), parent).snapshot()
    assert again.page.answer == "4 of 4 runs ended.", "they were there before"
    live.ended(lambda: Page("report", "comparison", ""))
    assert live.snapshot().page.title == "report"


def test_only_so_many_curves_are_read_at_once(
    scenarios: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.page.live_study.MAX_READ", 1)
    plan = plan_of(scenarios)
    perform(plan, tmp_path / "o", jobs=1)
    live = LiveStudy(plan, tmp_path / "o")
    assert [lines_of(live.snapshot()) for _ in range(3)] == [
        ["fedavg"],
        ["fedavg", "local"],
        ["fedavg", "local"],
    ]


def test_a_run_that_fails_is_named_with_its_reason(scenarios: list[Any], tmp_path: Path) -> None:
    plan = plan_of(scenarios)
    live = LiveStudy(plan, tmp_path)
    live.update(Progress(4, 0, 1, run=plan.runs[1], said="it failed:\nbad dice"))
    assert runs_of(live.snapshot())["local-seed0"] == ("failed", "bad dice")
    assert live.snapshot().page.answer.startswith("0 of 4 runs ended, 1 failed.")
    live.failed("It failed: bad dice")
    assert live.snapshot().state == "failed"
    assert live.snapshot().page.answer.endswith("It failed: bad dice")


def test_runs_of_other_processes_are_known_by_what_they_tell(scenarios: list[Any], tmp_path: Path) -> None:
    plan = plan_of(scenarios)
    live = LiveStudy(plan, tmp_path)
    one, other, *_ = plan.runs
    live.update(Progress(4, 0))
    live.update(Progress(4, 0, 0, {one.label: 1}, one))
    live.update(Progress(4, 0, 0, {one.label: 1, other.label: 2}, other))
    live.update(Progress(4, 0, 1, {one.label: 1}, other, "no such luck"))
    look = live.snapshot()
    assert runs_of(look)[one.label] == ("running", "round 1 of 2")
    assert runs_of(look)[other.label] == ("failed", "no such luck")
    assert look.share == pytest.approx((0.5 + 1) / 4)
    assert look.page.answer.startswith("0 of 4 runs ended, 1 under way, 1 failed. About ")
    assert look.page.sections == []


def test_after_trials_the_time_left_is_told_by_the_runs_that_follow_them(
    tiny_tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("fedsim.page.live_study.monotonic", lambda: now_s)
    tune = {"seeds": [7, 8, 9], "training.lr": [0.1, 0.5]}
    study = {"base": tiny_tables, "seeds": [0, 1], "variant": [{"algorithm": "fedavg"}], "tune": tune}
    plan = load_study(study)
    live = LiveStudy(plan, tmp_path)
    trials = [trial for trials in plan.trials.values() for trial in trials]
    live.update(Progress(8, 0, begun=trials))
    now_s = 10.0
    for number, trial in enumerate(trials, 1):  # all at once
        live.update(Progress(8, 0, number, {}, trial, "ended"))
    assert live.snapshot().share == pytest.approx(6 / 8)
    runs = plan.chosen({plan.settings[0]: 1}).runs
    live.update(Progress(8, 0, 6, begun=runs))
    assert runs_of(live.snapshot())[runs[1].label] == ("waiting", "")
    now_s = 15.0
    live.update(Progress(8, 0, 6, {runs[0].label: 1}, runs[0]))
    look = live.snapshot()
    assert look.share == pytest.approx(6.5 / 8)
    # Half of a run of two took 5 s.
    assert look.page.answer == "6 of 8 runs ended, 1 under way. About 15 s left."


def test_trials_have_no_curves_and_no_figures_are_made_for_them_again_and_again(
    tiny_tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(return_value={})
    monkeypatch.setattr("fedsim.page.live_study.read_curve", read)
    monkeypatch.setattr("fedsim.page.live_study.study_curve_figures", figures := Mock(return_value=[]))
    variants = [{"algorithm": "fedavg", "name": name} for name in ("tuning", "plain")]
    tune = {"seeds": [7], "training.lr": [0.1, 0.5]}
    plan = load_study({"base": tiny_tables, "seeds": [0], "variant": variants, "tune": tune})
    runs = plan.chosen(dict.fromkeys(plan.settings, 1)).runs
    live = LiveStudy(plan, tmp_path)
    for run in (*(trial for trials in plan.trials.values() for trial in trials), *runs):
        live.update(Progress(6, 0, run=run, said="ended"))
    for _ in range(3):
        live.snapshot()
    assert [call.args[0] for call in read.call_args_list] == [tmp_path / run.label for run in runs]
    assert figures.call_count == 1


def test_a_long_list_of_runs_is_cut(
    scenarios: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsim.page.live_study.MAX_LISTED", 3)
    plan = plan_of(scenarios)
    live = LiveStudy(plan, tmp_path)
    last = plan.runs[-1]
    live.update(Progress(4, 0, 0, {last.label: 1}, last))
    table = there(live.snapshot().page.table)
    assert [row[0] for row in table.table.rows] == [last.label, *(run.label for run in plan.runs[:2])]
    assert table.table.notes == ["and 1 run more"]
