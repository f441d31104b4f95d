"""The figures of a validation."""

from typing import Any

import numpy as np

from fedsim.figures.chart_types import BarChart, LineChart, PointChart
from fedsim.figures.validation_figures import MAX_POINTS, validation_sections
from fedsim.report.validation import Validation
from fedsim.runtime.records.dispatch_phases import PHASES
from tests.figures.conftest import chart_of


def validation(algorithm: str, num: int, later_s: float) -> Validation:
    at_s = np.arange(1.0, num + 1)
    phases: dict[str, tuple[float, float]] = {
        str(phase): (float(place), place + later_s) for place, phase in enumerate(PHASES)
    }
    return Validation(
        algorithm=algorithm,
        predicted_s=float(num),
        real_s=num + later_s,
        round_errors=np.array([0.0, 0.01, -0.02]),
        clients=np.arange(num) % 7,
        arrivals=np.stack([at_s, at_s + later_s]),
        phases=phases,
        compute_errors=np.zeros(num),
        tau=1.0,
        num_unmatched=0,
        num_bytes=(1, 1),
        has_same_models=True,
        needs_same_models=True,
        num_rounds=(3, 3),
        emulation=None,
    )


def figures_of(*validations: Validation) -> list[Any]:
    (section,) = validation_sections(validations)
    assert section.title == "Predicted and real"
    return list(section.figures)


def test_each_round_has_its_error() -> None:
    rounds, _, _ = figures_of(validation("fedavg", 6, 0.5), validation("fedmd", 6, 0.0))
    lines = chart_of(rounds, LineChart).lines
    assert [line.label for line in lines] == ["fedavg", "fedmd"]
    assert lines[0].x.tolist() == [1, 2, 3]
    assert lines[0].y.tolist() == [0.0, 0.01, -0.02]


def test_replies_are_shown_by_how_much_later_they_arrive() -> None:
    _, arrivals, _ = figures_of(validation("fedavg", 6, 0.5))
    (points,) = chart_of(arrivals, PointChart).groups
    assert points.x.tolist() == [1, 2, 3, 4, 5, 6]
    assert points.y.tolist() == [0.5] * 6
    assert list(points.names) == [f"client {client}" for client in range(6)]
    assert "fedavg: the last reply 500 ms later" in arrivals.text


def test_of_many_replies_some_are_shown() -> None:
    _, arrivals, _ = figures_of(validation("fedavg", 10 * MAX_POINTS, 0.5))
    (points,) = chart_of(arrivals, PointChart).groups
    assert len(points.x) <= MAX_POINTS
    assert (points.x[0], points.x[-1]) == (1, 10 * MAX_POINTS)


def test_each_run_has_a_bar_of_phases() -> None:
    *_, phases = figures_of(validation("fedavg", 6, 0.5), validation("fedmd", 6, 0.25))
    chart = chart_of(phases, BarChart)
    assert list(chart.bars) == ["fedavg, predicted", "fedavg, real", "fedmd, predicted", "fedmd, real"]
    assert [part.label for part in chart.parts] == list(PHASES)
    assert chart.parts[1].values.tolist() == [1.0, 1.5, 1.0, 1.25]
