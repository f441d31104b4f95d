from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.network.progressive_filling import ProgressiveFilling, max_min_bps

numbers = st.integers(0, 20).map(float) | st.floats(0.01, 20.0)


def test_parking_lot() -> None:
    # Link A of 10 has flows 1 and 2, link B of 4 has 2 and 3: B is full first, at 2 each; 8 are left of A.
    assert max_min_bps([10, 4], [[0], [0, 1], [1]]) == [8, 2, 2]


def test_weights_share_a_link_in_proportion() -> None:
    assert max_min_bps([12], [[0], [0]], [1, 3]) == [3, 9]
    # The heavy one is held up elsewhere at 2, the other takes the rest.
    assert max_min_bps([12, 2], [[0], [0, 1]], [1, 3]) == [10, 2]


def test_a_tree_of_edge_aggregators() -> None:
    # Server 10; edges of 4 and 20 with two clients each, the last of which has a slow link of 1.
    routes = [[0, 1], [0, 1], [0, 2], [0, 2, 3]]
    assert max_min_bps([10, 4, 20, 1], routes) == [2, 2, 5, 1]


def test_no_link_no_limit_and_no_capacity_no_rate() -> None:
    assert max_min_bps([0.0, 5.0], [[], [0, 1], [1]]) == [math.inf, 0, 5]
    assert max_min_bps([1.0], []) == []


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_wrong_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="finite weights above 0"):
        max_min_bps([1.0], [[0], [0]], weights)


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[float], list[list[int]], list[float]]:
    capacities = draw(st.lists(numbers, min_size=1, max_size=5))
    links = st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=3, unique=True)
    routes = draw(st.lists(links, min_size=1, max_size=8))
    weight = st.sampled_from([0.5, 1.0, 3.0])
    return capacities, routes, draw(st.lists(weight, min_size=len(routes), max_size=len(routes)))


@given(topologies())
def test_every_flow_has_a_full_link_on_which_nobody_has_more(
    topology: tuple[list[float], list[list[int]], list[float]],
) -> None:
    # This, with no link above its capacity, is what max-min fairness is.
    capacities, routes, weights = topology
    rates = [Fraction(rate) for rate in max_min_bps(capacities, routes, weights)]
    levels = [rate / Fraction(weight) for rate, weight in zip(rates, weights, strict=True)]
    on_link = [
        [flow for flow, route in enumerate(routes) if link in route] for link in range(len(capacities))
    ]
    loads = [sum(rates[flow] for flow in flows) for flows in on_link]
    tiny = Fraction(1, 10**12)
    assert all(load <= capacity * (1 + tiny) for load, capacity in zip(loads, capacities, strict=True))
    for flow, route in enumerate(routes):
        assert any(
            loads[link] >= capacities[link] * (1 - tiny)
            and levels[flow] >= max(levels[other] for other in on_link[link]) * (1 - tiny)
            for link in route
        )


def test_flows_over_a_parking_lot_through_time() -> None:
    filling = ProgressiveFilling([10, 4])
    for name, route in enumerate([[0], [0, 1], [1]]):
        filling.add(name, 16.0, route)
    assert (filling.next_end_s(), filling.rates_bps()) == (2.0, {0: 8, 1: 2, 2: 2})
    filling.advance(2.0)
    assert filling.finished() == [0]
    # B stays the narrow one: 12 bits at 2 each.
    assert filling.next_end_s() == 8.0
    filling.advance(5.0)
    assert filling.remove(2) == 6.0
    assert filling.remaining_bits(1) == 6.0
    assert filling.next_end_s() == 6.5
    filling.set_capacity(1, 1.0)
    assert filling.next_end_s() == 11.0
    filling.set_capacity(1, 0.0)
    assert (filling.next_end_s(), len(filling)) == (math.inf, 1)


def test_weights_through_time() -> None:
    filling = ProgressiveFilling([4])
    filling.add(1, 3.0, [0], weight=3.0)
    filling.add(0, 2.0, [0])
    filling.advance(1.0)
    assert filling.finished() == [1]
    assert filling.next_end_s() == 1.25


def test_what_makes_no_sense_is_refused() -> None:
    filling = ProgressiveFilling([4])
    filling.add(1, 3.0, [0])
    with pytest.raises(ValueError, match="flow 1 is under way"):
        filling.add(1, 3.0, [0])
    with pytest.raises(KeyError):
        filling.remove(2)
    filling.advance(0.5)
    with pytest.raises(ValueError, match="time goes forward"):
        filling.advance(0.25)
