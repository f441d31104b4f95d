"""Weights by similarity: cases by hand, and the sanity checks of specification 5.E.3 and 5.E.4."""

import numpy as np
import pytest

from fedsim.algorithms.common.similarity import (
    AT_ONCE,
    by_range,
    by_rank,
    by_sum,
    cosines,
    cosines_flops,
    cosines_of_predictions,
    gram_rows,
    gram_rows_flops,
)
from fedsim.params import Array
from fedsim.rng import Key


def _predictions(num_clients: int) -> Array:
    scores = np.exp(Key.root(1).numpy().standard_normal((num_clients, 20, 5)))
    values: Array = (scores / scores.sum(axis=2, keepdims=True)).astype(np.float32)
    return values


def _q(num_clients: int = 5) -> Array:
    values = _predictions(num_clients)
    return cosines_of_predictions(values, np.ones(values.shape[:2], np.bool_))


def test_cosines_by_hand() -> None:
    values = np.array([[[1, 0], [1, 0]], [[0, 1], [1, 0]], [[1, 0], [1, 0]]], np.float32)
    found = cosines_of_predictions(values, np.ones((3, 2), np.bool_))
    assert found.tolist() == [[1, 0.5, 1], [0.5, 1, 0.5], [1, 0.5, 1]]


def test_pairs_are_compared_on_what_both_gave() -> None:
    given = np.array([[1, 1], [0, 1], [0, 0]], np.bool_)
    values = np.array([[[1, 0], [1, 0]], [[0, 0], [1, 0]], [[0, 0], [0, 0]]], np.float32)
    assert cosines_of_predictions(values, given).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_gram_is_taken_over_all_parameters() -> None:
    trees = [
        {"w": np.array([[1, 2]], np.float32), "b": np.array(3, np.float32)},
        {"w": np.array([[0, 1]], np.float32), "b": np.array(-1, np.float32)},
    ]
    products, squares = gram_rows(trees, range(2), centred=False)
    assert products.tolist() == [[14, -1], [-1, 2]]
    assert squares.tolist() == [14, 2]
    assert gram_rows(trees, range(2), centred=True)[0].tolist() == [[4.5, -4.5], [-4.5, 4.5]]
    np.testing.assert_allclose(cosines(products)[0, 1], -1 / np.sqrt(28))


def test_gram_of_large_parameters_is_summed_piece_by_piece() -> None:
    vectors = Key.root(2).numpy().standard_normal((3, 2 * AT_ONCE + 5)).astype(np.float32)
    trees = [{"w": vector.reshape(-1, 1)} for vector in vectors]
    wide = vectors.astype(np.float64)
    np.testing.assert_allclose(gram_rows(trees, range(3), centred=False)[0], wide @ wide.T)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("rows", [[2, 0], [1], [0, 1, 2, 3]])
def test_rows_of_gram_are_those_of_all(rows: list[int], centred: bool) -> None:
    vectors = Key.root(2).numpy().standard_normal((4, AT_ONCE + 5)).astype(np.float32)
    trees = [{"w": vector} for vector in vectors]
    whole, _ = gram_rows(trees, range(4), centred)
    products, squares = gram_rows(trees, rows, centred)
    np.testing.assert_allclose(products, whole[rows])
    np.testing.assert_allclose(squares, np.diagonal(whole))


def test_fewer_rows_cost_less() -> None:
    assert gram_rows_flops(5, 5, 10) == 2 * 5 * 6 * 10
    assert gram_rows_flops(2, 5, 10) == 2 * (2 * 5 + 5 + 3) * 10


def test_a_vector_of_zeros_is_like_nobody_but_itself() -> None:
    assert cosines(np.diag([0.0, 4.0])).tolist() == [[1, 0], [0, 1]]


def test_range_by_hand() -> None:
    found = by_range(np.array([[1, 0.5, 0.75], [0.5, 1, 0.25], [0.75, 0.25, 1]]))
    np.testing.assert_allclose(found[0], [2 / 3, 0, 1 / 3])


def test_of_two_the_other_weighs_nothing_by_range() -> None:
    assert by_range(_q(2)).tolist() == [[1, 0], [0, 1]]


def test_sum_is_nearly_uniform_for_probabilities() -> None:
    weights = by_sum(_q())
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert np.abs(weights - 0.2).max() < 0.11  # by range the least similar has 0
    assert by_sum(np.array([[1.0, -0.5], [-0.5, 1.0]])).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("weigh", [by_range, by_sum])
def test_rows_sum_to_one_and_oneself_weighs_most(weigh: type) -> None:
    weights = weigh(_q())
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (np.diagonal(weights) > np.where(np.eye(5, dtype=bool), 0, weights).max(axis=1)).all()


@pytest.mark.parametrize("weigh", [by_range, by_sum])
def test_clients_that_are_all_alike_weigh_the_same(weigh: type) -> None:
    values = _predictions(1).repeat(4, axis=0)
    assert weigh(cosines_of_predictions(values, np.ones((4, 20), np.bool_))).tolist() == [[0.25] * 4] * 4
    assert weigh(np.ones((1, 1))).tolist() == [[1]]


def test_identical_clients_have_identical_rows() -> None:
    values = _predictions(5)
    values[3] = values[1]
    weights = by_range(cosines_of_predictions(values, np.ones((5, 20), np.bool_)))
    np.testing.assert_allclose(weights[3], weights[1], atol=1e-11)
    np.testing.assert_allclose(weights[:, 3], weights[:, 1], atol=1e-11)


def test_rank_by_hand() -> None:
    similarities = np.array([[1, 0.2, 0.6, 0.6], [0.2, 1, 0.3, 0.1], [0.6, 0.3, 1, 0.2], [0.6, 0.1, 0.2, 1]])
    found = by_rank(similarities, 2)
    assert found[0].tolist() == [0.5, 0, 0.5, 0]  # 2 and 3 are as near: the lower number
    assert found[1].tolist() == [0, 0.5, 0.5, 0]


def test_oneself_comes_first_even_among_equals() -> None:
    assert by_rank(np.ones((3, 3)), 1).tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("num_neighbours", [3, 4, 5])
def test_as_many_neighbours_as_clients_is_the_mean(num_neighbours: int) -> None:
    np.testing.assert_allclose(by_rank(_q(3), num_neighbours), 1 / 3)


def test_costs() -> None:
    assert cosines_flops(2, 10, 5) == 2 * 2 * 3 * 50
    assert cosines_flops(1, 0, 5) > 0
