"""Folders of small results, of each kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import fedsim
from fedsim.figures.chart_types import BarChart, Figure, GanttChart, HeatChart, LineChart, PointChart
from tests.conftest import there

TINY: dict[str, Any] = {
    "run": {"name": "tiny", "rounds": 3},
    "data": {
        "limit": 120,
        "global_test": 0.2,
        "partition": {"name": "dirichlet_class", "params": {"alpha": 0.5}},
    },
    "models": {"mlp": {"params": {"hidden": [4]}}},
    "training": {"lr": 0.5, "batch_size": 10},
    "fleet": [{"name": "<b>$x_1$</b> & 50 %", "count": 3, "device": "low"}, {"count": 2, "device": "high"}],
    "engine": {"workers": 1},
}
"""A run of milliseconds; a group has a name that markup could choke on."""

MakeRun = Callable[..., Path]

K = TypeVar("K", LineChart, PointChart, BarChart, HeatChart, GanttChart)


def chart_of(figure: Figure | None, kind: type[K]) -> K:
    """Return the chart of a figure that has to be there, and has to show one of this kind."""
    chart = there(figure).chart
    assert isinstance(chart, kind)
    return chart


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Return what makes the folder of a run like the tiny one, with tables replaced."""

    def make(algorithm: str = "fedavg", **tables: Any) -> Path:
        place = tmp_path_factory.mktemp("results") / "run"
        return fedsim.run({**TINY, **tables}, algorithm=algorithm, out=place).folder

    return make


@pytest.fixture(scope="session")
def run_folder(make_run: MakeRun) -> Path:
    return make_run()
