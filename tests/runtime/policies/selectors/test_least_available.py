"""The least available first: what is told of a slot, what was seen, and who rests."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.fleet import Availability
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact
from fedsim.runtime.policies.selectors.least_available import PLUGIN, Durations


class Until(Availability):
    """Client k leaves for good after 10 (k + 1) seconds."""

    def _states(self, clients: Array, tick: int) -> Array:
        flags: Array = tick < 10 * 1024 * (clients + 1)
        return flags

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        raise NotImplementedError


def offered(
    round: int,  # noqa: A002
    at_s: float = 0.0,
    *,
    asked: tuple[int, ...] = (0, 0, 0, 0),
    share: tuple[float, ...] = (0.5, 0.5, 0.5, 0.5),
    availability: Availability | None = None,
    memory: dict[str, Any] | None = None,
) -> Candidates:
    known: dict[Fact, Array] = {"last_asked": np.array(asked), "present_share": np.array(share)}
    everybody = np.arange(4)
    return Candidates(
        everybody,
        everybody[:0],
        availability,
        at_s,
        np.ones_like,
        known.__getitem__,
        round,
        {} if memory is None else memory,
    )


def chosen(candidates: Candidates, count: int, seed: int = 0, **params: object) -> list[int]:
    selector = PLUGIN(PLUGIN.Config.model_validate(params))
    return [int(client) for client in selector.select(candidates, count, Key.root(seed))]


def test_who_was_there_least_comes_first() -> None:
    assert chosen(offered(1, share=(0.5, 0.2, 0.9, 0.4)), 3, predicted="seen") == [1, 3, 0]


def test_who_will_be_there_least_in_the_coming_slot_comes_first() -> None:
    memory: dict[str, Any] = {}
    chosen(offered(1, 0.0, memory=memory), 1)
    # A round took 4 s, so the slot is from 9 s to 13 s: client 0 is there for a quarter of it.
    candidates = offered(2, 5.0, availability=Until(4), memory=memory)
    candidates.memory["durations"] = replace(candidates.memory["durations"], began_at_s=1.0)
    assert {chosen(candidates, 2, seed)[0] for seed in range(20)} == {0}
    assert {chosen(candidates, 2, seed)[1] for seed in range(20)} == {1, 2, 3}
    assert PLUGIN(PLUGIN.Config()).expected_availability(candidates).tolist() == [0.25, 1.0, 1.0, 1.0]


def test_equal_ones_are_as_likely() -> None:
    firsts = np.bincount([chosen(offered(1), 1, seed)[0] for seed in range(800)], minlength=4)
    assert np.abs(firsts - 200).max() < 60  # the standard deviation is 12
    always = [chosen(offered(1), 4, 0), chosen(offered(1), 4, 1)]
    assert sorted(always[0]) == sorted(always[1]) == [0, 1, 2, 3]


def test_who_was_asked_rests_and_is_next_when_the_others_are_too_few() -> None:
    candidates = offered(8, asked=(7, 3, 2, 0), share=(0.1, 0.2, 0.3, 0.4))
    assert chosen(candidates, 4, predicted="seen") == [2, 3, 1, 0]
    assert chosen(candidates, 4, predicted="seen", rest=0) == [0, 1, 2, 3]


def test_the_mean_duration_of_rounds() -> None:
    durations = Durations(1, 0.0)
    assert durations.begun(1, 3.0) is durations
    durations = durations.begun(2, 8.0)
    assert durations.mean_s == 8.0
    durations = durations.begun(4, 12.0)  # two rounds of 2 s
    assert durations.mean_s == pytest.approx(0.75 * 2 + 0.25 * 8)


def test_presence_is_kept_only_where_it_is_used() -> None:
    assert PLUGIN(PLUGIN.Config()).wants == ("last_asked",)
    assert "present_share" in PLUGIN(PLUGIN.Config(predicted="seen")).wants
