"""The figures of a run, from its folder."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedsim.errors import OutputError, UserError
from fedsim.figures import spending
from fedsim.figures.chart_types import BarChart, GanttChart, LineChart, Section, Target
from fedsim.figures.run_figures import (
    MAX_GROUPS,
    ROUNDS_NEEDED,
    by_group,
    labelled,
    round_sections,
    run_sections,
    targets_of,
    waiting_figures,
)
from fedsim.report.read_parquet import read_columns
from fedsim.report.summary import read_summary
from tests.figures.conftest import MakeRun, chart_of

ALL = [
    *("accuracy-by-time", "accuracy-by-bytes", "time-by-phase", "bytes", "gantt", "held-up"),
    *("accuracy-spread", "accuracy-by-group", "accuracy-by-data", "classes-of-clients", "samples-of-clients"),
    *("participation", "outcomes", "link-use"),
]


def names(sections: list[Section]) -> list[str]:
    return [figure.name for section in sections for figure in section.figures]


def test_a_run_has_all_figures(run_folder: Path) -> None:
    sections = run_sections(run_folder)
    assert names(sections) == ALL
    places = [*(section.name for section in sections), *ALL]
    assert len({*places}) == len(places)
    for section in sections:
        for figure in section.figures:
            assert any(sign.isdigit() for sign in figure.text), figure.name
            assert figure.text.endswith(".")


def test_bars_of_groups_add_up_to_the_summary(run_folder: Path) -> None:
    figures = {figure.name: figure for section in run_sections(run_folder) for figure in section.figures}
    summary, chart = read_summary(run_folder), chart_of(figures["bytes"], BarChart)
    assert chart.bars == ["<b>$x_1$</b> & 50 %", "high"]
    found = {part.label: part.values.sum() for part in chart.parts}
    assert found["useful"] == summary["bytes"]["payload_up"] + summary["bytes"]["payload_down"]
    assert found["overhead"] == summary["bytes"]["overhead_up"] + summary["bytes"]["overhead_down"]


def test_rounds_alone_tell_the_same_of_a_run_that_goes_on(run_folder: Path) -> None:
    rounds = read_columns(run_folder / "rounds.parquet", ROUNDS_NEEDED, optional=spending.OPTIONAL)
    sections = round_sections(rounds, [Target(0.5, "half")])
    assert names(sections) == [
        *("accuracy-by-time", "accuracy-by-bytes", "time-by-phase", "bytes", "participation")
    ]
    chart = chart_of(sections[0].figures[0], LineChart)
    whole = chart_of(run_sections(run_folder)[0].figures[0], LineChart)
    np.testing.assert_equal([line.y for line in chart.lines], [line.y for line in whole.lines])
    assert round_sections({name: one[:0] for name, one in rounds.items()}) == []


def test_where_nothing_learns_there_are_time_bytes_and_who_took_part(make_run: MakeRun) -> None:
    sizes = {"name": "sizes", "params": {"samples": 10, "input_shape": [4]}}
    folder = make_run(data=sizes, models={"linear": {}}, engine={"executor": "null"})
    found = names(run_sections(folder))
    assert found == [one for one in ALL if not one.startswith(("accuracy", "classes", "samples"))]


def test_of_a_regression_there_are_losses(make_run: MakeRun) -> None:
    folder = make_run(data={"name": "synthetic_regression"}, models={"linear": {}})
    found = names(run_sections(folder))
    assert "classes-of-clients" not in found
    assert found[:2] == ["loss-by-time", "loss-by-bytes"]
    assert {"loss-spread", "loss-by-group"} < set(found)


def test_under_an_asynchronous_pacing_nobody_is_waited_for(make_run: MakeRun) -> None:
    folder = make_run(participation={"pacing": {"name": "immediate", "params": {"concurrency": 2}}})
    assert "gantt" in names(run_sections(folder))
    assert "held-up" not in names(run_sections(folder))


def test_the_gantt_chart_is_of_the_rounds_that_are_chosen(run_folder: Path) -> None:
    figures = {
        figure.name: figure for section in run_sections(run_folder, (2, 2)) for figure in section.figures
    }
    assert figures["gantt"].title == "Clients by phase, round 2"


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ((2, 4), "this run has no round 4, it ended with round 3: choose rounds from 1 to 3"),
        ((0, 2), r"\(0, 2\) are no rounds"),
        ((3, 2), r"\(3, 2\) are no rounds"),
        ((1.5, 2), "are no rounds"),
        (2, "2 are no rounds: give the first and the last"),
    ],
)
def test_rounds_that_are_not_there_are_a_mistake(run_folder: Path, rounds: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        run_sections(run_folder, rounds)


def test_where_nobody_did_anything_there_are_no_rounds_to_choose(run_folder: Path) -> None:
    idle = {name: np.array([9, 9]) for name in ("round", "began_at_s", "ended_at_s")}
    groups = {"group": np.array(["low", "high"], object)}
    with pytest.raises(UserError, match="nobody did anything in the rounds 9 to 9"):
        waiting_figures(run_folder, {}, idle, groups, (9, 9))


def test_over_sockets_time_is_real(run_folder: Path, tmp_path: Path) -> None:
    real = Path(shutil.copytree(run_folder, tmp_path / "real"))
    host = (real / "run.json").read_text()
    assert '"bus": "memory"' in host
    (real / "run.json").write_text(host.replace('"bus": "memory"', '"bus": "http"'))
    for folder, label in ((run_folder, "simulated time"), (real, "time")):
        by_time = run_sections(folder)[0].figures[0]
        assert (chart_of(by_time, LineChart).x.label, by_time.title) == (label, f"Accuracy against {label}")


def test_what_is_damaged_is_told(run_folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(run_folder, tmp_path / "damaged"))
    (damaged / "clients.parquet").write_bytes(b"PAR1")
    with pytest.raises(OutputError, match=r"clients\.parquet cannot be read"):
        run_sections(damaged)
    with pytest.raises(OutputError, match=r"scenario\.toml cannot be read"):
        run_sections(tmp_path)


def test_the_accuracy_that_ends_a_run_is_its_target() -> None:
    assert targets_of({"run": {"rounds": 3}}) == []
    (target,) = targets_of({"run": {"until": {"accuracy": 0.7, "of": "global"}}})
    assert (target.value, target.label) == (0.7, "target 70 %, on the global test set")


@pytest.mark.parametrize(
    ("groups", "labels", "shown"),
    [
        ("lab lab phones", "old new phones", "old new phones"),
        ("wifi wifi mobile", "old new old", "wifi, old|wifi, new|mobile, old"),
        ("wifi wifi phones", "old phones phones", "wifi, old|wifi, phones|phones"),
    ],
)
def test_labels_of_devices_stand_for_groups(groups: str, labels: str, shown: str) -> None:
    clients = {"group": np.array(groups.split(), object), "label": np.array(labels.split(), object)}
    expected = shown.split("|") if "|" in shown else shown.split()
    assert labelled(clients)["group"].tolist() == expected


def test_many_labels_leave_the_groups() -> None:
    many = [f"row {number}" for number in range(MAX_GROUPS + 1)]
    groups = {"group": np.full(len(many), "phones", object)}
    assert labelled({**groups, "label": np.array(many, object)})["group"].tolist() == ["phones"] * len(many)


def test_figures_show_the_labels_of_a_fleet_file(run_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run_folder, tmp_path / "run"))
    table = parquet.read_table(run_folder / "clients.parquet")
    labels = pa.array(["early", *["later"] * (table.num_rows - 1)])
    place = table.column_names.index("label")
    parquet.write_table(table.set_column(place, "label", labels), folder / "clients.parquet")
    figures = {figure.name: figure for section in run_sections(folder) for figure in section.figures}
    chart, rows = chart_of(figures["outcomes"], BarChart), chart_of(figures["gantt"], GanttChart)
    assert all("early" in name or "later" in name for name in [*chart.bars, *rows.rows])


def test_of_very_many_groups_the_small_ones_count_as_one() -> None:
    sizes = [*range(1, MAX_GROUPS + 4)]
    labels = np.array([f"group {size}" for size in sizes for _ in range(size)], object)
    groups = by_group({"group": labels, "merged": np.ones(len(labels))})
    assert len(groups) == MAX_GROUPS + 1
    assert {name: len(rows["merged"]) for name, rows in groups.items()}["3 smaller groups"] == 1 + 2 + 3
