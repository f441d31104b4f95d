"""What recomputes the folder of a run notices any change of it."""

import ast
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fedsim.fuzz import check_run_folder
from fedsim.fuzz.check_run_folder import OF_DEVICES, OF_NO_EVENT, faults_of
from fedsim.fuzz.examine import run
from fedsim.fuzz.random_scenarios import RandomScenario
from fedsim.fuzz.recompute import NOT_DERIVABLE
from fedsim.fuzz.run_folder import TABLES, RunFolder

FOLDER = Path(check_run_folder.__file__).parent


@pytest.mark.parametrize("file", ["recompute.py", "check_run_folder.py", "run_folder.py"])
def test_what_recomputes_shares_nothing_with_what_it_checks(file: str) -> None:
    nodes = list(ast.walk(ast.parse((FOLDER / file).read_text())))
    imported = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert imported
    own = {"fedsim.fuzz.recompute", "fedsim.fuzz.run_folder"}
    assert not [name for name in imported if name.split(".")[0] == "fedsim" and name not in own]


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
    training = {"lr": rate, "weight_decay": rate, "batch_size": 4}
    scenario = RandomScenario(EVENTFUL | {"training": training})
    assert run(scenario, place / "run", {}, verify=True) == ("finished", "")
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


def test_levels_of_batteries_are_noticed(tmp_path: Path) -> None:
    battery = {"capacity": "6 J", "floor": 0.0, "charge_power": "1 W", "plugged": "away"}
    phones = EVENTFUL["fleet"][1] | {"transmit_power": "2 W", "drop_out": "0 /s", "battery": battery}
    tables = EVENTFUL | {"fleet": [EVENTFUL["fleet"][0], phones]}
    assert run(RandomScenario(tables), tmp_path / "run", {}, verify=True) == ("finished", "")
    folder = RunFolder.read(tmp_path / "run")
    assert faults_of(folder) == []
    assert {record["cause"] for record in folder.records if record["kind"] == "abandon"} >= {"battery empty"}
    first = next(place for place, record in enumerate(folder.records) if record["kind"] == "battery")
    changed = deepcopy(folder)
    del changed.records[first]
    assert any("0 levels of the battery" in fault for fault in faults_of(changed))
    empty = deepcopy(folder)
    for record in empty.records:
        record |= {"level_j": 1.0} if record["kind"] == "battery" else {}
    assert any("ran empty with 1.0 J" in fault for fault in faults_of(empty))
    full = deepcopy(folder)
    full.tables["clients"][0]["battery_level"] = 0.5
    assert any("the level of the battery of client 0" in fault for fault in faults_of(full))
