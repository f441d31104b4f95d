import math

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.fleet.availability.duty_cycle import PLUGIN, DutyCycleConfig
from fedsim.rng import Key


def test_a_rhythm_by_hand() -> None:
    presence = PLUGIN(DutyCycleConfig.model_validate({"period": "8 s", "on_share": 0.25})).bind(
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
    presence = PLUGIN(DutyCycleConfig(on_share=0.4)).bind(20_000, Key.root(0))
    for at_s in (0.0, 3600.0, 1e6):
        assert presence.available(np.arange(20_000), at_s).mean() == pytest.approx(0.4, abs=0.015)


def test_whoever_never_leaves_never_changes() -> None:
    presence = PLUGIN(DutyCycleConfig(on_share=1)).bind(3, Key.root(0))
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
