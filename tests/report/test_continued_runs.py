import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyarrow import parquet

from fedsim.errors import FileError, OutputError, RunError, ScenarioError
from fedsim.report import atomic_folder, continued_runs
from fedsim.report.continued_runs import extended_plan
from fedsim.report.job_time_file import read_job_times
from fedsim.report.read_results import read_object, to_json
from fedsim.report.record_run import record
from fedsim.report.summary import read_summary
from fedsim.report.unfinished_runs import is_unfinished
from fedsim.scenario import Plan, load_scenario
from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker, TrackerConfig
from tests.conftest import there

pytestmark = pytest.mark.usefixtures("each_round")


def run(tiny: dict[str, Any], folder: Path, **changes: Any) -> Path:
    """Run a scenario into a folder, with other values by path, where ``__`` stands for a dot."""
    values = {name.replace("__", "."): value for name, value in changes.items()}
    return record(Plan.of(load_scenario(tiny, values), "tiny"), folder).folder


def extend(folder: Path, rounds: int) -> Path:
    return record(extended_plan(folder, rounds), folder, goes_on=True, tell=lambda text: None).folder


def hashes(folder: Path) -> list[Any]:
    return [read_summary(folder)[name] for name in ("trace_hash", "model_hash", "rounds")]


def test_an_extended_run_is_the_longer_run(tiny: dict[str, Any], tmp_path: Path) -> None:
    whole = run(tiny, tmp_path / "whole", run__rounds=5, evaluation__every=2)
    short = run(tiny, tmp_path / "short", run__rounds=3, evaluation__every=2)
    told: list[str] = []
    plan = extended_plan(short, 5)
    assert is_unfinished(short)
    assert read_summary(short)["status"] == "interrupted"
    assert read_summary(short)["rounds"] == 3
    record(plan, short, goes_on=True, tell=told.append)
    # The last round was evaluated because it was the last: it is done again.
    assert told == [f"{short}: the run goes on after round 2"]
    assert hashes(short) == hashes(whole)
    for name in ("scenario.toml", "log.jsonl", "rounds.parquet", "dispatches.parquet"):
        assert (short / name).read_bytes() == (whole / name).read_bytes()
    assert hashes(extend(short, 6))[2] == 6


def test_batteries_are_as_they_were_where_a_run_goes_on(tiny: dict[str, Any], tmp_path: Path) -> None:
    battery = {"capacity": "1 J", "level": 0.3, "floor": 0.1, "charge_power": "50 mW", "plugged": "always"}
    changes: dict[str, Any] = {"fleet__0__battery": battery, "fleet__0__compute_power": "2 W"}
    whole = run(tiny, tmp_path / "whole", run__rounds=5, **changes)
    short = extend(run(tiny, tmp_path / "short", run__rounds=3, **changes), 5)
    assert hashes(short) == hashes(whole)
    assert (short / "clients.parquet").read_bytes() == (whole / "clients.parquet").read_bytes()
    assert len(set(parquet.read_table(whole / "clients.parquet")["battery_level"].to_pylist())) > 1


def test_without_checkpoints_the_run_begins_anew(tiny: dict[str, Any], tmp_path: Path) -> None:
    whole, short = run(tiny, tmp_path / "whole", run__rounds=4), run(tiny, tmp_path / "short", run__rounds=2)
    shutil.rmtree(short / "checkpoints")
    assert hashes(extend(short, 4)) == hashes(whole)


def test_a_run_that_stops_while_it_is_extended_can_be_resumed(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, short = run(tiny, tmp_path / "whole", run__rounds=4), run(tiny, tmp_path / "short", run__rounds=2)
    before = hashes(short)
    with monkeypatch.context() as patch:  # killed between the removal of the mark and the longer scenario
        write = atomic_folder.write_file

        def no_scenario(file: Path, *pieces: bytes) -> None:
            if file.name == "scenario.toml":
                raise KeyboardInterrupt
            write(file, *pieces)

        patch.setattr(continued_runs, "write_file", no_scenario)
        with pytest.raises(KeyboardInterrupt):
            extended_plan(short, 4)
    plan = continued_runs.resumed_plan(short)
    assert hashes(record(plan, short, goes_on=True, tell=lambda text: None).folder) == before
    assert hashes(extend(short, 4)) == hashes(whole)


@pytest.mark.parametrize(
    ("changes", "rounds", "problem"),
    [
        ({}, 2, "has 2 rounds already: write more than 2"),
        ({"run__until": {"bytes": "1 B"}}, 4, r"was ended by run\.until\.bytes"),
        ({"training__schedule": "cosine"}, 4, r"its training\.schedule depends on the number of rounds"),
        ({"evaluation__every": 3}, 4, None),
        ({"evaluation__every": 3, "run__checkpoint": {"keep": 1}}, 4, "from after its last evaluation"),
        ({"run__checkpoint": {"keep": 0}}, 4, None),
    ],
)
def test_what_depends_on_the_number_of_rounds_is_refused(
    tiny: dict[str, Any], tmp_path: Path, changes: dict[str, Any], rounds: int, problem: str | None
) -> None:
    folder = run(tiny, tmp_path / "run", **{"run__rounds": 2} | changes)
    if problem is None:
        assert hashes(extend(folder, rounds))[2] == rounds
        return
    before = hashes(folder)
    with pytest.raises(OutputError, match=problem):
        extended_plan(folder, rounds)
    assert not is_unfinished(folder)
    assert hashes(folder) == before


def test_an_algorithm_that_asks_for_the_number_of_rounds_cannot_be_extended(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    tables = tiny | {"algorithm": {"name": "fedme", "params": {"raise_at": [0.5, 0.6, 0.7]}}}
    folder = run(tables, tmp_path / "run", data__public__size=40)
    with pytest.raises(OutputError, match="'fedme' has asked for it"):
        extended_plan(folder, 9)


def test_other_folders_are_refused(tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"holds no run: name a folder in which is summary\.json"):
        extended_plan(tmp_path, 9)
    folder = run(tiny, tmp_path / "run")
    facts = read_object(folder / "run.json")
    (folder / "run.json").write_bytes(to_json(facts | {"fedsim": "0.0.1"}))
    with pytest.raises(OutputError, match=r"cannot be extended, since it was begun with fedsim 0\.0\.1"):
        extended_plan(folder, 9)
    (folder / "run.json").write_bytes(to_json(facts | {"verify": True}))
    with pytest.raises(OutputError, match="since it keeps no checkpoints"):
        extended_plan(folder, 9)
    (folder / "run.json").write_bytes(to_json(facts))
    extended_plan(folder, 9)
    with pytest.raises(OutputError, match="has not come to its end: resume it first"):
        extended_plan(folder, 9)


def test_other_data_are_noticed_before_anything_changes(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(tiny, tmp_path / "run")
    file = folder / "scenario.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 1"))
    with pytest.raises(RunError, match="the data are not the same"):
        extended_plan(folder, 9)
    assert not is_unfinished(folder)


def test_a_resumed_run_keeps_its_settings(tiny: dict[str, Any], tmp_path: Path) -> None:
    folder = run(tiny, tmp_path / "run")
    extended_plan(folder, 9)
    with pytest.raises(ScenarioError, match=r"replace engine\.workers or engine\.batching alone"):
        continued_runs.resumed_plan(folder, ["run.seed=1"])


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize(
    "share", [pytest.param(slice(0, None, 5), marks=pytest.mark.slow), slice(3, None, 17)]
)
def test_whatever_the_disk_refuses_the_run_goes_on_to_the_same_end(
    tiny: dict[str, Any], tmp_path: Path, disk: Any, share: slice, is_full: bool
) -> None:
    """Each call that writes fails once, or that and all later writes."""
    plan = Plan.of(load_scenario(tiny, {"run.rounds": 3}), "tiny")
    with disk.fails(None) as calls:
        whole = record(plan, tmp_path / "whole").folder
    kept = {"resumed": 0, "begun anew": 0}
    for number in range(len(calls))[share]:
        folder = tmp_path / f"run{number}"
        try:
            with disk.fails(number, is_full=is_full):
                record(plan, folder, tell=lambda text: None)
        except (FileError, OutputError) as error:  # before the run begins, it is its place that is refused
            if "No space left on device" not in str(error):
                raise
            kept["resumed" if folder.exists() else "begun anew"] += 1
        record(plan, folder, tell=lambda text: None)
        assert hashes(folder) == hashes(whole)
        for name in ("log.jsonl", "trace.msgpack", "rounds.parquet", "dispatches.parquet"):
            assert (folder / name).read_bytes() == (whole / name).read_bytes()
        assert not [file for file in tmp_path.rglob("*") if file.suffix == ".part" or file.name[0] == "."]
        shutil.rmtree(folder)
    assert min(kept.values()) > 0


class Screen(Tracker[TrackerConfig], Follower):
    """Shows runs in ``shown``: the folder that it was told, and the numbers of the rounds."""

    shown: ClassVar[list[tuple[str | None, list[int]]]] = []

    def open(self, run: TrackedRun) -> Follower:
        self.shown.append((self.config.folder, []))
        return self

    def note(self, point: Point) -> None:
        self.shown[-1][1].append(point.round)

    def close(self, summary: Any) -> None:
        pass

    def how_to_look(self, run: TrackedRun) -> str:
        return "look"


def test_trackers_and_times_of_jobs_go_on(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Screen, "shown", [])
    name = f"{__name__}.Screen"
    scenario = load_scenario(
        tiny, {"run.rounds": 4, "run.trackers": [{"name": name, "params": {"folder": "here"}}]}
    )
    folder = tmp_path / "run"

    def stop(row: Any) -> None:
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(Plan.of(scenario, "tiny"), folder, profile=True, watch=stop)
    before, _ = there(read_job_times(folder))
    record(continued_runs.resumed_plan(folder), folder, goes_on=True, tell=lambda text: None)
    assert Screen.shown == [("here", [1, 2]), ("here", [1, 2, 3, 4])]
    jobs, rounds = there(read_job_times(folder))
    assert jobs[: len(before)] == before != []
    assert sum(job.number for job in jobs if job.kind == "fit") == 16
    assert [number for number, _ in rounds] == [1, 2, 3, 4]
    assert [at_ns for _, at_ns in rounds] == sorted(at_ns for _, at_ns in rounds)
    # Where the run has ended, its trackers have too.
    told: list[str] = []
    extended_plan(folder, 5, [name])
    record(continued_runs.resumed_plan(folder), folder, goes_on=True, tell=told.append)
    assert Screen.shown[2:] == [(None, [1, 2, 3, 4, 5])]
    extended_plan(folder, 6, tell=told.append)
    assert f"{folder}: {name} showed the run, and shows no further rounds without --track" in told
