from itertools import pairwise
from math import cos, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsim.fleet.availability.base import Availability
from fedsim.fleet.availability.diurnal import PLUGIN, DiurnalConfig, uniform, uniform_of
from fedsim.rng import Key

NUM = 40_000
EVERYBODY = np.arange(NUM)


def bound(num: int = NUM, **settings: object) -> Availability:
    return PLUGIN(DiurnalConfig.model_validate({"zones": {"+00:00": 1}, **settings})).bind(num, Key.root(3))


def share(presence: Availability, at_h: float) -> float:
    return float(presence.available(EVERYBODY, at_h * 3600).mean())


@pytest.mark.parametrize("at_h", [0, 2, 5.3, 14, 23.99, 24 * 50 + 7])
def test_the_probability_is_the_formulas_at_every_time_of_day(at_h: float) -> None:
    middle = (int(at_h * 4) + 0.5) / 4
    expected = 0.25 * (1 + 0.6 * cos(2 * pi * (middle - 2) / 24))
    assert share(bound(), at_h) == pytest.approx(expected, abs=0.01)


def test_day_and_night_differ_by_the_swing() -> None:
    presence = bound(share=0.4, swing=4, peak="20 h")
    assert share(presence, 20) / share(presence, 8) == pytest.approx(4, rel=0.06)
    assert share(bound(share=0.4, swing=1), 20) == pytest.approx(0.4, abs=0.01)


def test_a_zone_ahead_meets_its_peak_earlier() -> None:
    east, west = bound(zones={"+05:30": 1}), bound(zones={"-08:00": 3})
    assert share(east, 20.5) == pytest.approx(0.4, abs=0.01)
    assert share(west, 10) == pytest.approx(0.4, abs=0.01)
    assert share(west, 22) == pytest.approx(0.1, abs=0.01)


def test_zones_are_drawn_by_their_weights() -> None:
    # At 02:00 UTC it is the peak in one zone and the trough in the other.
    mixed = bound(zones={"+00:00": 3, "+12:00": 1, "+06:00": 0})
    assert share(mixed, 2) == pytest.approx(0.75 * 0.4 + 0.25 * 0.1, abs=0.01)


def test_willingness_lasts() -> None:
    presence = bound(keeps="4 h", swing=1, share=0.5)
    now, soon, late = (presence.available(EVERYBODY, at_h * 3600) for at_h in (0, 0.25, 400))
    assert (now == soon).mean() > 0.95
    assert (now == late).mean() == pytest.approx(0.5, abs=0.01)


def test_whoever_is_there_when_few_are_is_there_when_more_are_unless_the_willingness_changed() -> None:
    presence = bound(keeps="3650 d", sigma=0)
    noon, night = presence.available(EVERYBODY, 14 * 3600.0), presence.available(EVERYBODY, 26 * 3600.0)
    assert (noon & ~night).mean() < 1e-3


def test_changes_at_constant_willingness_are_at_quarters_and_real() -> None:
    presence = bound(50, keeps="3650 d", sigma=0)
    for client in range(50):
        at_s, states = 0.0, []
        while (at_s := presence.look(client, at_s)[1]) < 5 * 86_400:
            assert at_s % 900 == 0
            states.append(presence.look(client, at_s)[0])
        assert all(before != after for before, after in pairwise(states))
        assert len(states) in (0, 8, 9, 10, 11)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.7}, "asks for a probability of 1.12"),
        ({"zones": {}}, "at least 1 item"),
        ({"zones": {"CET": 1}}, "'CET' is no time zone"),
        ({"zones": {"+05:20": 1}}, "'\\+05:20' is no time zone"),
        ({"zones": {"+05:30": -1}}, "greater than or equal to 0"),
        ({"zones": {"+05:30": 0}}, "all zero"),
        ({"swing": 0.5}, "greater than or equal to 1"),
    ],
)
def test_faults_are_told(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DiurnalConfig.model_validate(settings)


def test_the_mend_of_a_peak_above_one_works() -> None:
    with pytest.raises(ValidationError) as caught:
        DiurnalConfig.model_validate({"share": 0.9, "swing": 3})
    assert caught.value.errors()[0]["ctx"]["mend"] == "lower share to 0.666 or less, or lower swing"
    assert DiurnalConfig(share=0.666, swing=3).share == 0.666
    assert DiurnalConfig(share=0.625, swing=4).share == 0.625


def test_numbers_from_counters_are_uniform_and_apart() -> None:
    num = 50_000
    table = np.array([uniform(9, np.arange(num), np.full(num, turn)) for turn in range(4)])
    assert ((table >= 0) & (table < 1)).all()
    counts = np.histogram(table, 50, (0, 1))[0]
    expected = table.size / 50
    # Chi-square with 49 degrees of freedom: above 94.6 in one of 10 000 cases.
    assert ((counts - expected) ** 2 / expected).sum() < 94.6
    assert abs(np.corrcoef(table)[np.triu_indices(4, 1)]).max() < 0.02
    assert abs(np.corrcoef(table[0, 1:], table[0, :-1])[0, 1]) < 0.02
    assert uniform(9, np.array([5]), np.array([2]))[0] == table[2, 5]
    assert uniform(8, np.array([5]), np.array([2]))[0] != table[2, 5]


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(0, 2**40), min_size=1, max_size=3))
def test_the_number_of_one_row_is_that_of_many(seed: int, counters: list[int]) -> None:
    assert uniform_of(seed, *counters) == uniform(seed, *(np.array([one]) for one in counters))[0]
