from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.fleet.availability import available_sampling
from fedsim.fleet.availability.available_sampling import sample_available
from fedsim.fleet.availability.base import Availability
from fedsim.params import Array
from fedsim.rng import Key


class Known(Availability):
    """Array that are there or not for good; it counts how often it is asked about one."""

    def __init__(self, flags: Array) -> None:
        super().__init__(len(flags))
        self.flags, self.asked = flags, 0

    def _states(self, clients: Array, tick: int) -> Array:
        self.asked += len(clients)
        states: Array = self.flags[clients]
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        return bool(self.flags[client]), None

    def now(self, clients: Array) -> Array:
        return self.available(clients, 0.0)


@given(st.integers(0, 6000), st.floats(0, 1), st.integers(0, 300), st.integers(0, 5))
def test_a_sample_is_of_the_eligible_that_are_there(num: int, share: float, count: int, seed: int) -> None:
    generator = Key.root(seed).numpy()
    presence = Known(generator.random(10_000) < share)
    eligible = generator.permutation(10_000)[:num]
    sample = sample_available(eligible, count, presence.now, Key.root(seed))
    there = set(eligible[presence.flags[eligible]].tolist())
    assert len(set(sample.tolist())) == len(sample) == min(count, len(there))
    assert set(sample.tolist()) <= there
    assert sample.dtype == eligible.dtype
    assert sample.tolist() == sample_available(eligible, count, presence.now, Key.root(seed)).tolist()


# The rejection alone, the rejection that gives up for the mask, and the mask alone.
@pytest.mark.parametrize(
    ("small", "patience", "batches"),
    [
        pytest.param(0, 0.001, "many", marks=pytest.mark.slow),
        (0, 3, "some"),
        pytest.param(10**6, 8, "none", marks=pytest.mark.slow),
    ],
)
def test_every_ordered_choice_is_equally_likely(
    small: int, patience: float, batches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(available_sampling, "SMALL", small)
    monkeypatch.setattr(available_sampling, "GIVE_UP_AT", patience)
    monkeypatch.setattr(available_sampling, "BATCH", 2)
    flags = np.zeros(12, np.bool_)
    flags[[1, 4, 5, 9, 11]] = True
    presence = Known(flags)
    runs = 12_000
    counts = dict.fromkeys(permutations((1, 4, 5, 9, 11), 2), 0)
    for run in range(runs):
        sample = sample_available(np.arange(12), 2, presence.now, Key.root(run))
        counts[int(sample[0]), int(sample[1])] += 1
    expected = runs / len(counts)
    # Chi-square with 19 degrees of freedom: above 50.8 in one of 10 000 cases.
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 50.8
    everybody = presence.asked / runs
    assert {"many": everybody < 10, "some": 2 < everybody <= 12, "none": everybody == 12}[batches]


def test_few_are_asked_where_many_are_there_and_nobody_twice() -> None:
    presence = Known(np.arange(100_000) % 4 == 0)
    assert len(sample_available(np.arange(100_000), 100, presence.now, Key.root(0))) == 100
    assert presence.asked < 1000
    nobody = Known(np.zeros(100_000, np.bool_))
    assert len(sample_available(np.arange(100_000), 100, nobody.now, Key.root(0))) == 0
    assert nobody.asked == 100_000


def test_nobody_is_wanted_or_eligible() -> None:
    presence = Known(np.ones(3, np.bool_))
    assert sample_available(np.arange(3), 0, presence.now, Key.root(0)).tolist() == []
    assert sample_available(np.arange(0), 2, presence.now, Key.root(0)).tolist() == []
