import math

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.fleet.availability.base import Availability
from fedsim.fleet.availability.on_off import DutyCycle, DutyCycleConfig, Renewal, RenewalConfig
from fedsim.rng import Key


def test_a_rhythm_by_hand() -> None:
    presence = DutyCycle(DutyCycleConfig.model_validate({"period": "8 s", "on_share": 0.25})).bind(
        1, Key.root(4)
    )
    start = 0.0
    while not (presence.look(0, start)[0] and not presence.look(0, start + 7.9990234375)[0]):
        start += 1 / 1024
    # From the tick at which it came: there for 2 s, away for 6 s, and so on.
    assert presence.look(0, start)[1] == start + 2
    assert presence.look(0, start + 1.5)[1] == start + 2
    assert presence.look(0, start + 2)[1] == start + 8
    states = [presence.look(0, start + i)[0] for i in range(16)]
    assert states == [True, True, *[False] * 6] * 2


def test_at_every_instant_the_share_of_the_clients_is_that_of_the_period() -> None:
    presence = DutyCycle(DutyCycleConfig(on_share=0.4)).bind(20_000, Key.root(0))
    for at_s in (0.0, 3600.0, 1e6):
        assert presence.available(np.arange(20_000), at_s).mean() == pytest.approx(0.4, abs=0.015)


def test_whoever_never_leaves_never_changes() -> None:
    presence = DutyCycle(DutyCycleConfig(on_share=1)).bind(3, Key.root(0))
    assert presence.look(2, 5.0)[1] == math.inf


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_share": 0}, "greater than or equal to 0.001"),
        ({"on_share": 1.1}, "less than or equal to 1"),
        ({"period": "0.9 s"}, "0.9 s is not from 1 s to 3650 d"),
        ({"period": "4000 d"}, "s is not from 1 s to 3650 d"),
        ({"period": 60}, "60 has no unit"),
    ],
)
def test_faults_are_told(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DutyCycleConfig.model_validate(settings)


def bound(num: int, **settings: object) -> Availability:
    return Renewal(RenewalConfig.model_validate(settings)).bind(num, Key.root(7))


def durations(presence: Availability, client: int, count: int) -> tuple[list[float], list[float]]:
    """Return the first whole times of presence and of absence."""
    on, off = list[float](), list[float]()
    at_s = presence.look(client, 0.0)[1]
    while len(on) + len(off) < count:
        end = presence.look(client, at_s)[1]
        (on if presence.look(client, at_s)[0] else off).append(end - at_s)
        at_s = end
    return on, off


def test_without_spread_it_is_a_rhythm() -> None:
    on, off = durations(bound(5, on="5 s", off="3 s", sigma=0), 4, 10)
    assert (set(on), set(off)) == ({5.0}, {3.0})


def test_durations_are_log_normal_with_the_medians_given() -> None:
    on, off = durations(bound(1), 0, 8000)
    assert len(on) == len(off)
    for times, median_h in ((on, 2), (off, 6)):
        logs = np.log(np.array(times) / 3600 / median_h)
        assert np.median(logs) == pytest.approx(0, abs=0.05)
        assert logs.std() == pytest.approx(1, abs=0.04)
    # One says nothing about the next.
    assert abs(np.corrcoef(np.log(on), np.log(off))[0, 1]) < 0.05


def test_at_every_instant_as_many_are_there_as_in_the_long_run() -> None:
    presence = bound(40_000, on="2 h", off="6 h")
    for at_s in (0.0, 60.0, 86_400.0, 1e9):
        assert presence.available(np.arange(40_000), at_s).mean() == pytest.approx(0.25, abs=0.01)


def test_over_time_a_client_is_there_for_its_share() -> None:
    presence = bound(3, on="10 min", off="10 min")
    times = np.arange(0, 86_400 * 400, 7200.0)
    for client in range(3):
        share = np.mean([presence.look(client, float(at_s))[0] for at_s in times])
        assert share == pytest.approx(0.5, abs=0.03)


def test_clients_do_not_move_together() -> None:
    presence = bound(200)
    seen = np.array([presence.available(np.arange(200), at_s) for at_s in np.arange(0, 4e6, 4e3)])
    correlations = np.corrcoef(seen.T.astype(float))[np.triu_indices(200, 1)]
    assert abs(correlations.mean()) < 0.005
    assert np.quantile(np.abs(correlations), 0.99) < 0.2


def test_the_number_of_clients_does_not_change_the_first_of_them() -> None:
    few, many = bound(10), bound(1000)
    for at_s in (0.0, 1e4, 1e7):
        assert np.array_equal(few.available(np.arange(10), at_s), many.available(np.arange(10), at_s))
