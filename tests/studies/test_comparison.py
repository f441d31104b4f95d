import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from fedsim.report.run_columns import COMPARISON
from fedsim.report.tables import arrow_rows
from fedsim.studies import comparison
from tests.conftest import rows_of
from tests.report.conftest import summary

RUNS = [
    summary("fedavg", bytes_up=120_000_000, bytes_down=120_000_000, simulated_s=723.0, drops=2),
    summary("fedmd", bytes_up=1_000_000, data_down=1_000_000, bytes_down=0, accuracy={"personal_mean": 0.8}),
    summary("local", bytes_up=0, bytes_down=0, accuracy={"personal_mean": None, "personal_std": None}),
]


def test_the_table_of_one_seed() -> None:
    grid = comparison.table(RUNS)
    assert [row[0] for row in grid.rows] == ["fedavg", "fedmd", "local"]
    fedavg, fedmd, local = grid.rows
    assert fedavg == ("fedavg", "90.0 ± 10.0*", "50.0", "-", "12 min 3 s", "120 MB", "120 MB", "1", "30", "2")
    # Samples that have to be sent are bytes too.
    assert fedmd[5:8] == ("1 MB", "1 MB", "1/120")
    assert local[1] == "-"
    # No cost is the best: runs that sent nothing may have learned nothing.
    assert local[5:8] == ("0 B", "0 B", "0")
    # What is equal for all is best for nobody.
    assert not any(row[2].endswith("*") for row in grid.rows)
    assert max(map(len, grid.lines())) <= 100


def test_several_seeds_are_means_with_their_spread_over_seeds() -> None:
    runs = [
        summary("fedavg", seed, accuracy={"personal_mean": mean}) for seed, mean in enumerate((0.7, 0.8, 0.9))
    ]
    (row,) = comparison.rows(runs)
    assert row.seeds == (0, 1, 2)
    assert row.mean("accuracy") == pytest.approx(0.8)
    assert row.std("accuracy") == pytest.approx(statistics.stdev((0.7, 0.8, 0.9)))
    grid = comparison.table(runs)
    assert grid.rows[0][1] == "80.0 ± 10.0"
    assert "seeds" in grid.notes[0]


def test_a_regression_is_compared_by_its_loss() -> None:
    nothing: dict[str, Any] = {
        "accuracy": dict.fromkeys(("personal_mean", "personal_std", "personal_worst_decile", "best"))
    }
    runs = [
        summary(
            "fedavg", loss={"personal_mean": 0.01234, "personal_std": 0.005, "global": 1234.0}, **nothing
        ),
        summary("local", loss={"personal_mean": 2.0}, **nothing),
    ]
    grid = comparison.table(runs)
    assert list(grid.headings[1:3]) == ["loss", "global\nloss"]
    assert [row[1:3] for row in grid.rows] == [("0.0123 ± 0.005*", "1.23e+03"), ("2 ± 0.02", "-")]
    assert grid.notes[0] == "loss: mean over clients ± standard deviation over clients"
    assert not any("worst" in note for note in grid.notes)


@pytest.mark.parametrize(("second", "shown"), [(0.31, "30.5 ± 0.7*"), (0.9, "60.0 ± 42.4")])
def test_the_best_has_no_interval_wider_than_itself_and_no_fewer_seeds(second: float, shown: str) -> None:
    accuracy = {"b": [0.3, second], "c": [0.1, 0.1], "d": [0.4]}
    runs = [
        summary(name, seed, accuracy={"personal_mean": mean})
        for name, means in accuracy.items()
        for seed, mean in enumerate(means)
    ]
    b, c, d = (row[1] for row in comparison.table(runs).rows)
    assert (b, c, d) == (shown, "10.0 ± 0.0", "40.0")  # d has fewer seeds
    runs += [summary("e", seed, accuracy={"personal_mean": mean}) for seed, mean in enumerate((0.0, 2.0))]
    assert comparison.table(runs).rows[-1][1] == "100.0 ± 141.4"


def test_what_some_seeds_lack_is_left_out_of_the_mean() -> None:
    runs = [summary("fedavg", seed, accuracy={"global": there}) for seed, there in enumerate((None, 2.0))]
    (row,) = comparison.rows(runs)
    assert (row.mean("global"), row.std("global")) == (2.0, None)
    (row,) = comparison.rows(runs[:1])
    assert (row.mean("global"), row.std("global")) == (None, None)


def test_the_csv_has_a_line_for_each_run() -> None:
    lines = rows_of(comparison.to_csv(RUNS).decode())
    assert [line["algorithm"] for line in lines] == ["fedavg", "fedmd", "local"]
    assert lines[0]["accuracy_personal_mean"] == "0.9"
    assert lines[0]["accuracy_global"] == ""
    assert lines[1]["data_down"] == "1000000"
    assert lines[1]["time_download_s"] == "1.0"
    assert lines[1]["bytes_overhead_down"] == "60"


def test_a_cause_that_not_every_run_knows_is_a_column_all_the_same() -> None:
    runs = [summary("fedavg"), summary("fedmd", drops_by_cause={"too late": 3})]
    lines = rows_of(comparison.to_csv(runs).decode())
    assert [line["drops_by_cause_too late"] for line in lines] == ["0", "3"]


def test_of_what_runs_of_earlier_versions_lack_nothing_is_known() -> None:
    old, new = summary("fedavg"), summary("local", divergence="it has diverged")
    rows = comparison.flat_rows([old, new])
    assert [row["divergence"] for row in rows] == [None, "it has diverged"]
    assert arrow_rows(COMPARISON, rows)["divergence"].to_pylist() == [None, "it has diverged"]


def test_the_document_has_figures_and_runs() -> None:
    runs = {Path("o") / one["algorithm"]: one for one in RUNS}
    document = json.loads(comparison.to_document("s", runs, Path("o")))
    assert document["scenario"] == "s"
    assert document["algorithms"][1]["bytes_down"] == {"mean": 1_000_000, "std": None}
    assert document["algorithms"][1]["wasted_bytes"] == {"mean": 400, "std": None}
    assert document["runs"][2] == {"folder": "local"} | RUNS[2]


def test_runs_that_have_diverged_are_named() -> None:
    assert comparison.diverged_note({"a-seed0": summary("a", divergence=None)}) == []
    runs = [summary("a", seed, divergence="so" if seed else None) for seed in range(3)]
    assert comparison.table(runs).notes[-1] == "diverged, as summary.json says: a-seed1, a-seed2"
    runs = [summary("a", seed, divergence="so") for seed in range(8)]
    assert (
        comparison.table(runs)
        .notes[-1]
        .endswith(": a-seed0, a-seed1, a-seed2, a-seed3, a-seed4, a-seed5, 2 more")
    )
