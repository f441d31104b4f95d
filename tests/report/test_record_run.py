import io
import json
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, compress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedsim import clock, durable
from fedsim.bus import Log
from fedsim.clock import read_trace
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import FileError, OutputError, RunError
from fedsim.fleet import build_fleet
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.entries import GroupConfig, ServerConfig
from fedsim.fleet.power import EnergyConfig
from fedsim.network import OverheadConfig
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.network.fault_settings import FaultConfig
from fedsim.network.fluid import Fluid, FluidConfig
from fedsim.report import record_run as module
from fedsim.report import run_text
from fedsim.report.checkpoints import CheckpointFolder
from fedsim.report.columns import Table
from fedsim.report.keep_checkpoints import CheckpointKeeper, StoredPast
from fedsim.report.record_run import Recorded, line_log, record
from fedsim.report.run_columns import EDGE_MESSAGES, RUN_TABLES, SUMMED, TRAFFIC
from fedsim.report.summary import read_summary
from fedsim.report.unfinished_runs import read_state
from fedsim.rng import Key
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult
from fedsim.scenario import Plan
from fedsim.scenario.schema import CheckpointConfig

FILES = {
    *("scenario.toml", "summary.json", "run.json", "trace.msgpack", "log.jsonl"),
    *("rounds.parquet", "clients.parquet", "client_classes.parquet", "evaluations.parquet"),
    *("dispatches.parquet", "messages.parquet"),
}
SUMMARY = (
    "fedsim scenario algorithm seed rounds stopped_by clients ineligible simulated_s wall_s bytes_up "
    "bytes_down bytes_plain_up bytes_plain_down data_up data_down frames_up frames_down parameters_up "
    "parameters_down accuracy loss "
    "drops rejected rejected_by_reason finite divergence trace_hash model_hash time bytes drops_by_cause "
    "participation wasted staleness concurrency merges merges_per_hour codec_saturated"
)


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / f"{name}.parquet").to_pylist()
    return rows


Do = Callable[..., Recorded]


@pytest.fixture
def do(make_parts: Callable[..., Parts], tmp_path: Path) -> Do:
    """Return a function that does the tiny run with other parts, and leaves its folder."""

    def record_it(algorithm: str = "fedavg", folder: str = "run", **changes: Any) -> Recorded:
        return record(Plan("tiny", algorithm, "", make_parts(algorithm, **changes)), tmp_path / folder)

    return record_it


def test_a_run_leaves_its_folder(plan: Plan, tmp_path: Path) -> None:
    seen: list[int] = []
    done = record(plan, tmp_path / "run", watch=lambda row: seen.append(row.round))
    assert seen == [1, 2]
    assert {path.name for path in done.folder.iterdir()} == FILES
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary == done.summary
    assert list(summary) == SUMMARY.split()
    accuracies = "personal_mean personal_std personal_worst_decile global best best_global others"
    assert list(summary["accuracy"]) == accuracies.split()
    assert list(summary["loss"]) == ["personal_mean", "personal_std", "global", "best"]
    assert (summary["scenario"], summary["algorithm"], summary["seed"]) == ("tiny", "fedavg", 0)
    assert (summary["rounds"], summary["clients"]) == (2, 4)
    assert (summary["frames_up"], summary["frames_down"]) == (8, 8)
    # 8 models of 64 x 10 + 10 parameters each way.
    assert (summary["parameters_up"], summary["parameters_down"]) == (5200, 5200)
    assert 0 <= summary["accuracy"]["personal_mean"] <= 1
    assert tomllib.loads((done.folder / "scenario.toml").read_text()) == {"run": {"name": "tiny"}}
    run = json.loads((done.folder / "run.json").read_text())
    assert (run["status"], run["workers"], run["device"]) == ("complete", 1, "cpu")
    assert run["libraries"]["torch"]
    assert run["cohorts"] == {"asked": 2, "run_beforehand": 2}


def test_the_tables_agree_with_the_summary(do: Do, plan: Plan) -> None:
    done = do(overhead=OverheadConfig(protocol="bus"))
    summary = done.summary
    rounds, clients = table(done.folder, "rounds"), table(done.folder, "clients")
    evaluations, messages = table(done.folder, "evaluations"), table(done.folder, "messages")
    assert [row["round"] for row in rounds] == [1, 2]
    assert rounds[-1]["ended_at_s"] == summary["simulated_s"]
    assert [row["client"] for row in clients] == [0, 1, 2, 3]
    assert {(row["group"], row["label"], row["model"]) for row in clients} == {("high", "high", "linear")}
    assert sum(row["num_train"] for row in clients) == plan.parts.data.sizes("train").sum()
    assert [row["asked"] for row in clients] == [2, 2, 2, 2]
    devices = [plan.parts.fleet.device(client) for client in range(4)]
    assert list(clients[0])[4:14] == [quantity.attribute for quantity in QUANTITIES.values()]
    for column in list(clients[0])[4:14]:
        assert [row[column] for row in clients] == [getattr(device, column) for device in devices]
    for name in TRAFFIC:
        assert sum(row[name] for row in rounds) == getattr(done.result.totals, name)
        assert sum(row[name] for row in clients) == getattr(done.result.totals, name)
    assert sum(row["bytes"] for row in messages if row["up"]) == summary["bytes_up"]
    for way in ("up", "down"):
        overhead = sum(row["overhead"] for row in messages if row["up"] == (way == "up"))
        assert overhead == summary["bytes"][f"overhead_{way}"] > 0
    assert {(row["exchange"], row["kind"]) for row in messages} == {("train", "model"), ("train", "update")}
    assert {row["outcome"] for row in messages} == {"delivered"}
    assert [(row["round"], row["client"]) for row in evaluations] == [
        (r, c) for r in (1, 2) for c in range(4)
    ]
    last = [row["accuracy"] for row in evaluations if row["round"] == 2]
    assert last == [row["accuracy"] for row in clients]
    assert np.mean(last) == pytest.approx(summary["accuracy"]["personal_mean"])
    assert rounds[-1]["accuracy_mean"] == summary["accuracy"]["personal_mean"]
    losses = [row["loss"] for row in evaluations if row["round"] == 2]
    assert losses == [row["loss"] for row in clients]
    assert np.mean(losses) == pytest.approx(summary["loss"]["personal_mean"])
    assert [rounds[-1][f"loss_{part}"] for part in ("mean", "std", "global")] == [
        summary["loss"][part] for part in ("personal_mean", "personal_std", "global")
    ]
    assert summary["loss"]["best"] == min(row["loss_mean"] for row in rounds)


def test_time_and_waste_agree_in_all_tables(do: Do) -> None:
    done = do(pacing=SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "1 ms"})))
    summary, dispatches = done.summary, table(done.folder, "dispatches")
    assert [(row["round"], row["client"], row["dispatch"]) for row in dispatches] == [
        (r, c, r - 1) for r in (1, 2) for c in range(4)
    ]
    assert {(row["exchange"], row["outcome"], row["cause"]) for row in dispatches} == {
        ("train", "dropped", "round failed")
    }
    for row in dispatches:
        parts = [row[f"{phase}_s"] for phase in ("download", "compute", "upload", "waiting")]
        assert sum(parts) == pytest.approx(row["ended_at_s"] - row["asked_at_s"], abs=4e-9)
    for name in ("rounds", "clients"):
        rows = table(done.folder, name)
        for key, total in summary["time"].items():
            assert sum(row[key] for row in rows) == pytest.approx(total)
        assert sum(row["wasted_bytes"] for row in rows) == summary["bytes"]["wasted"]
        assert sum(row["dropped_round_failed"] for row in rows) == 8
    assert summary["bytes"]["wasted"] == summary["bytes_down"] + summary["bytes_up"] > 0
    assert summary["drops_by_cause"] == {"round failed": 8}
    time = summary["time"]
    assert time["wasted_s"] == pytest.approx(time["download_s"] + time["compute_s"] + time["upload_s"])
    assert summary["participation"]["dropped"] == 8
    assert summary["participation"]["clients_asked"] == 4
    assert summary["participation"]["clients_merged"] == 0


def test_rounds_sum_to_the_summary_where_the_run_ends_before_its_clients(do: Do) -> None:
    # Nobody answers within a millisecond, and answers are carried over until the run ends.
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "1 ms", "late": "carry"}))
    done = do(pacing=pacing)
    summary, rounds = done.summary, table(done.folder, "rounds")
    assert [(row["round"], row["asked"], row["dropped"]) for row in rounds] == [
        (1, 4, 0),
        (2, 0, 0),
        (3, 0, 4),
    ]
    assert [row["dropped_the_run_ended"] for row in rounds] == [0, 0, 4]
    assert summary["drops_by_cause"] == {"the run ended": 4}
    for name in ("asked", "merged", "dropped", "rejected", "late"):
        assert sum(row[name] for row in rounds) == summary["participation"][name]
    for name, total in summary["time"].items():
        assert sum(row[name] for row in rounds) == pytest.approx(total)
    for name in TRAFFIC:
        assert sum(row[name] for row in rounds) == getattr(done.result.totals, name)
    assert sum(row["wasted_bytes"] for row in rounds) == summary["bytes"]["wasted"]


def test_a_run_that_ends_with_models_that_are_not_finite_says_so(do: Do) -> None:
    done = do("local", training=TrainingConfig(lr=1e6, weight_decay=1e6, steps=3))
    assert {path.name for path in done.folder.iterdir()} == FILES
    assert json.loads((done.folder / "summary.json").read_text())["finite"] is False
    lines = map(json.loads, (done.folder / "log.jsonl").read_text().splitlines())
    (line,) = [line for line in lines if "cause" in line]
    assert line["cause"] == done.result.non_finite


def test_a_run_that_diverges_says_so_everywhere(do: Do) -> None:
    # Each step takes weights times 999: after five they are some 1e14, and after ten beyond 1.8e19.
    done = do(training=TrainingConfig(lr=1000, weight_decay=1, steps=5), rounds=3)
    said = "8 of 12 replies rejected as not finite: is training.lr = 1000 too high?"
    assert done.remarks == [said]
    assert json.loads((done.folder / "summary.json").read_text())["divergence"] == said
    (line,) = [line for line in (done.folder / "log.jsonl").read_text().splitlines() if said in line]
    assert json.loads(line) == {"level": "warning", "event": "divergence", "remark": said}
    assert done.result.failure is None


def test_classes_are_counted_where_that_is_asked_for(do: Do, plan: Plan) -> None:
    data = replace(plan.parts.data, class_names=tuple("abcdefghij"))
    done, plain = do(evaluation=EvaluationConfig(per_class=True), data=data), do(folder="plain")
    assert {path.name for path in done.folder.iterdir()} == FILES | {"classes.parquet", "confusion.parquet"}
    same = done.summary.keys() - {"macro_f1", "wall_s"}
    assert {key: done.summary[key] for key in same} == {key: plain.summary[key] for key in same}
    assert "macro_f1" not in plain.summary
    classes, confusion = (table(done.folder, name) for name in ("classes", "confusion"))
    evaluations, rounds = (table(done.folder, name) for name in ("evaluations", "rounds"))
    for last in rounds:
        for test_set, accuracy in (
            ("clients", last["accuracy_weighted_mean"]),
            ("global", last["accuracy_global"]),
        ):
            rows = [row for row in classes if (row["round"], row["test_set"]) == (last["round"], test_set)]
            cells = [row for row in confusion if (row["round"], row["test_set"]) == (last["round"], test_set)]
            total = sum(row["num_samples"] for row in rows)
            assert sum(row["num_correct"] for row in rows) / total == pytest.approx(accuracy)
            assert sum(row["num_predicted"] for row in rows) == total
            for row in rows:
                assert row["class_name"] == "abcdefghij"[row["class"]]
                its = [cell["num_samples"] for cell in cells if cell["true_class"] == row["class"]]
                assert sum(its) == row["num_samples"]
                assert (row["recall"] is None) == (row["num_samples"] == 0)
            scores = [row["f1"] for row in rows]
            if last["round"] == 2:
                assert done.summary["macro_f1"][test_set] == pytest.approx(sum(scores) / len(scores))
    own = sum(row["num_samples"] for row in evaluations if row["round"] == 2)
    assert own == sum(row["num_samples"] for row in confusion if row["test_set"] == "clients") / 2


@pytest.mark.parametrize("described", RUN_TABLES.values(), ids=RUN_TABLES)
def test_each_column_explains_itself_and_each_description_has_its_column(described: Table, do: Do) -> None:
    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "1 ms"}))
    faults = (FaultConfig.model_validate({"kind": "sign_flip", "share": 0.5}),)
    energy = EnergyConfig.model_validate({"carbon_intensity": "300 g/kWh"})
    cells = Cells(["A"], np.array([0, -1, 0, -1], np.int32), up=[1e9], down=[inf], latency_s=[0.0])
    # An edge waits for all of its clients, whatever the deadline of the other tables.
    edges = Edges(cells, [0], [1], [1e9], [1e9], [0.0])
    waiting = {"edges": edges} if described is EDGE_MESSAGES else {"pacing": pacing}
    group = GroupConfig.model_validate(
        {"count": 4, "device": "high", "model": "linear", "battery": {"capacity": "1 kJ"}}
    )
    changes: dict[str, Any] = {
        "fleet": build_fleet([group], ServerConfig(), Key.root(0), default_model="linear"),
        "evaluation": EvaluationConfig(per_class=True),
        "network": Fluid(FluidConfig()),
        **waiting,
    }
    done = do(faults=faults, energy=energy, cells=cells, **changes)
    schema = pq.read_schema(done.folder / described.file)
    names = [name.replace("dropped_<cause>", "dropped_round_failed") for name in described.columns]
    assert schema.names == names
    assert schema.metadata[b"fedsim_table"] == described.name.encode()
    assert schema.metadata[b"fedsim_schema"] == b"6"
    for name in names:
        column, field = described.column(name), schema.field(name)
        assert field.metadata[b"description"].decode() == column.description
        assert field.metadata[b"unit"].decode() == column.unit
        stored = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        assert stored == pa.type_for_alias(column.type)


def test_edges_add_their_frames_to_the_summary_and_leave_the_other_tables_as_they_are(do: Do) -> None:
    # Clients 0 and 1 are at the edge, 2 and 3 reach the server directly.
    cells = Cells(["A"], np.array([0, 0, -1, -1], np.int32), [1e9], [1e9], [0.0])
    edges = Edges(cells, [0], [2], [1e9], [1e9], [0.0])
    done = do(network=Fluid(FluidConfig()), cells=cells, edges=edges)
    messages, at_edge = table(done.folder, "messages"), table(done.folder, "edge_messages")
    summary, told = done.summary, done.summary["edges"]
    assert (told["count"], told["means"], len(at_edge)) == (1, 4, 4)
    for way, up in (("up", True), ("down", False)):
        assert summary[f"bytes_{way}"] == sum(one["bytes"] for one in messages if one["up"] == up)
        for name in ("bytes", "overhead"):
            assert told[f"{name}_{way}"] == sum(one[name] for one in at_edge if one["up"] == up)
        direct = sum(one["bytes"] for one in messages if one["up"] == up and one["client"] >= 2)
        assert told[f"at_server_{way}"] == told[f"bytes_{way}"] + direct
        assert told[f"frames_{way}"] == 2
    assert all(one["arrived_at_s"] > one["sent_at_s"] for one in at_edge)
    words = dict(run_text.pairs(summary))["edges"]
    assert words == "4 means, 16.8 kB up, 16.8 kB down over the server's link"
    assert not (done.folder / "checkpoints").exists()


def test_rounds_have_sums_since_the_start_and_a_row_before_training(do: Do) -> None:
    done = do(evaluation=EvaluationConfig(at_start=True))
    rounds = table(done.folder, "rounds")
    assert [row["round"] for row in rounds] == [0, 1, 2]
    assert all(row["accuracy_mean"] is not None for row in rounds)
    assert {row["round"] for row in table(done.folder, "evaluations")} == {0, 1, 2}
    for name in SUMMED:
        assert [row[f"cumulative_{name}"] for row in rounds] == list(accumulate(row[name] for row in rounds))
        assert rounds[0][f"cumulative_{name}"] == 0
        assert rounds[-1][f"cumulative_{name}"] == done.summary[name]


def test_messages_have_the_times_at_which_they_were_sent_and_arrived(do: Do) -> None:
    done = do()
    asked = {(row["client"], row["dispatch"]): row for row in table(done.folder, "dispatches")}
    messages = table(done.folder, "messages")
    assert len(messages) == 2 * len(asked) == 16
    for row in messages:
        dispatch = asked[row["client"], row["dispatch"]]
        assert row["sent_at_s"] < row["arrived_at_s"]
        if row["up"]:
            assert row["arrived_at_s"] == dispatch["ended_at_s"]
            assert row["arrived_at_s"] - row["sent_at_s"] == pytest.approx(dispatch["upload_s"])
        else:
            assert row["sent_at_s"] == dispatch["asked_at_s"]
            assert row["arrived_at_s"] - row["sent_at_s"] == pytest.approx(dispatch["download_s"])


def test_what_is_not_measured_is_null(do: Do) -> None:
    done = do(executor="null")
    accuracy = dict(done.summary["accuracy"])
    assert accuracy.pop("others") == {}
    assert set(accuracy.values()) == {None}
    assert set(done.summary["loss"].values()) == {None}
    assert "NaN" not in (done.folder / "summary.json").read_text()
    assert table(done.folder, "evaluations") == []
    assert [row["accuracy"] for row in table(done.folder, "clients")] == [None] * 4
    assert [row["accuracy_mean"] for row in table(done.folder, "rounds")] == [None, None]


def test_a_run_without_frames_has_an_empty_ledger(do: Do) -> None:
    done = do("local")
    assert table(done.folder, "messages") == []
    assert done.summary["bytes_up"] == done.summary["frames_down"] == 0


def test_equal_runs_leave_equal_files(do: Do) -> None:
    runs = (("a", False), ("b", False), ("c", True))
    folders = [do(folder=name, verify=verify).folder for name, verify in runs]
    for name in sorted(FILES - {"run.json", "summary.json"}):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1, name
    summaries = [json.loads((folder / "summary.json").read_text()) | {"wall_s": 0} for folder in folders]
    assert summaries[0] == summaries[1] == summaries[2]


def test_trace_and_log_tell_the_run(do: Do) -> None:
    done = do()
    with (done.folder / "trace.msgpack").open("rb") as file:
        records = list(read_trace(file))
    assert sum(one["kind"] == "dispatch" for one in records) == 8
    log = [json.loads(line) for line in (done.folder / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in log] == ["begin", "round", "round", "end"]
    assert log[2]["at_s"] == done.summary["simulated_s"]


TWO = CheckpointConfig(keep=2)


def interrupted(plan: Plan, folder: Path, at_round: int) -> None:
    def interrupt(row: RoundRow) -> None:
        if row.round == at_round:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(plan, folder, watch=interrupt)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a run that do not depend on the host."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in HOST}


HOST = ("summary.json", "run.json", "checkpoints")


def test_an_interruption_before_the_first_round_has_ended_leaves_nothing(plan: Plan, tmp_path: Path) -> None:
    def interrupt(recorder: Any, parts: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(plan, tmp_path / "runs" / "run", observe=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("each_round")
@pytest.mark.parametrize("algorithm", ["fedavg", "fedmd", "ditto"])
def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(
    make_parts: Callable[..., Parts], tmp_path: Path, algorithm: str
) -> None:

    def plan() -> Plan:
        parts = make_parts(algorithm, rounds=5)
        return Plan("tiny", algorithm, '[run]\nname = "tiny"\n', parts, checkpoint=TWO)

    whole = record(plan(), tmp_path / "whole")
    folder, seen = tmp_path / "run", list[int]()
    interrupted(plan(), folder, 4)
    state = read_state(folder)
    assert (state["status"], state["summary"]["rounds"]) == ("interrupted", 3)
    shown = read_summary(folder)
    assert run_text.title(shown) == f"tiny: {algorithm}, seed 0 (interrupted)"
    assert json.loads((folder / "run.json").read_text())["status"] == "running"
    assert [row["round"] for row in table(folder, "rounds") if row["round"]] == [1, 2, 3]
    assert CheckpointFolder(folder, 2).numbers() == [2, 3]
    interrupted(plan(), folder, 5)
    done = record(plan(), folder, watch=lambda row: seen.append(row.round))
    assert seen[-5:] == [1, 2, 3, 4, 5]
    assert done.summary | {"wall_s": 0} == whole.summary | {"wall_s": 0}
    assert contents(folder) == contents(tmp_path / "whole")
    assert done.summary["wall_s"] > state["wall_s"]


@pytest.mark.usefixtures("each_round")
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    make_parts: Callable[..., Parts], tmp_path: Path
) -> None:
    plan, folder, told = Plan("tiny", "fedavg", "", make_parts(rounds=4)), tmp_path / "run", list[str]()
    interrupted(plan, folder, 4)
    file = folder / "checkpoints" / "3.arrays"
    file.write_bytes(file.read_bytes()[:-1])
    whole = record(plan, tmp_path / "whole")
    done = record(plan, folder, tell=told.append, goes_on=True)
    assert told == [
        "the checkpoint after round 3 is not whole, and is passed over: 3.arrays is damaged",
        f"{folder}: the run goes on after round 2",
    ]
    assert done.summary["model_hash"] == whole.summary["model_hash"]


@pytest.mark.usefixtures("each_round")
def test_without_a_whole_checkpoint_a_run_begins_anew(
    make_parts: Callable[..., Parts], tmp_path: Path
) -> None:
    plan, folder, told = Plan("tiny", "fedavg", "", make_parts(rounds=4)), tmp_path / "run", list[str]()
    interrupted(plan, folder, 4)
    (folder / "log.jsonl").write_text("")
    done = record(plan, folder, tell=told.append)
    assert told[-1] == f"{folder}: there is no whole checkpoint, so the run begins anew"
    assert len(told) == 4
    assert done.summary["trace_hash"] == record(plan, tmp_path / "whole").summary["trace_hash"]


def test_a_run_is_begun_anew_on_demand_or_without_a_checkpoint(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupted(plan, folder, 2)  # before the first checkpoint, which waits until enough time has passed
    assert not CheckpointFolder(folder, 1).numbers()
    assert record(plan, folder).summary["rounds"] == 2
    monkeypatch.setattr(CheckpointKeeper, "_is_due", lambda *_: True)
    often = replace(plan, checkpoint=TWO)
    shutil.rmtree(folder)
    interrupted(often, folder, 2)
    monkeypatch.setattr(StoredPast, "newest", lambda *_: pytest.fail("it goes on"))
    assert record(often, folder, force=True, goes_on=False).summary["rounds"] == 2


def test_another_scenario_does_not_take_the_place_of_an_unfinished_run(plan: Plan, tmp_path: Path) -> None:
    interrupted(plan, tmp_path / "run", 2)
    with pytest.raises(OutputError, match="holds a run that has not come to its end"):
        record(replace(plan, scenario_toml="other"), tmp_path / "run")


@pytest.mark.usefixtures("each_round")
def test_changed_data_are_refused(make_parts: Callable[..., Parts], tmp_path: Path) -> None:
    plan = Plan("tiny", "fedavg", "", make_parts(), checkpoint=TWO)
    interrupted(plan, tmp_path / "run", 2)
    data = replace(plan.parts.data, x=plan.parts.data.x + 1)
    changed = replace(plan, parts=replace(make_parts(), data=data))
    with pytest.raises(RunError, match=r"data are not the same: samples \(.* both, with other values\)"):
        record(changed, tmp_path / "run")


def test_an_occupied_place_is_found_before_any_work(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    monkeypatch.setattr(module, "run", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(OutputError):
        record(plan, tmp_path / "run")


@pytest.mark.parametrize("is_full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whatever_the_disk_refuses_is_said_and_the_old_run_is_whole(
    plan: Plan, tmp_path: Path, disk: Any, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    monkeypatch.setattr(durable, "_BUFFER_BYTES", 1024)
    old = record(plan, tmp_path / "run").result

    def perform(parts: Parts, *, log: Log, **_: Any) -> RunResult:
        for number in range(10):
            log.info("round", round=number)
        return old

    def contents() -> dict[str, bytes]:
        files = [path for path in (tmp_path / "run").iterdir() if path.is_file()]
        return {path.name: path.read_bytes() for path in files}

    with disk.fails(None) as calls:
        record(plan, tmp_path / "run", force=True, perform=perform)
    assert {"open", "write", "fsync"} <= set(calls)
    for number in range(len(calls)):
        before, error = contents(), None
        try:
            with disk.fails(number, is_full=is_full) as now:
                record(plan, tmp_path / "run", force=True, perform=perform)
        except (OutputError, FileError) as raised:
            error = raised
        if error is None:  # all was done, but for reading what is there or removing it
            assert now[number] == "open" or "write" not in now[number:]
            continue
        assert f"cannot write {tmp_path}/run: No space left on device. Choose another place" in str(error)
        assert isinstance(error, FileError) or now[number] == "mkdir"  # which was tried before the run
        # The last to be brought to the disk is the parent, when the new run has its name already.
        assert contents() == before or calls[number:].count("fsync") == 1
    assert contents().keys() == FILES


def test_a_full_disk_ends_a_run_whoever_swallows_the_error(plan: Plan, tmp_path: Path, disk: Any) -> None:
    before: list[int] = []

    def perform(parts: Parts, *, log: Log, **_: Any) -> Any:
        before.append(len(disk.calls))
        for number in range(100):
            with suppress(FileError):  # as a connection does that must not end with an answer's entry
                log.info("a long line " * 20_000, round=number)

    with disk.fails(None), pytest.raises(AttributeError):  # it gives no result
        record(plan, tmp_path / "run", perform=perform)
    with disk.fails(before[0]) as calls, pytest.raises(FileError, match="No space left on device"):
        record(plan, tmp_path / "run", perform=perform)
    assert calls[before[0]] == "write"
    assert list(tmp_path.iterdir()) == []


def test_evaluation_of_some_clients_only(do: Do) -> None:
    done = do(evaluation=EvaluationConfig(every=2, clients=2))
    measured = {row["client"] for row in table(done.folder, "evaluations")}
    assert len(measured) == 2
    clients = table(done.folder, "clients")
    assert {row["client"] for row in clients if row["accuracy"] is not None} == measured
    assert [row["accuracy_mean"] is None for row in table(done.folder, "rounds")] == [True, False]


@pytest.mark.parametrize(
    ("algorithm", "model"), [("fedgems", {"label": "linear", "parameters": 650}), ("local", None)]
)
def test_which_model_the_server_had(do: Do, algorithm: str, model: object) -> None:
    assert json.loads((do(algorithm).folder / "run.json").read_text()).get("server_model") == model


def test_frames_count_in_the_round_of_their_sending_and_name_that_of_their_dispatch(do: Do) -> None:
    groups = [GroupConfig(count=1, device="high"), GroupConfig(count=3, device="mcu")]
    fleet = build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")
    done = do(fleet=fleet, pacing=Buffered(Buffered.Config(buffer=1, concurrency=4)), rounds=6)
    replies = [row for row in table(done.folder, "messages") if row["up"]]
    by_dispatch = Counter[int]()
    for reply in replies:
        by_dispatch[reply["round"]] += reply["bytes"]
    rounds = table(done.folder, "rounds")
    for row in rounds:
        is_sent = [row["began_at_s"] <= reply["sent_at_s"] <= row["ended_at_s"] for reply in replies]
        assert row["bytes_up"] == sum(reply["bytes"] for reply in compress(replies, is_sent))
    assert [by_dispatch[row["round"]] for row in rounds] != [row["bytes_up"] for row in rounds]


def test_clients_and_dispatches_have_the_labels_of_the_fleet_file(do: Do, tmp_path: Path) -> None:
    file = tmp_path / "boards.csv"
    file.write_text(
        "label,speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms\nold,1,1,1,1,1\nnew,1,1,1,1,1\n"
    )
    groups = [
        GroupConfig(name="lab", count=2, file=str(file)),
        GroupConfig(name="rest", count=2, device="high"),
    ]
    fleet = build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")
    done = do(fleet=fleet)
    labels = ["old", "new", "rest", "rest"]
    assert [row["label"] for row in table(done.folder, "clients")] == labels
    dispatches = table(done.folder, "dispatches")
    assert len(dispatches) == 8
    assert all(row["label"] == labels[row["client"]] for row in dispatches)
    schema = pq.read_schema(done.folder / "dispatches.parquet")
    assert pa.types.is_dictionary(schema.field("label").type)  # codes, not a text for each row


def test_lines_are_stamped_with_virtual_time_and_nothing_of_the_host() -> None:
    sink = io.BytesIO()
    log = line_log(sink)

    async def simulate() -> None:
        await clock.sleep_for(2.5)
        log.warning("dropped", client=3, cause="timeout")

    log.info("begin", name="ü")
    clock.run(simulate())
    assert sink.getvalue().decode().splitlines() == [
        '{"level": "info", "event": "begin", "name": "ü"}',
        '{"at_s": 2.5, "level": "warning", "event": "dropped", "client": 3, "cause": "timeout"}',
    ]


def test_values_that_json_lacks_are_told_in_its_words() -> None:
    sink = io.BytesIO()
    line_log(sink).info("x", n=np.int64(3), f=np.float32(0.5), nan=float("nan"), inf=np.inf, other=slice(1))
    record = json.loads(sink.getvalue())
    assert record == {
        "level": "info",
        "event": "x",
        "n": 3,
        "f": 0.5,
        "nan": None,
        "inf": None,
        "other": "slice(None, 1, None)",
    }
