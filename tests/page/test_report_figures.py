"""A report whose figures are also files of their own."""

from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.errors import OutputError


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> fedsim.Result:
    tables: dict[str, Any] = {
        "run": {"rounds": 1},
        "data": {"name": "sizes", "params": {"samples": 5, "input_shape": [4]}},
        "models": {"linear": {}},
        "fleet": [{"count": 2, "device": "low"}],
        "engine": {"executor": "null"},
    }
    return fedsim.run(tables, out=tmp_path_factory.mktemp("results") / "run")


@pytest.mark.slow
def test_figures_are_written_where_they_are_wanted(result: fedsim.Result, tmp_path: Path) -> None:
    result.write_report(tmp_path / "report.html", figures=tmp_path / "figures")
    names = {file.name for file in (tmp_path / "figures").iterdir()}
    assert {f"bytes.{kind}" for kind in ("svg", "png", "pdf", "csv")} < names
    with pytest.raises(OutputError, match="exists already"):
        result.write_report(tmp_path / "report.html", figures=tmp_path / "figures")


@pytest.mark.parametrize("below", [".", "figures", "more/figures"])
def test_no_figure_goes_into_the_folder_of_a_run(result: fedsim.Result, tmp_path: Path, below: str) -> None:
    with pytest.raises(OutputError, match="is in the folder of a run"):
        result.write_report(tmp_path / "report.html", figures=result.folder / below)
    assert list(tmp_path.iterdir()) == []
