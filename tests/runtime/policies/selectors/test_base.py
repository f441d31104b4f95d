"""Who may be asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.fleet import Availability
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors import base
from fedsim.runtime.policies.selectors.base import Candidates

ELIGIBLE = np.array([1, 2, 4, 7, 8, 9])


class Even(Availability):
    """Even clients are there; it counts how many it is asked about."""

    def __init__(self, num: int) -> None:
        super().__init__(num)
        self.asked = 0

    def _states(self, clients: Array, tick: int) -> Array:
        self.asked += len(clients)
        flags: Array = clients % 2 == 0
        return flags

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        return client % 2 == 0, None


def candidates(busy: list[int], availability: Availability | None = None) -> Candidates:
    return Candidates(ELIGIBLE, np.array(busy, np.int64), availability, 3.0, lambda clients: 10 * clients)


def test_who_is_eligible_free_and_there() -> None:
    assert candidates([]).clients.tolist() == ELIGIBLE.tolist()
    assert candidates([7, 2]).clients.tolist() == [1, 4, 8, 9]
    some = candidates([4], Even(10))
    assert (some.free.tolist(), some.clients.tolist(), some.sizes.tolist()) == (
        [1, 2, 7, 8, 9],
        [2, 8],
        [20, 80],
    )


def test_of_any_clients_those_that_may_be_asked_are_known() -> None:
    asked = np.array([0, 1, 2, 3, 4, 8, 10])
    assert candidates([4], Even(11)).knows(asked).tolist() == [False, False, True, False, False, True, False]
    nobody = Candidates(ELIGIBLE[:0], ELIGIBLE[:0], None, 0.0, lambda clients: clients)
    assert nobody.knows(asked).tolist() == [False] * 7
    assert not nobody.any(Key.root(0))


@given(st.sets(st.integers(0, 40)), st.integers(0, 30), st.booleans(), st.integers(0, 5))
def test_a_sample_is_of_the_candidates_however_it_is_drawn(
    busy: set[int], count: int, large: bool, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "ONE_BY_ONE", 0 if large else 10**6)
        offered = Candidates(np.arange(40), np.array(sorted(busy), np.int64), Even(40), 0.0, lambda own: own)
        drawn = offered.sample(count, Key.root(seed))
        assert len(set(drawn.tolist())) == len(drawn) == min(count, len(offered.clients))
        assert offered.knows(np.sort(drawn)).all()
        assert offered.any(Key.root(seed)) == bool(len(offered.clients))


def test_on_a_large_fleet_only_those_drawn_are_asked_whether_they_are_there() -> None:
    presence = Even(100_000)
    offered = Candidates(np.arange(100_000), ELIGIBLE[:0], presence, 0.0, lambda own: own)
    assert offered.any(Key.root(0))
    assert len(offered.sample(50, Key.root(1))) == 50
    assert presence.asked < 1000
