"""Use of the server's link."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.figures.chart_types import LineChart
from fedsim.figures.link_use import BINS, bytes_by, capacity, link_figures
from tests.figures.conftest import chart_of

MESSAGES = {
    "up": np.array([False, True, True]),
    "bytes": np.array([90, 300, 7]),
    "overhead": np.array([10, 0, 0]),
    "sent_at_s": np.array([0, 2.0, 3]),
    "arrived_at_s": np.array([1, 6.0, np.nan]),
}


def network(up: str, down: str, model: str = "fluid", **params: Any) -> dict[str, Any]:
    return {"network": {"model": model, "params": params}, "server": {"up": up, "down": down}}


def test_bytes_are_spread_over_the_way_of_their_frame() -> None:
    edges = np.array([0, 1, 2, 4.0])
    sent, arrived = np.array([0, 0.5, 1]), np.array([2, 1.5, 4.0])
    found = bytes_by(edges, sent, arrived, np.array([20, 8, 30.0]))
    assert found.tolist() == pytest.approx([10 + 4, 10 + 4 + 10, 20])


@given(
    frames=st.lists(
        st.tuples(st.floats(0, 900), st.floats(1e-3, 100), st.integers(1, 10**9)), min_size=1, max_size=50
    )
)
def test_no_byte_is_lost(frames: list[tuple[float, float, int]]) -> None:
    sent, lasted, num_bytes = (np.array(values, float) for values in zip(*frames, strict=True))
    found = bytes_by(np.linspace(0, 1000, 60), sent, sent + lasted, num_bytes)
    assert found.sum() == pytest.approx(num_bytes.sum(), rel=1e-6)
    assert (found >= 0).all()


def test_both_directions_are_shown_with_the_capacity_that_is_near() -> None:
    (figure,) = link_figures(MESSAGES, network(up="1600 bit/s", down="1 Gbit/s"))
    chart = chart_of(figure, LineChart)
    up, down = chart.lines
    assert len(up.x) == BINS + 1
    assert up.y.max() == pytest.approx(300 / 4)
    assert down.y.max() == pytest.approx(100)
    assert up.y[: BINS // 3].tolist() == pytest.approx([0] * (BINS // 3))
    assert [target.value for target in chart.targets] == [200]  # 1600 bit/s from the server
    assert any(
        "can carry 125 MB/s to the server, of which at most 0.1 % was used" in one for one in figure.notes
    )
    assert "Without the frames that never arrived: 1." in figure.notes


def test_equal_capacities_are_told_once() -> None:
    for rate, targets in (("1600 bit/s", ["capacity, 200 B/s each way"]), ("1 Gbit/s", [])):
        (figure,) = link_figures(MESSAGES, network(up=rate, down=rate))
        assert [target.label for target in chart_of(figure, LineChart).targets] == targets
        assert sum("each way, of which" in note for note in figure.notes) == (not targets)


@pytest.mark.parametrize(
    ("scenario", "wanted"),
    [
        (network("8 Mbit/s", "16 Mbit/s"), {True: 2e6, False: 1e6}),
        (network("8 Mbit/s", "16 Mbit/s", "naive"), {}),
        (network("8 Mbit/s", "16 Mbit/s", server_down={"file": "a.csv"}), {False: 1e6}),
        (network("8 Mbit/s", "drawn"), {False: 1e6}),
        ({}, {}),
    ],
)
def test_the_capacity_is_that_of_a_constant_shared_link(
    scenario: dict[str, Any], wanted: dict[bool, float]
) -> None:
    assert capacity(scenario) == wanted


def test_without_transfers_that_take_time_there_is_no_figure() -> None:
    assert link_figures(MESSAGES | {"arrived_at_s": MESSAGES["sent_at_s"]}, {}) == []
    assert link_figures(MESSAGES | {"arrived_at_s": np.full(3, np.nan)}, {}) == []
    assert link_figures({name: values[:0] for name, values in MESSAGES.items()}, {}) == []
