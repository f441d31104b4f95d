"""The figures of studies and comparisons, from their folders."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import OutputError
from fedsim.figures.chart_types import BarChart, Figure, HeatChart, LineChart, Section
from fedsim.figures.study_figures import study_sections
from fedsim.studies import perform as performing
from fedsim.studies.answer_files import read_folder
from tests.conftest import InProcess
from tests.figures.conftest import TINY, chart_of


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables: dict[str, Any] = {
        "name": "tiny",
        "base": TINY,
        "seeds": [0, 1],
        "targets": [0.05, 0.999],
        "variant": [{"algorithm": "local"}, {"algorithm": "fedavg", "name": "<i>$a_b$</i>"}],
        "grid": {"training.lr": [0.1, 0.5]},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performing, "WorkerPool", InProcess)
        return fedsim.study(tables, out=tmp_path_factory.mktemp("studies") / "study").folder


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("comparisons") / "comparison"
    return fedsim.compare(TINY, ["fedavg", "local"], out=place).folder


def sections_of(folder: Path) -> list[Section]:
    return study_sections(read_folder(folder), folder)


def figures(sections: list[Section]) -> dict[str, Figure]:
    return {figure.name: figure for section in sections for figure in section.figures}


VARIANTS = ["local lr=0.1", "local lr=0.5", "<i>$a_b$</i> lr=0.1", "<i>$a_b$</i> lr=0.5"]


@pytest.mark.slow
def test_a_study_has_a_line_for_each_variant_and_point_of_the_grid(study: Path) -> None:
    found = figures(sections_of(study))
    assert list(found) == [
        *("accuracy-by-time", "accuracy-by-bytes", "time-by-phase", "bytes", "accuracy-by-variant"),
        *("outcomes", "gantt-1", "gantt-2", "gantt-3", "gantt-4", "classes-of-clients", "samples-of-clients"),
    ]
    by_time, by_bytes, _ = lines = [
        chart_of(found[f"accuracy-by-{cost}"], LineChart) for cost in ("time", "bytes", "variant")
    ]
    for chart in lines:
        assert [line.label for line in chart.lines] == VARIANTS
    assert [target.value for target in by_time.targets] == [0.05, 0.999]
    assert all(line.low is not None for line in by_time.lines)
    assert [len(line.x) > 0 for line in by_bytes.lines] == [False, False, True, True]
    assert chart_of(found["bytes"], BarChart).bars == VARIANTS
    assert isinstance(found["classes-of-clients"].chart, HeatChart)


def test_a_study_that_has_not_ended_has_figures_of_the_runs_that_have(study: Path, tmp_path: Path) -> None:
    begun = Path(shutil.copytree(study, tmp_path / "begun"))
    for folder in begun.glob("*/"):
        if folder.name != "local-lr-0.1-seed0":
            shutil.rmtree(folder)
    found = figures(sections_of(begun))
    assert [line.label for line in chart_of(found["accuracy-by-variant"], LineChart).lines] == VARIANTS[:1]
    shutil.rmtree(begun / "local-lr-0.1-seed0")
    assert sections_of(begun) == []


def test_a_comparison_has_a_line_for_each_algorithm(comparison: Path) -> None:
    found = figures(sections_of(comparison))
    lines = chart_of(found["accuracy-by-time"], LineChart).lines
    assert [line.label for line in lines] == ["fedavg", "local"]
    assert lines[0].low is None


def test_what_holds_no_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds neither a study"):
        sections_of(tmp_path)
