from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import fedsim
from fedsim.errors import OutputError
from fedsim.studies.curves import jain, read_curve


def test_the_last_row_sums_to_what_the_summary_says(tiny: dict[str, Any], tmp_path: Path) -> None:
    overrides = {"evaluation.every": 2, "run.rounds": 5, "data.public": {"size": 10, "held": "server"}}
    result = fedsim.run(tiny["base"], algorithm="fedmd", overrides=overrides, out=tmp_path / "o")
    curve, summary = read_curve(result.folder), result.summary
    assert curve["round"].tolist() == [2, 4, 5]
    assert (np.diff(curve["simulated_s"]) > 0).all()
    assert summary["data_down"] > 0
    assert curve["bytes_up"][-1] == summary["bytes_up"] + summary["data_up"]
    assert curve["bytes_down"][-1] == summary["bytes_down"] + summary["data_down"]
    assert curve["parameters_up"][-1] == summary["parameters_up"]
    assert curve["accuracy_personal_mean"][-1] == summary["accuracy"]["personal_mean"]
    accuracies = result.evaluations.to_pandas().query("round == 5").accuracy.to_numpy()
    assert curve["accuracy_jain"][-1] == pytest.approx(accuracies.sum() ** 2 / 3 / (accuracies**2).sum())


def test_staleness_and_work_sum_up_to_those_of_the_whole_run(tiny: dict[str, Any]) -> None:
    overrides = {
        "run.rounds": 6,
        "evaluation.every": 2,
        "fleet": [{"count": 3, "device": "low"}, {"count": 2, "device": "laptop"}],
        "participation.pacing": {"name": "buffered", "params": {"concurrency": 4, "buffer": 2}},
    }
    result = fedsim.run(tiny["base"], overrides=overrides)
    curve, summary = read_curve(result.folder), result.summary
    assert summary["staleness"]["max"] > 0
    assert curve["staleness_so_far"][-1] == pytest.approx(summary["staleness"]["mean"])
    time = summary["time"]
    assert curve["work_s"][-1] == pytest.approx(time["download_s"] + time["compute_s"] + time["upload_s"])
    assert curve["wasted_s"][-1] == pytest.approx(time["wasted_s"])


def test_a_run_of_before_there_were_codecs_has_sent_what_it_would_have(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    folder = fedsim.run(tiny["base"], out=tmp_path / "o").folder
    rounds = parquet.read_table(folder / "rounds.parquet")
    former = [name for name in rounds.column_names if "plain" not in name]
    parquet.write_table(rounds.select(former), folder / "rounds.parquet")
    curve = read_curve(folder)
    assert curve["bytes_up"].any()
    for way in ("up", "down"):
        assert curve[f"bytes_plain_{way}"].tolist() == curve[f"bytes_{way}"].tolist()


def test_coded_bytes_stand_beside_plain_ones(tiny: dict[str, Any], tmp_path: Path) -> None:
    coded = {"codec.up.models": {"chain": ["int8"], "least": "1 B"}}
    result = fedsim.run(tiny["base"], overrides=coded, out=tmp_path / "o")
    curve, summary = read_curve(result.folder), result.summary
    assert curve["bytes_plain_up"][-1] == summary["bytes_plain_up"] > curve["bytes_up"][-1]
    assert curve["bytes_plain_down"][-1] == summary["bytes_plain_down"] == curve["bytes_down"][-1]


def test_a_table_that_is_damaged_or_lacks_a_column_is_told(tiny: dict[str, Any], tmp_path: Path) -> None:
    folder = fedsim.run(tiny["base"], overrides={"engine.executor": "null"}, out=tmp_path / "o").folder
    rounds, evaluations = folder / "rounds.parquet", folder / "evaluations.parquet"
    evaluations.write_bytes(evaluations.read_bytes()[:100])
    with pytest.raises(OutputError, match=rf"{evaluations} cannot be read, so these results are not whole"):
        read_curve(folder)
    parquet.write_table(parquet.read_table(rounds).drop_columns("data_up"), rounds)
    with pytest.raises(OutputError, match=rf"{rounds} cannot be read, .*data_up"):
        read_curve(folder)


def test_jain_s_index_by_hand() -> None:
    assert jain(np.array([0.5, 0.5, np.nan])) == 1.0
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.array([1.0, 3.0])) == pytest.approx(16 / 20)
    assert jain(np.zeros(3)) == 1.0
    assert np.isnan(jain(np.array([np.nan])))


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=9))
def test_jain_s_index_is_between_a_share_and_one(values: list[float]) -> None:
    found = jain(np.array(values))
    assert 1 / len(values) * (1 - 1e-9) <= found <= 1 + 1e-9
    assert jain(3 * np.array(values)) == pytest.approx(found)
