"""What holds for every partition, whatever its settings."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Labels
from fedsim.data.partitions.base import PartitionPlugin
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


# Settings under which each partition can serve any of the drawn requests.
PARTITIONS = [
    make("iid"),
    make("dirichlet_class", alpha=5.0, min_size=0),
    make("dirichlet_class", alpha=0.05, min_size=0, cap=True),
    make("dirichlet_client", alpha=0.1),
    make("dirichlet_client", alpha=1e-6),
    make("two_class"),
    make("two_class", spread=0.0),
]

labels_of_four_classes = st.lists(st.integers(0, NUM_CLASSES - 1), min_size=8, max_size=80).map(
    # Eight of each class more, so that every holder of a class can have one.
    lambda values: np.array([*range(NUM_CLASSES)] * 8 + values)
)
some_clients = st.integers(1, 12)
some_key = st.integers(0, 2**32).map(Key.root)


def test_every_partition_is_tested_here() -> None:
    assert {type(partition) for partition in PARTITIONS} == {found.plugin for found in available(FOLDER)}


@pytest.mark.parametrize("partition", PARTITIONS)
@given(labels=labels_of_four_classes, num_clients=some_clients, key=some_key)
def test_no_sample_twice_and_none_lost(
    partition: PartitionPlugin[Any], labels: Labels, num_clients: int, key: Key
) -> None:
    parts = partition.split(labels, num_clients, NUM_CLASSES, key)
    assert len(parts) == num_clients
    given_away = np.concatenate(parts)
    assert len(np.unique(given_away)) == len(given_away)
    # two_class leaves out the classes that nobody holds; no other partition leaves out anything.
    has_holder = labels < (num_clients + 1 if partition.__module__.endswith("two_class") else NUM_CLASSES)
    assert sorted(given_away.tolist()) == np.flatnonzero(has_holder).tolist()
    assert all(part.dtype == np.int64 for part in parts)


@pytest.mark.parametrize("partition", PARTITIONS)
@given(labels=labels_of_four_classes, num_clients=some_clients, key=some_key)
def test_it_is_a_pure_function(
    partition: PartitionPlugin[Any], labels: Labels, num_clients: int, key: Key
) -> None:
    before = labels.copy()
    first = partition.split(labels, num_clients, NUM_CLASSES, key)
    again = partition.split(labels, num_clients, NUM_CLASSES, key)
    other = partition.split(labels, num_clients, NUM_CLASSES, key.child("other"))
    assert [part.tolist() for part in first] == [part.tolist() for part in again]
    assert [part.tolist() for part in first] != [part.tolist() for part in other]
    assert np.array_equal(labels, before)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_more_clients_than_samples_are_refused(partition: PartitionPlugin[Any]) -> None:
    with pytest.raises(DataError, match="4 samples cannot give one to each of 5 clients: use fewer clients"):
        partition.split(np.arange(4), 5, NUM_CLASSES, Key.root(0))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_one_client_holds_all_it_can(partition: PartitionPlugin[Any]) -> None:
    (part,) = partition.split(np.array([0, 1, 1, 0]), 1, 2, Key.root(0))
    assert sorted(part.tolist()) == [0, 1, 2, 3]
