from pathlib import Path
from typing import Any

import pytest

from fedsim import __version__
from fedsim.errors import FileError, OutputError, RunError
from fedsim.report import atomic_folder
from fedsim.report.atomic_folder import write_file
from fedsim.report.continued_runs import facts_of
from fedsim.report.read_results import read_object, to_json
from fedsim.report.unfinished_runs import (
    check_resumable,
    is_at_work,
    is_unfinished,
    read_state,
    unfinished,
)

STATE: dict[str, Any] = {
    "status": "running",
    "fedsim": __version__,
    "libraries": {},
    "checkpoint": {},
    "has_checkpoints": True,
    "started_at": "2026-11-27",
    "wall_s": 0.0,
    "summary": None,
}


def test_the_folder_is_there_and_locked_while_the_run_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "run"
    with unfinished(place, STATE) as run:
        assert run.path == place
        assert is_unfinished(place)
        assert is_at_work(place)
        run.tell(wall_s=3.0)
        assert read_state(place)["wall_s"] == 3.0
        with (
            pytest.raises(OutputError, match="another process is at work"),
            unfinished(place, STATE, force=True),
        ):
            pass
        (place / "summary.json").write_text("{}")
        (place / "rounds.parquet.part").write_text("")
    assert {file.name for file in place.iterdir()} == {"summary.json"}
    assert not is_at_work(place)
    assert [file.name for file in place.parent.iterdir()] == ["run"]


def test_a_run_that_shows_nothing_yet_leaves_the_place_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "run"
    old.mkdir()
    (old / "summary.json").write_text("old")
    assert ended_by(KeyboardInterrupt(), old, force=True)
    assert (old / "summary.json").read_text() == "old"
    assert ended_by(ValueError(), tmp_path / "new" / "run")
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def ended_by(
    error: BaseException, place: Path, *, force: bool = False, is_worth_keeping: bool = False
) -> BaseException:
    """Return what a run raises that ends by an error."""

    def end() -> None:
        with unfinished(place, STATE, force=force) as run:
            assert not (place / "summary.json").exists()
            run.is_worth_keeping = is_worth_keeping
            raise error

    with pytest.raises(type(error)) as raised:
        end()
    return raised.value


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (KeyboardInterrupt(), "interrupted", "the run can be resumed in {}"),
        (FileError("full"), "failed", "the run can be resumed in {}"),
        (RunError("nobody is there"), "failed", "what there is of the run is in {}"),
    ],
)
def test_a_run_that_is_worth_keeping_stays(
    tmp_path: Path, error: BaseException, status: str, note: str
) -> None:
    place = tmp_path / "run"
    assert ended_by(error, place, is_worth_keeping=True) is error
    assert error.__notes__ == [note.format(place)]
    assert read_state(place)["status"] == status
    with unfinished(place, STATE, goes_on=True) as run:
        run.tell(**STATE)
        assert read_state(place)["status"] == "running"
        (place / "summary.json").write_text("{}")
    assert not is_unfinished(place)


def test_a_run_whose_process_has_gone_was_interrupted(tmp_path: Path) -> None:
    write_file(tmp_path / "state.json", to_json(STATE))
    assert read_object(tmp_path / "state.json")["status"] == "running"
    assert read_state(tmp_path)["status"] == "interrupted"


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    def refusal(**changes: Any) -> str:
        write_file(tmp_path / "state.json", to_json(STATE | changes))
        with pytest.raises(OutputError) as error:
            check_resumable(tmp_path)
        return str(error.value)

    with pytest.raises(OutputError, match=r"holds no unfinished run: name a folder in which is state\.json"):
        check_resumable(tmp_path)
    assert "since it was begun with fedsim 0.0, and fedsim" in refusal(fedsim="0.0")
    assert "since it was begun with torch 1.0, and torch" in refusal(libraries={"torch": "1.0"})
    assert "since it keeps no checkpoints" in refusal(has_checkpoints=False)
    assert "its server goes on with it when it is started again" in refusal(bus="http")
    with pytest.raises(OutputError, match="its server goes on with it"):
        facts_of(tmp_path, "forked")
    assert check_resumable_after(tmp_path, STATE)["status"] == "interrupted"
    (tmp_path / "summary.json").write_text("{}")
    assert "has come to its end: there is nothing left to resume" in refusal()
    (tmp_path / "summary.json").unlink()
    with unfinished(tmp_path, STATE, goes_on=True) as run:
        run.tell(**STATE)
        with pytest.raises(OutputError, match="another process is at work"):
            check_resumable(tmp_path)
        (run.path / "summary.json").write_text("{}")


def check_resumable_after(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    write_file(folder / "state.json", to_json(state))
    return check_resumable(folder)


def test_what_is_replaced_in_the_end_stays_until_then(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / "summary.json").write_text("old")
    with unfinished(place, STATE, force=True, at_end=True) as run:
        assert (place / "summary.json").read_text() == "old"
        (run.path / "summary.json").write_text("new")
    assert (place / "summary.json").read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_nobody_sweeps_away_what_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / "summary.json").write_text("old")

    def end() -> None:
        with unfinished(place, STATE, force=True):
            atomic_folder._sweep(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        end()
    assert (place / "summary.json").read_text() == "old"


def test_a_free_place_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "run"
    monkeypatch.setattr(atomic_folder, "is_free", lambda folder: True)
    with unfinished(place, STATE):
        with pytest.raises(OutputError, match="another process is at work"), unfinished(place, STATE):
            pass
        (place / "summary.json").write_text("{}")


def test_a_run_that_another_process_has_finished_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(OutputError, match="has finished the run"), unfinished(tmp_path, STATE, goes_on=True):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
