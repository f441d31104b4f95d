"""Groups of clients with classes of their own."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DataError
from tests.data.conftest import counted

counts_of = partial(counted, "label_groups")


@given(st.integers(3, 12), st.integers(1, 3), st.integers(0, 2**32))
def test_groups_share_no_class(num_clients: int, groups: int, seed: int) -> None:
    counts = counts_of(num_clients, *[60] * 7, groups=groups, seed=seed)
    classes = [np.flatnonzero(row).tolist() for row in counts]
    for client in range(num_clients):
        assert classes[client] == classes[client % groups]
    # Each class is some group's, and groups have equally many but for one.
    assert sorted(j for some in classes[:groups] for j in some) == list(range(7))
    assert {len(some) for some in classes} <= {7 // groups, -(-7 // groups)}
    assert counts.sum() == 420


def test_the_leak_by_hand() -> None:
    # 100 samples over four clients: 20 are leaked, 5 to each, and 80 go to the two of the group.
    counts = counts_of(4, 100, 100, leak=0.2)
    own = int(counts[0, 1] > counts[0, 0])
    assert counts[:, own].tolist() == [45, 5, 45, 5]
    assert counts[:, 1 - own].tolist() == [5, 45, 5, 45]


def test_a_leak_of_all_is_no_groups_at_all() -> None:
    assert counts_of(4, 40, 80, leak=1.0).tolist() == [[10, 20]] * 4


def test_which_classes_a_group_has_is_drawn() -> None:
    assert len({tuple(np.flatnonzero(counts_of(2, 9, 9, 9, 9, seed=seed)[0])) for seed in range(20)}) > 3


def test_more_groups_than_classes_or_clients() -> None:
    with pytest.raises(DataError, match=r"groups = 3, with 5 clients and 2 classes: .* write 2 or fewer"):
        counts_of(5, 9, 0, 9, groups=3)
    with pytest.raises(DataError, match="groups = 3, with 2 clients"):
        counts_of(2, 9, 9, 9, groups=3)
