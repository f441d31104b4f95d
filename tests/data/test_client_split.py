"""Splitting one client's samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Labels
from fedsim.data.client_split import Shares, shares_fault, split_client

SHARES = st.sampled_from(
    [
        (1.0, 0.0, 0.0),
        (0.75, 0.0, 0.25),
        (0.6, 0.2, 0.2),
        (0.9, 0.1, 0.0),
        (0.5833, 0.25, 0.1667),
        (0.3, 0.35, 0.35),
    ]
)


def labels_of(*counts: int) -> Labels:
    return np.repeat(np.arange(len(counts)), counts)


def classes(labels: Labels, shares: tuple[float, float, float], num_classes: int) -> list[list[int]]:
    return [
        np.bincount(labels[part], minlength=num_classes).tolist() for part in split_client(labels, shares)
    ]


def test_every_class_is_split_in_the_wanted_shares() -> None:
    assert classes(labels_of(10, 20, 5), (0.6, 0.2, 0.2), 3) == [[6, 12, 3], [2, 4, 1], [2, 4, 1]]


def test_rounding_in_one_class_is_made_up_for_in_the_next() -> None:
    # Each class alone would give 4.5 : 1.5; together they are 9 : 3.
    assert classes(labels_of(6, 6), (0.75, 0.0, 0.25), 2) == [[5, 4], [0, 0], [1, 2]]


def test_classes_rarer_than_parts_are_split_together() -> None:
    # Ten samples give 6 : 2 : 2. Class 2 has enough for itself, 3.6 : 1.2 : 1.2; the other four fill up.
    parts = classes(labels_of(2, 2, 6), (0.6, 0.2, 0.2), 3)
    assert [sum(part) for part in parts] == [6, 2, 2]
    assert [part[2] for part in parts] == [4, 1, 1]


def test_a_regression_is_one_class() -> None:
    targets = np.array([0.5, -1.0, 0.5, 2.0, 7.0, 0.25, 3.0, 1.0, 1.0, 9.0], np.float32)
    # Shuffled beforehand, so the first are as good as any.
    assert [part.tolist() for part in split_client(targets, (0.6, 0.2, 0.2))] == [
        [0, 1, 2, 3, 4, 5],
        [8, 9],
        [6, 7],
    ]
    assert [len(part) for part in split_client(targets[:2], (0.6, 0.2, 0.2))] == [1, 0, 1]


@pytest.mark.parametrize(
    ("num_samples", "sizes"), [(0, [0, 0, 0]), (1, [1, 0, 0]), (2, [1, 0, 1]), (3, [1, 1, 1]), (4, [2, 1, 1])]
)
def test_few_samples_go_to_train_then_test_then_validation(num_samples: int, sizes: list[int]) -> None:
    assert [len(part) for part in split_client(labels_of(num_samples), (0.6, 0.2, 0.2))] == sizes


def test_few_samples_of_two_parts() -> None:
    assert [len(part) for part in split_client(labels_of(1), (0.5, 0.5, 0.0))] == [1, 0, 0]
    assert [len(part) for part in split_client(labels_of(2), (0.9, 0.1, 0.0))] == [1, 1, 0]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), SHARES)
def test_laws(values: list[int], shares: tuple[float, float, float]) -> None:
    labels = np.array(values)
    parts = split_client(labels, shares)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    wanted = [part for part in range(3) if shares[part] > 0]
    for part, positions in enumerate(parts):
        assert positions.tolist() == sorted(positions.tolist())
        if part not in wanted:
            assert len(positions) == 0
        elif len(labels) >= len(wanted):
            assert len(positions) >= 1
            assert abs(len(positions) - shares[part] * len(labels)) < 2
    assert len(parts[0]) >= 1
    # In a class that is large enough, each part is near its share, and has one where the share is a sample.
    for label in np.unique(labels):
        held = np.array([(labels[part] == label).sum() for part in parts])
        own = held.sum() * np.array([len(part) for part in parts]) / len(labels)
        if held.sum() >= len(wanted):
            assert (np.abs(held - own) < 2).all()
            assert (held[own >= 1] >= 1).all()


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ((1.0, 0.0, 0.0), ""),
        ((0.6, 0.2, 0.2), ""),
        ((0.6, 0.2, 0.3), "sum to 1, but 0.6, 0.2, 0.3 sum to 1.1"),
        ((1.2, -0.2, 0.0), "each be from 0 to 1"),
        ((0.0, 0.5, 0.5), "share of train must be above 0"),
        ((float("nan"), 0.5, 0.5), "each be from 0 to 1"),
    ],
)
def test_shares_fault(shares: Shares, problem: str) -> None:
    fault = shares_fault(shares)
    assert problem in fault
    assert bool(problem) == bool(fault)
