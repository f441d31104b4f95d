"""Random scenarios run twice and mean what they say; and what recomputes them notices every change."""

import ast
import tomllib
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from check_random_runs import SAME, Verdict, differences, run, shown, verdict
from check_run_folder import OF_DEVICES, OF_NO_EVENT, faults_of
from dice import Dice
from random_algorithms import ALGORITHMS
from random_scenarios import random_scenario
from recompute import NOT_DERIVABLE
from run_folder import TABLES, RunFolder

from fedsim import toml_writer
from fedsim.errors import InvariantError, RunError, UserError
from fedsim.plugins import available
from fedsim.rng import Key

SEEDS = range(30)
SOON = SEEDS[:6]
"""Those that run whenever tests do."""
TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def verdict_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Verdict]:
    """What came of a seed, which runs once."""
    return cache(lambda seed: verdict(seed, tmp_path_factory.mktemp(f"seed-{seed}")))


@pytest.mark.parametrize(
    "seed", [*SOON, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[len(SOON) :])]
)
def test_a_random_scenario_runs_twice_alike_and_its_folder_follows_from_its_trace(
    seed: int, verdict_of: Callable[[int], Verdict]
) -> None:
    assert not verdict_of(seed).faults


@pytest.mark.parametrize("seeds", [SOON, pytest.param(SEEDS, marks=pytest.mark.slow)])
def test_nearly_all_of_them_run_to_their_end(seeds: range, verdict_of: Callable[[int], Verdict]) -> None:
    ends = [verdict_of(seed).end for seed in seeds]
    assert ends.count("finished") >= 0.8 * len(seeds)
    assert "refused" not in ends


def test_some_hundred_seeds_reach_everything() -> None:
    drawn = {word for seed in range(600) for word in _words(random_scenario(seed).tables)}
    assert drawn >= {
        *ALGORITHMS,
        *("digits", "writers", "sizes", "synthetic_regression", "global_test", "global_test_users"),
        *("diurnal", "duty_cycle", "renewal", "trace", "drop_out", "file", "models", "models_by_size"),
        *("fluid", "naive", "none", "up_trace", "down_trace", "server_up_trace", "server_down_trace"),
        *("websocket", "http", "bus", "resume", "restart", "lost", "uniform", "by_size"),
        *("over_selection", "deadline", "deadline_quantile", "carry", "interval", "min_replies"),
        *("variable_epochs", "deadline_fitted", "load", "lognormal", "exponential", "half_normal"),
        *("skip", "repeat", "stop", "keep_optimiser", "adam", "momentum", "steps", "epochs"),
        *("augmentation", "clip_norm", "by", "at_start", "per_class", "kmeans", "mix"),
        *("threads", "null", "val", "held", "augment", "source", "users"),
        *("synchronous", "buffered", "immediate", "tiered", "lagged", "max_lag", "max_staleness"),
        *("constant", "polynomial", "hinge", "full_at"),
    }


def test_some_hundred_seeds_draw_every_schedule_and_every_transformation() -> None:
    tables = [random_scenario(seed).tables for seed in range(600)]
    for folder, drawn in (
        ("fedsim.engine.schedules", [one["training"].get("schedule", []) for one in tables]),
        ("fedsim.data.augmentations", [one["data"].get("augmentation", []) for one in tables]),
    ):
        names = {choice if isinstance(choice, str) else choice["name"] for some in drawn for choice in some}
        assert names == {found.name for found in available(folder)}


def _words(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        return {word for name, value in tree.items() for word in (name, *_words(value))}
    if isinstance(tree, list):
        return {word for value in tree for word in _words(value)}
    return {tree} if isinstance(tree, str) else set()


def test_dice_fall_the_same_way_for_ever() -> None:
    dice = Dice(Key.root(1).child("a name"))
    assert [dice.whole(0, 99) for _ in range(5)] == [57, 7, 41, 74, 99]
    assert [dice.child("part").whole(0, 99), dice.child("part").whole(0, 99)] == [63, 63]
    assert random_scenario(3) == random_scenario(3)


def test_a_failure_is_shown_with_all_that_it_takes_to_see_it_again() -> None:
    scenario = next(one for one in map(random_scenario, SEEDS) if one.files)
    first, fault, rest = shown(Verdict(7, "failed", ("it is wrong",)), scenario).split("\n", 2)
    assert (first, fault) == ("seed 7 failed:", "  it is wrong")
    assert tomllib.loads(rest) == scenario.tables
    told = rest.replace("\n#   ", "\n")
    assert all(f"# {name}:\n{text}" in told for name, text in scenario.files.items())


def test_a_file_that_differs_is_named(tmp_path: Path) -> None:
    for folder, wall_s in (("first", "1.5"), ("second", "0.25")):
        (tmp_path / folder).mkdir()
        for name in SAME:
            (tmp_path / folder / name).write_text("the same")
        (tmp_path / folder / "summary.json").write_text(f'{{"wall_s": {wall_s}, "drops": 1}}')
    folders = tmp_path / "first", tmp_path / "second"
    assert not list(differences(*folders))
    (folders[1] / "log.jsonl").write_text("another one")
    assert list(differences(*folders)) == ["log.jsonl of the second run is another one"]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RunError("r"), "ended"),
        (UserError("u"), "refused"),
        (InvariantError("i"), "failed"),
        (KeyError(), "failed"),
    ],
)
def test_only_an_error_that_a_scenario_may_earn_is_no_failure(
    error: Exception, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("check_random_runs.load_scenario", fail)
    assert run(tmp_path, 1)[0] == end


@pytest.mark.parametrize("file", ["recompute.py", "check_run_folder.py", "run_folder.py"])
def test_what_recomputes_shares_nothing_with_what_it_checks(file: str) -> None:
    nodes = list(ast.walk(ast.parse((TOOLS / file).read_text())))
    imported = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert imported
    assert not [name for name in imported if name.split(".")[0] == "fedsim"]


# What recomputes a folder notices any change of it

PACING = {"deadline": "10 s", "over_selection": 2.0, "interval": "20 s"}
EVENTFUL: dict[str, Any] = {
    "run": {"name": "eventful", "rounds": 3},
    "data": {"limit": 200},
    "models": {"linear": {}},
    "fleet": [
        {"name": "there", "count": 3, "speed": "3 MFLOP/s", "latency": "100 ms"},
        {
            "name": "coming and going",
            "count": 3,
            "speed": "30 kFLOP/s",
            "latency": "1 s",
            "up": "5 kbit/s",
            "drop_out": "0.15 /s",
            "availability": {"name": "duty_cycle", "params": {"period": "7 s", "on_share": 0.5}},
        },
    ],
    "participation": {
        "client_timeout": "20 s",
        "on_leave": "resume",
        "clients_per_round": 5,
        "pacing": {"name": "synchronous", "params": PACING},
    },
    "engine": {"workers": 1},
}


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run in which clients leave, drop out and come late."""
    return _ran(tmp_path_factory, 0.01)


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose replies are no numbers."""
    return _ran(tmp_path_factory, 1e6)


def _ran(tmp_path_factory: pytest.TempPathFactory, rate: float) -> RunFolder:
    place = tmp_path_factory.mktemp("eventful")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        training = {"lr": rate, "weight_decay": rate, "batch_size": 4}
        (place / "scenario.toml").write_text(toml_writer.document(EVENTFUL | {"training": training}))
        assert run(Path("run"), 1) == ("finished", "")
    return RunFolder.read(place / "run")


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.0001 + 1e-4
        case str():
            return f"{value}x"
        case list():
            return [*value, 0]
        case _:
            return 0.5


def test_the_run_is_eventful(eventful: RunFolder, rejected: RunFolder) -> None:
    assert faults_of(eventful) == faults_of(rejected) == []
    kinds = {record["kind"] for record in eventful.records}
    assert kinds >= {"leave", "return", "abandon", "drop", "late", "merge", "evaluation"}
    assert eventful.summary["rejected"] == 0 < rejected.summary["rejected"]


def test_each_figure_of_the_summary_is_noticed_but_for_what_nothing_else_tells(eventful: RunFolder) -> None:
    unnoticed = set()
    for path in _leaves(eventful.summary):
        changed = deepcopy(eventful)
        table = changed.summary
        for name in path[:-1]:
            table = table[name]
        table[path[-1]] = _other(table[path[-1]])
        if not faults_of(changed):
            unnoticed.add(".".join(path))
    assert unnoticed <= NOT_DERIVABLE.keys()


def _leaves(table: dict[str, Any], *above: str) -> list[tuple[str, ...]]:
    return [
        path
        for name, value in table.items()
        for path in (_leaves(value, *above, name) if isinstance(value, dict) else [(*above, name)])
    ]


@pytest.mark.parametrize("table", TABLES)
def test_each_column_of_a_table_is_noticed_but_for_what_no_event_tells(
    eventful: RunFolder, table: str
) -> None:
    untold = {"rounds": OF_NO_EVENT, "clients": OF_DEVICES}.get(table, ())
    rows = eventful.tables[table]
    for column in rows[0]:
        changed = deepcopy(eventful)
        row = changed.tables[table][len(rows) // 2]
        row[column] = _other(row[column])
        assert faults_of(changed) or column in untold, column


@pytest.mark.parametrize("table", TABLES)
def test_a_row_too_few_is_noticed(eventful: RunFolder, table: str) -> None:
    changed = deepcopy(eventful)
    del changed.tables[table][-1]
    assert faults_of(changed)


FIELDS = {
    "dispatch": ("at_ns", "round", "exchange"),
    "transfer_start": ("at_ns", "bytes", "overhead"),
    "transfer_end": ("at_ns", "outcome"),
    **dict.fromkeys(("job_start", "job_end", "leave", "return", "late", "round_end"), ("at_ns",)),
    "drop": ("at_ns", "cause"),
    "reject": ("at_ns", "reason"),
    "merge": ("clients",),
    "evaluation": ("personal_mean",),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in FIELDS for name in FIELDS[kind]])
def test_a_line_of_the_trace_is_noticed(
    eventful: RunFolder, rejected: RunFolder, kind: str, name: str
) -> None:
    changed = deepcopy(rejected if kind == "reject" else eventful)
    record = next(one for one in changed.records if one["kind"] == kind and one.get("client") != -1)
    record[name] = [] if name == "clients" else _other(record[name])
    if name == "clients":
        record["dispatches"] = []
    assert faults_of(changed)


def test_another_byte_of_the_trace_is_another_hash(eventful: RunFolder) -> None:
    changed = deepcopy(eventful)
    changed.hash = "0" * 32
    assert faults_of(changed)


@pytest.mark.parametrize("event", ["begin", "dropped", "late", "round", "end"])
def test_a_line_of_the_log_too_few_is_noticed(eventful: RunFolder, event: str) -> None:
    changed = deepcopy(eventful)
    changed.log.remove(next(line for line in changed.log if line["event"] == event))
    assert faults_of(changed)
