"""Sums of parameter trees, against sums by hand."""

import numpy as np

from fedsim.algorithms.common.tree_arithmetic import combination, difference, squared_distance
from fedsim.params import Form, PendingTree


def test_a_combination_has_any_factors_and_the_first_tree_s_dtype() -> None:
    left, right = {"w": np.array([1, 2], np.float32)}, {"w": np.array([0.5, -4], np.float32)}
    result = combination([left, right], [2.0, -3.0])["w"]
    assert result.dtype == np.float32
    assert result.tolist() == [0.5, 16.0]
    assert not result.flags.writeable
    assert left["w"].tolist() == [1, 2]


def test_equal_trees_cancel() -> None:
    tree = {"w": np.array([[0.1, -0.7]], np.float32), "b": np.array(3.0, np.float32)}
    assert all(not array.any() for array in difference(tree, tree).values())
    assert squared_distance(tree, tree) == 0.0


def test_a_distance_is_squared_and_over_all_arrays() -> None:
    left = {"w": np.zeros(2, np.float32), "b": np.array(1.0, np.float32)}
    right = {"w": np.array([3, 4], np.float32), "b": np.array(0.0, np.float32)}
    assert squared_distance(left, right) == 26.0


def test_what_is_pending_stays_so_until_somebody_looks() -> None:
    own, there = {"w": np.array([4.0], np.float32)}, {"w": np.array([1.0], np.float32)}
    asked = []
    pending = PendingTree(Form.of(own), lambda: asked.append(1) or own)  # type: ignore[func-returns-value]
    for trees in ([pending, there], [there, pending]):
        made = difference(*trees)
        assert type(made) is PendingTree
        assert made.form is Form.of(own)
    assert not asked
    assert made["w"].tolist() == [-3.0]
    assert asked == [1]
    assert type(difference(pending, there)) is dict  # it has been computed
