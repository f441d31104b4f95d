"""Counts by class: a hand-computed matrix, and what the figures are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.confusion import Confusion

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40)


def of(pairs: list[tuple[int, int]], num_classes: int = 5) -> Confusion:
    labels, predicted = np.array(pairs, np.int64).reshape(-1, 2).T
    return Confusion.of(labels, predicted, num_classes)


def test_figures_by_hand() -> None:
    # Two of three samples of class 0 are found; 1 is taken for 0 and 2; 2 is only predicted; 3 is not there.
    counted = of([(0, 0), (0, 0), (0, 1), (1, 0), (1, 2)], 4)
    assert counted.matrix.tolist() == [[2, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert counted.matrix.dtype == np.int64
    assert counted.num_samples.tolist() == [3, 2, 0, 0]
    assert counted.num_predicted.tolist() == [3, 1, 1, 0]
    assert counted.num_correct.tolist() == [2, 0, 0, 0]
    np.testing.assert_equal(counted.recall, [2 / 3, 0, np.nan, np.nan])
    np.testing.assert_equal(counted.precision, [2 / 3, 0, 0, np.nan])
    np.testing.assert_equal(counted.f1, [2 / 3, 0, 0, np.nan])
    assert counted.macro_f1 == pytest.approx(2 / 9)


def test_nothing_counted_has_no_figures() -> None:
    assert of([]).macro_f1 is None
    assert Confusion.sum([]) is None


@given(PAIRS.filter(bool))
def test_figures_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn import metrics  # takes a second, which other processes of tests do not need

    counted, (labels, predicted) = of(pairs), zip(*pairs, strict=True)
    assert counted.matrix.tolist() == metrics.confusion_matrix(labels, predicted, labels=range(5)).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what scikit-learn calls 0 and we do not call anything
        figures: Any = metrics.precision_recall_fscore_support(labels, predicted, labels=range(5))
        macro_f1 = metrics.f1_score(labels, predicted, average="macro")
    for mine, its in zip((counted.precision, counted.recall, counted.f1), figures, strict=False):
        np.testing.assert_allclose(np.nan_to_num(mine), its)
    assert counted.macro_f1 == pytest.approx(macro_f1)


@given(st.lists(PAIRS, min_size=1, max_size=5))
def test_sets_counted_apart_sum_to_all_of_them(sets: list[list[tuple[int, int]]]) -> None:
    together = of([pair for some in sets for pair in some])
    assert Confusion.sum(map(of, sets)) == together
    assert together == Confusion.sum([together])
    assert together != of([(0, 0)] * 41)
