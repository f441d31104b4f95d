import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import torch

import fedsim
from fedsim.errors import OutputError, UserError
from fedsim.report.run_columns import COMPARISON
from fedsim.scenario import build
from tests.api.conftest import opened_as

TABLES = ("rounds", "clients", "dispatches", "messages", "evaluations")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    from tests.api.conftest import TINY

    return {"fedavg": fedsim.run(TINY, algorithm="fedavg"), "local": fedsim.run(TINY, algorithm="local")}


def test_tables_are_those_of_the_folder_in_any_library(made: dict[str, fedsim.Result]) -> None:
    result = made["fedavg"]
    for name in TABLES:
        table = getattr(result, name)
        assert isinstance(table, pa.Table)
        assert len(table.to_pandas()) == table.num_rows == len(polars.DataFrame(table))
    rounds = result.rounds.to_pandas()
    assert isinstance(rounds, pd.DataFrame)
    assert rounds.bytes_up.sum() == result.summary["bytes_up"]


def test_who_holds_which_classes(made: dict[str, fedsim.Result]) -> None:
    result = made["fedavg"]
    held = result.client_classes.group_by("client").aggregate([("num_samples", "sum")])
    assert dict(zip(*held.to_pydict().values(), strict=True)) == dict(
        zip(*result.clients.select(["client", "num_train"]).to_pydict().values(), strict=True)
    )


def test_data_without_classes_have_no_table_of_them(tiny: dict[str, Any]) -> None:
    result = fedsim.run(
        tiny | {"data": {"name": "sizes", "params": {"samples": 5, "input_shape": [4]}}},
        overrides={"engine.executor": "null"},
    )
    with pytest.raises(UserError, match="its data set has no samples of classes"):
        _ = result.client_classes


def test_tables_by_class(tiny: dict[str, Any], made: dict[str, fedsim.Result]) -> None:
    result = fedsim.run(tiny, overrides={"evaluation.per_class": True})
    assert result.classes.column("class_name").to_pylist()[:4] == ["0", "1", "2", "4"]  # 3 is not there
    assert sum(result.confusion.column("num_samples").to_pylist()) > 0
    one_by_one = fedsim.run(tiny, overrides={"evaluation.per_class": True, "engine.batching": "off"})
    assert result.classes.equals(one_by_one.classes)
    assert result.confusion.equals(one_by_one.confusion)
    for name in ("classes", "confusion"):
        with pytest.raises(UserError, match=f"no table {name}: set evaluation.per_class = true"):
            getattr(made["fedavg"], name)


def accuracy(model: torch.nn.Module, x: Any, y: Any) -> float:
    with torch.no_grad():
        predicted = model(torch.from_numpy(x.copy())).argmax(1).numpy()
    return float(np.mean(predicted == y))


@pytest.mark.parametrize("saved", [False, True])
def test_a_model_predicts_with_the_accuracy_of_the_summary(
    tiny: dict[str, Any], tmp_path: Path, saved: bool
) -> None:
    result = fedsim.run(tiny, overrides={"run.save_models": saved}, out=tmp_path / "there")
    if saved:
        opened = opened_as(fedsim.Result, tmp_path / "there")
        result = opened
    data = build(result.scenario).data
    own = []
    for client in range(3):
        rows = data.indices(client, "test")
        own.append(accuracy(result.model(client=client), data.x[rows], data.y[rows]))
    assert np.mean(own) == pytest.approx(result.summary["accuracy"]["personal_mean"], abs=1e-12)
    rows = data.global_test
    assert accuracy(result.model(), data.x[rows], data.y[rows]) == pytest.approx(
        result.summary["accuracy"]["global"], abs=1e-12
    )


def test_models_that_there_are_not(made: dict[str, fedsim.Result], tmp_path: Path) -> None:
    local = made["local"]
    with pytest.raises(UserError, match=r"no global model: name a client, as in model\(client=0\)"):
        local.model()
    with pytest.raises(UserError, match="client 9 has no model here"):
        local.model(client=9)
    with pytest.raises(UserError, match="client 1 has no untuned model: it has personal"):
        local.model(client=1, name="untuned")
    saved = local.save(tmp_path / "saved")
    shutil.rmtree(saved / "models")
    opened = opened_as(fedsim.Result, saved)
    with pytest.raises(UserError, match=r"run.save_models = true"):
        opened.model(client=0)


def test_a_result_prints_itself(made: dict[str, fedsim.Result]) -> None:
    text = repr(made["fedavg"])
    assert text.startswith("tiny: fedavg, seed 0\n  accuracy ")
    assert "2 rounds" in text
    assert max(map(len, text.splitlines())) <= 100
    cells = made["fedavg"]._repr_html_().split("<table>")
    assert len(cells) == 3
    assert ">tiny: fedavg, seed 0</caption>" in cells[1]
    assert ">overhead</td>" in cells[2]


def test_saving_keeps_what_would_go_with_the_result(
    tiny: dict[str, Any], tmp_path: Path, collect: Callable[[], int]
) -> None:
    result = fedsim.run(tiny)
    gone, kept = result.folder, result.save(tmp_path / "kept")
    summary = result.summary
    with pytest.raises(OutputError, match="holds a run already"):
        result.save(kept)
    del result
    collect()
    assert not gone.exists()
    again = opened_as(fedsim.Result, kept)
    assert again.summary == summary
    assert again.rounds.num_rows == 2


def test_saving_keeps_the_models(tiny: dict[str, Any], tmp_path: Path) -> None:
    result = fedsim.run(tiny)
    kept = result.save(tmp_path / "kept")
    opened = opened_as(fedsim.Result, kept)
    assert same_values(opened.model(), result.model())
    assert same_values(opened.model(client=1), result.model(client=1))
    again = opened_as(fedsim.Result, opened.save(tmp_path / "again"))
    assert same_values(again.model(), result.model())
    with pytest.raises(OutputError, match="holds a run already"):  # this run would leave no models
        fedsim.run(tiny, out=kept)


def same_values(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    own, its = one.state_dict(), other.state_dict()
    return own.keys() == its.keys() and all(torch.equal(own[name], its[name]) for name in own)


def test_a_saved_comparison_is_opened_again(
    tiny: dict[str, Any], tmp_path: Path, collect: Callable[[], int]
) -> None:
    compared = fedsim.compare(tiny, ["fedavg", "local"], seeds=[0, 1])
    text, model = repr(compared), compared["fedavg", 1].model()
    gone, kept = compared.folder, compared.save(tmp_path / "studies" / "kept")
    with pytest.raises(OutputError, match="replace it with the option force"):
        compared.save(kept)
    assert compared.save(kept, force=True) == kept
    del compared
    collect()
    assert not gone.exists()
    opened = opened_as(fedsim.Comparison, kept)
    assert repr(opened) == text
    names = [f"{algorithm}-seed{seed}" for seed in (0, 1) for algorithm in ("fedavg", "local")]
    assert [one.folder.name for one in opened] == names
    assert same_values(opened["fedavg", 1].model(), model)


def test_a_comparison_is_not_saved_over_something_else(tiny: dict[str, Any], tmp_path: Path) -> None:
    compared = fedsim.compare(tiny, ["local", "fedavg"])
    (tmp_path / "fedavg-seed0").mkdir()
    (tmp_path / "fedavg-seed0" / "notes.txt").touch()
    for force in (False, True):
        with pytest.raises(OutputError, match="not even force"):
            compared.save(tmp_path, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["fedavg-seed0"]


def test_a_comparison_prints_itself_and_is_a_table(tiny: dict[str, Any], tmp_path: Path) -> None:
    compared = fedsim.compare(tiny, ["fedavg", "local"], out=tmp_path / "there")
    assert compared[1] is compared["local"]
    assert [one.summary["algorithm"] for one in compared[:2]] == ["fedavg", "local"]
    assert "algorithm" in repr(compared)
    assert compared._repr_html_().count("<table>") == 2
    assert ">fedavg</td>" in compared._repr_html_()
    frame = compared.table.to_pandas()
    assert list(frame.algorithm) == ["fedavg", "local"]
    assert frame.bytes_payload_up[1] == 0
    unit = {field.name: field.metadata[b"unit"] for field in compared.table.schema}
    assert (unit["bytes_payload_up"], unit["time_wasted_s"], unit["algorithm"]) == (b"B", b"s", b"")
    assert list(unit) == [name for name in COMPARISON.columns if "<" not in name]
    opened = opened_as(fedsim.Comparison, tmp_path / "there")
    assert repr(opened) == repr(compared)
    with pytest.raises(KeyError, match="names no run; there are: \\('fedavg', 0\\), \\('local', 0\\)"):
        opened["fedmd"]


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds no results"):
        fedsim.open(tmp_path)


def test_what_is_damaged_or_gone_is_told(made: dict[str, fedsim.Result], tmp_path: Path) -> None:
    folder = made["local"].save(tmp_path / "run")
    (folder / "rounds.parquet").write_bytes(b"damaged")
    (folder / "clients.parquet").unlink()
    opened = opened_as(fedsim.Result, folder)
    for name in ("rounds", "clients"):
        with pytest.raises(OutputError, match=rf"{name}\.parquet cannot be read"):
            getattr(opened, name)
    (folder / "summary.json").write_text("{")
    with pytest.raises(OutputError, match=r"summary\.json cannot be read"):
        fedsim.open(folder)


def test_a_result_in_a_temporary_folder_is_not_pickled(made: dict[str, fedsim.Result]) -> None:
    with pytest.raises(UserError, match="give out=, or save"):
        copy.deepcopy(made["local"])  # asks as pickle does


def test_a_result_takes_the_folder_as_text_too(tiny: dict[str, Any], tmp_path: Path) -> None:
    made = fedsim.run(tiny, out=tmp_path / "there")
    assert fedsim.Result(str(tmp_path / "there")).summary == made.summary
    with pytest.raises(OutputError, match=r"summary\.json"):
        fedsim.Result("nowhere")
