"""What holds for every partition, whatever its settings."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsim.data.base import Indices
from fedsim.data.partitions.base import PartitionPlugin, Pool
from fedsim.errors import DataError
from fedsim.plugins import available, load
from fedsim.rng import Key

FOLDER = "fedsim.data.partitions"
NUM_CLASSES = 4


def make(name: str, **settings: Any) -> PartitionPlugin[Any]:
    plugin = load(FOLDER, name)
    partition = plugin(plugin.Config(**settings))
    assert isinstance(partition, PartitionPlugin)
    return partition


# Settings under which each partition can serve any of the drawn requests, those that lose nothing first.
ALL_GIVEN = [
    make("iid"),
    make("all_uneven"),
    make("dirichlet_class", alpha=5.0, min_size=0),
    make("dirichlet_class", alpha=0.05, min_size=0, cap=True),
    make("dirichlet_class", alpha=50.0, min_size=0, every_class=True),
    make("dirichlet_client", alpha=0.1),
    make("dirichlet_client", alpha=1e-6),
    make("dirichlet_two_level", min_size=0),
    make("dirichlet_two_level", alpha_label=1e-6, alpha_size=1e-6, min_size=0),
    make("label_groups", groups=1),
]
BY_HOLDER = [make("two_class"), make("two_class", spread=0.0), make("two_class_lognormal", least=1)]
PARTITIONS = [*ALL_GIVEN, *BY_HOLDER, make("classes_per_client", classes=2), make("by_user")]

labels_of_four_classes = st.lists(st.integers(0, NUM_CLASSES - 1), min_size=8, max_size=80).map(
    # Sixty of each class more, so that every holder of a class can have one.
    lambda values: np.array([*range(NUM_CLASSES)] * 60 + values)
)
some_clients = st.integers(1, 12)
some_key = st.integers(0, 2**32).map(Key.root)


few = settings(max_examples=settings().max_examples // 3)
"""A third of the usual examples, for each of so many partitions."""


def pool_of(labels: Indices) -> Pool:
    """A pool whose samples are in turn those of 12 users."""
    return Pool(labels, NUM_CLASSES, np.arange(len(labels)) % 12)


def test_every_partition_is_tested_here() -> None:
    assert {type(partition) for partition in PARTITIONS} == {found.plugin for found in available(FOLDER)}


@pytest.mark.parametrize("partition", PARTITIONS)
@few
@given(labels=labels_of_four_classes, num_clients=some_clients, key=some_key)
def test_no_sample_twice_and_none_lost(
    partition: PartitionPlugin[Any], labels: Indices, num_clients: int, key: Key
) -> None:
    parts = partition.split(pool_of(labels), num_clients, key)
    assert len(parts) == num_clients
    given_away = np.concatenate(parts)
    assert len(np.unique(given_away)) == len(given_away)
    assert (given_away >= 0).all()
    assert (given_away < len(labels)).all()
    assert all(part.dtype == np.int64 for part in parts)
    if partition in ALL_GIVEN:
        assert len(given_away) == len(labels)
    if partition in BY_HOLDER:
        # Left out are just the classes that nobody holds.
        assert sorted(given_away.tolist()) == np.flatnonzero(labels < num_clients + 1).tolist()


@pytest.mark.parametrize("partition", PARTITIONS)
@few
@given(labels=labels_of_four_classes, num_clients=some_clients, key=some_key)
def test_it_is_a_pure_function(
    partition: PartitionPlugin[Any], labels: Indices, num_clients: int, key: Key
) -> None:
    before, pool = labels.copy(), pool_of(labels)
    first = partition.split(pool, num_clients, key)
    again = partition.split(pool, num_clients, key)
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert np.array_equal(labels, before)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_key_decides(partition: PartitionPlugin[Any]) -> None:
    pool = pool_of(np.arange(300) % NUM_CLASSES)
    one, other = (partition.split(pool, 5, Key.root(seed)) for seed in range(2))
    assert [part.tolist() for part in one] != [part.tolist() for part in other]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_more_clients_than_samples_are_refused(partition: PartitionPlugin[Any]) -> None:
    with pytest.raises(DataError, match="4 samples cannot give one to each of 5 clients: use fewer clients"):
        partition.split(pool_of(np.arange(4)), 5, Key.root(0))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_one_client_holds_all_it_can(partition: PartitionPlugin[Any]) -> None:
    pool = Pool(np.array([0, 1, 1, 0]), 2, np.zeros(4, np.int64))
    (part,) = partition.split(pool, 1, Key.root(0))
    assert sorted(part.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_regression_has_no_classes(partition: PartitionPlugin[Any]) -> None:
    pool = Pool(np.linspace(0, 1, 24, dtype=np.float32), 0, np.arange(24) % 3)
    if type(partition).__name__ in {"Iid", "ByUser"}:
        assert [len(part) for part in partition.split(pool, 3, Key.root(0))] == [8, 8, 8]
    else:
        with pytest.raises(DataError, match=r"spreads classes, but the labels .* use iid, or by_user"):
            partition.split(pool, 3, Key.root(0))


def digest(parts: list[Indices]) -> str:
    flat = b"|".join(part.astype("<i8").tobytes() for part in parts)
    return hashlib.blake2b(flat, digest_size=8).hexdigest()


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("iid", {}, "ba3e32ea474a0a36"),
        ("dirichlet_class", {"alpha": 0.3}, "ef2e93d9576c7f0c"),
        ("dirichlet_class", {"alpha": 0.1, "min_size": 0, "cap": True}, "3fc7529ee605d20c"),
        ("dirichlet_client", {"alpha": 0.2}, "e64c9ede5330f893"),
        ("two_class", {}, "f5780f0ffe453469"),
    ],
)
def test_draws_stay_as_they_were_first(name: str, settings: dict[str, Any], expected: str) -> None:
    labels = Key.root(1).numpy().integers(0, 10, 3000)
    assert digest(make(name, **settings).split(Pool(labels, 10), 10, Key.root(0))) == expected
