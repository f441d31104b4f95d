"""What queueing theory says of a closed loop, and what it costs to wait for the slowest.

C dispatches are open, each lasts independently, and every K replies are merged. While one is open, C - 1
others reply on average, so it is (C - 1) / K versions old when it is merged; and C replies come in a mean
duration. The percentiles have no such formula: they are those of a plain simulation with sorted arrays.
"""

from collections.abc import Callable
from functools import cache
from math import exp, pi, sqrt
from typing import Any

import numpy as np
import pytest

from fedsim.rng import Key
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS

LAWS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "half_normal": (lambda draws: np.abs(draws.standard_normal(10_000)), sqrt(2 / pi)),
    "exponential": (lambda draws: draws.exponential(size=10_000), 1.0),
    "lognormal": (lambda draws: np.exp(draws.standard_normal(10_000)), exp(0.5)),
}
MANY = 80_000
"""Replies of a closed loop, after the first ten of each place."""


def drawn(law: str) -> Callable[[int, int], float]:
    draws, left = Key.root(5).child(law).numpy(), list[float]()

    def takes_s(client: int, number: int) -> float:
        if not left:
            left.extend(LAWS[law][0](draws).tolist())
        return left.pop()

    return takes_s


@cache
def closed_loop(rounds: Any, law: str, concurrency: int, buffer: int) -> tuple[Any, float]:
    """Return the staleness of replies, the first ten of each place left out, and the time of these."""
    first = 10 * concurrency
    done = rounds(drawn(law), num_clients=concurrency, num_rounds=(first + MANY) // buffer)
    done.play(Buffered(Buffered.Config(concurrency=concurrency, buffer=buffer)))
    ended_s = [call[1] for call in done.of("end")]
    return np.array(done.staleness[first:]), ended_s[-1] - ended_s[first // buffer - 1]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("concurrency", "buffer"), [(100, 10), (1000, 100)])
def test_a_closed_loop(law: str, concurrency: int, buffer: int, rounds: Any) -> None:
    staleness, seconds = closed_loop(rounds, law, concurrency, buffer)
    assert staleness.mean() == pytest.approx((concurrency - 1) / buffer, rel=0.01)
    assert len(staleness) / seconds == pytest.approx(concurrency / LAWS[law][1], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "percentile"), [("half_normal", 32), ("exponential", 46), ("lognormal", 62)])
def test_the_stalest_replies(law: str, percentile: int, rounds: Any) -> None:
    staleness, _ = closed_loop(rounds, law, 100, 10)
    assert np.percentile(staleness, 99) == pytest.approx(percentile, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "over_selection", "cost"),
    [
        ("half_normal", 1.0, 4.31),
        ("exponential", 1.0, 7.49),
        ("lognormal", 1.0, 16.6),
        ("half_normal", 1.3, 1.95),
        ("exponential", 1.3, 1.90),
        ("lognormal", 1.3, 1.65),
    ],
)
def test_what_a_reply_costs_in_rounds_that_wait_for_the_slowest(
    law: str, over_selection: float, cost: float, rounds: Any
) -> None:
    wanted = 1000
    asked = round(over_selection * wanted)
    num_rounds = 100 if over_selection == 1 else 10
    done = rounds(drawn(law), num_clients=asked, num_rounds=num_rounds, cohort_size=wanted)
    done.play(SYNCHRONOUS(SYNCHRONOUS.Config(over_selection=over_selection)))
    ends_s = np.array([0.0, *(call[1] for call in done.of("end"))])
    merged = np.array([len(call[1]) for call in done.of("merge")])
    costs = asked * np.diff(ends_s) / merged / LAWS[law][1]
    if law == "lognormal" and over_selection == 1:
        assert abs(costs.mean() - cost) < 3 * costs.std(ddof=1) / sqrt(num_rounds)
    else:
        assert costs.mean() == pytest.approx(cost, rel=0.03)
