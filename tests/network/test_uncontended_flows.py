"""Parcels that share no link arrive as the solver says; where they may share one, arrays say nothing."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedsim.network.base import Departures
from fedsim.network.fluid import contended_arrivals
from fedsim.network.uncontended_flows import uncontended_arrivals

S = 1_000_000_000
NEVER_NS = 2**62

Flows = list[tuple[int, int, float]]
"""When each begins, ns; its bytes; the rate of its link, bit/s."""

BEGINS_NS = st.sampled_from([0, S // 10, S]) | st.integers(0, 10 * S) | st.integers(0, 10**14)
BYTES = st.sampled_from([1, 100, 1000]) | st.integers(1, 10**7)
RATES_BPS = st.sampled_from([8e3, 1e4 / 3, 1e6]) | st.floats(100, 1e9)
FLOWS = st.lists(st.tuples(BEGINS_NS, BYTES, RATES_BPS), min_size=1, max_size=12)


def by_arrays(flows: Flows, capacity_bps: float) -> list[list[int]] | None:
    begins_ns, num_bytes, rates_bps = (np.array(column) for column in zip(*flows, strict=True))
    arrivals = uncontended_arrivals(begins_ns, num_bytes, rates_bps.astype(float), capacity_bps)
    return None if arrivals is None else np.stack(arrivals, axis=1).tolist()


def by_solver(flows: Flows, capacity_bps: float) -> list[list[int]]:
    begins_ns, num_bytes, rates_bps = (np.array(column) for column in zip(*flows, strict=True))
    arrivals = contended_arrivals(
        Departures(begins_ns, np.arange(len(flows)), num_bytes, np.zeros(len(flows), np.int64)),
        capacity_bps=capacity_bps,
        links_bps=rates_bps.tolist(),
        latencies_ns=[0] * len(flows),
        all_at_once=False,
        by_ns=NEVER_NS,
    )
    rows: list[list[int]] = np.stack(arrivals, axis=1).tolist()
    return rows


@given(FLOWS, st.sampled_from([1e12, 2e9, 1e6, 3e4]))
@example([(0, 1000, 8e3), (0, 1000, 8e3), (0, 500, 8e3)], 1e9)  # two end at one instant
@example([(0, 1000, 8e3), (S // 2, 500, 8e3), (S // 2, 1500, 8e3)], 1e9)  # which began at others
@example([(0, 1000, 8e3), (3 * S, 1000, 8e3), (9 * S, 1, 8e3)], 1e9)  # the link is idle between
@example([(0, 1, 1e8), (0, 1, 1.00000001e8), (1, 1, 1e8)], 1e12)  # ends that are less than 1 ns apart
def test_arrivals_are_those_of_the_solver(flows: Flows, capacity_bps: float) -> None:
    flows = sorted(flows, key=lambda flow: flow[0])
    found = by_arrays(flows, capacity_bps)
    assert found is None or found == by_solver(flows, capacity_bps)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(10**6, 10**8)), min_size=1, max_size=12))
def test_a_link_that_is_wide_enough_is_never_left_to_the_solver(pairs: list[tuple[int, int]]) -> None:
    flows = [(begin_ns, num_bytes, 1e7) for begin_ns, num_bytes in sorted(pairs)]
    found = by_arrays(flows, 1.3e8)
    assert found is not None
    assert found == by_solver(flows, 1.3e8)


def test_links_that_fit_one_after_the_other_are_uncontended() -> None:
    flows = [(number * 2 * S, 1000, 8e3) for number in range(5)]
    assert by_arrays(flows, 1e4) == [[number * 2 * S + S, number, 0] for number in range(5)]
    assert by_arrays([(begin_ns // 4, *flow) for begin_ns, *flow in flows], 1e4) is None  # type: ignore[misc]


@pytest.mark.parametrize(
    "flow", [(0, 0, 8e3), (0, 1000, 0.0), (0, 1000, np.inf), (0, 1000, 1e6), (0, 10**12, 8e3)]
)
def test_what_is_left_to_the_solver(flow: tuple[int, int, float]) -> None:
    assert by_arrays([(0, 1000, 8e3), flow], 1e6) is None


def test_ends_beside_beginnings_are_left_to_the_solver() -> None:
    assert by_arrays([(0, 1000, 8e3), (S + 5, 1000, 8e3)], 1e6) is None
    assert by_arrays([(0, 1000, 8e3), (S + 5000, 1000, 8e3)], 1e6) is not None
