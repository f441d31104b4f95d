import json
from pathlib import Path

import pytest

import fedsim
from fedsim.errors import OutputError
from fedsim.scenario import load_each
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.plan import StudyPlan
from fedsim.studies.study_place import check_place, study_place

DOCUMENT = {"run": {"name": "tiny", "rounds": 1}, "fleet": [{"count": 4}]}
FIRST, SECOND, THIRD = (Path("runs") / name for name in ("tiny", "tiny-2", "tiny-3"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(algorithms: str = "fedavg local", *, rounds: int = 1) -> StudyPlan:
    return plan_of(load_each(DOCUMENT, {"run.rounds": rounds}, algorithms.split(), None))


def leave(folder: Path, scenario_toml: str) -> None:
    """Leave what a run leaves, as far as it is looked at."""
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    (folder / "scenario.toml").write_text(scenario_toml)
    provenance = {"status": "complete", "fedsim": fedsim.__version__, "bus": "memory"}
    (folder / "run.json").write_text(json.dumps(provenance))


def leave_comparison(parent: Path, plan: StudyPlan) -> None:
    for run in plan.runs:
        leave(parent / run.label, run.scenario_toml)
    (parent / "comparison.csv").write_text("")
    runs = [{"folder": run.label} for run in plan.runs]
    (parent / "comparison.json").write_text(json.dumps({"runs": runs}))


def test_a_comparison_goes_where_no_other_is() -> None:
    assert study_place(compared()) == FIRST
    leave_comparison(FIRST, compared())
    assert study_place(compared()) == FIRST
    assert study_place(compared("local fedavg")) == FIRST
    assert study_place(compared("fedavg")) == SECOND
    assert study_place(compared(rounds=2)) == SECOND
    assert study_place(compared(rounds=2), force=True) == FIRST
    leave_comparison(SECOND, compared(rounds=2))
    assert study_place(compared(rounds=2)) == SECOND
    assert study_place(compared(rounds=3)) == THIRD


def test_a_comparison_joins_runs_that_are_its_own_or_not_in_its_way() -> None:
    (fedavg, _), (other, _) = compared().runs, compared(rounds=2).runs
    leave(FIRST / "fedavg-seed0", fedavg.scenario_toml)
    leave(FIRST / "fedavg-seed0-2", other.scenario_toml)
    assert study_place(compared()) == FIRST
    assert study_place(compared(rounds=2)) == SECOND


@pytest.mark.parametrize("document", ["", "{}", '{"runs": 1}', '{"runs": [1]}', '{"runs": [{}]}'])
def test_a_table_that_cannot_be_read_is_another_comparison(document: str) -> None:
    leave_comparison(FIRST, compared())
    (FIRST / "comparison.json").write_text(document)
    assert study_place(compared()) == SECOND


def test_a_file_is_no_place_for_a_comparison() -> None:
    Path("runs").mkdir()
    FIRST.write_text("a file")
    assert study_place(compared()) == SECOND


def test_another_comparison_is_replaced_only_by_force() -> None:
    leave_comparison(FIRST, compared())
    check_place(compared(), FIRST)
    with pytest.raises(OutputError, match=r"comparison\.csv exists already: replace it with"):
        check_place(compared("fedavg"), FIRST)
    with pytest.raises(OutputError, match="fedavg-seed0 holds a run already: replace it with"):
        check_place(compared(rounds=2), FIRST)
    check_place(compared(rounds=2), FIRST, force=True)
