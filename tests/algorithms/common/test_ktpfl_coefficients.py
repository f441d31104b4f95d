"""The coefficient matrix's arithmetic: the laws of specification 5.E.1, and cases by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import given as for_all
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsim.algorithms.common.ktpfl_coefficients import (
    CoefficientConfig,
    gradient,
    learned,
    learned_flops,
    learned_from_gram,
    mixture,
    mixture_flops,
    normalised,
    product,
    project,
    restricted,
    step,
)
from fedsim.params import Array
from fedsim.rng import Key


def _probabilities(key: Key, *shape: int, sharpness: float = 1.0) -> Array:
    scores = np.exp(sharpness * key.numpy().standard_normal(shape))
    values: Array = (scores / scores.sum(axis=-1, keepdims=True)).astype(np.float32)
    return values


def _all(values: Array) -> Array:
    return np.ones(values.shape[:2], np.bool_)


def test_products_are_float64() -> None:
    found = product(np.array([[1, 2]], np.float32), np.array([[3], [4]], np.float32))
    assert found.dtype == np.float64
    assert found.tolist() == [[11.0]]
    fixed = np.eye(2)
    fixed.flags.writeable = False
    assert product(fixed, np.array([[1.0, 2.0], [3.0, 4.0]]).T).tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_rows_are_scaled_to_one_and_rows_of_nothing_are_uniform() -> None:
    assert restricted(np.array([[0.125, 0.375], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_a_teacher_is_the_weighted_mean() -> None:
    values = np.array([[[1, 0]], [[0, 1]]], np.float32)
    found = mixture(np.array([[0.75, 0.25], [0, 1]]), values, _all(values))
    assert found.tolist() == [[[0.75, 0.25]], [[0.0, 1.0]]]


def test_a_missing_sample_is_mixed_from_those_who_gave_it() -> None:
    # Sample 0: client 1 alone is missing; sample 1: only client 0 gave it; sample 2: nobody did.
    given = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0]], np.bool_)
    values = np.array([[[1, 0], [0.5, 0.5], [0, 0]], [[0, 0]] * 3, [[0, 1], [0, 0], [0, 0]]], np.float32)
    weights = np.array([[0.25, 0.5, 0.25], [0, 1, 0], [0, 0, 1]])
    found = mixture(weights, values, given)
    assert found[0].tolist() == [[0.5, 0.5], [0.5, 0.5], [0, 0]]
    # All of row 1's weight lies on a client that gave nothing: equal weights for those who did.
    assert found[1].tolist() == [[0.5, 0.5], [0.5, 0.5], [0, 0]]
    assert found[2].tolist() == [[0, 1], [0.5, 0.5], [0, 0]]


def test_alone_a_teacher_is_what_was_said_bit_for_bit() -> None:
    values = _probabilities(Key.root(1), 1, 7, 10)
    assert mixture(np.ones((1, 1)), values, _all(values)).astype(np.float32).tobytes() == values.tobytes()


def _autograd(c: Array, values: Array, given: Array) -> Array:
    """Derivative of each student's mean KL by its row of c, through the scaling of each sample's weights."""
    rows = torch.tensor(c, requires_grad=True)
    said = torch.tensor(values.astype(np.float64))
    there = torch.tensor(given.astype(np.float64))
    total = torch.zeros((), dtype=torch.float64)
    for student in range(len(c)):
        weights = rows[student][:, None] * there
        teacher = (weights[:, :, None] * said).sum(0) / weights.sum(0)[:, None]
        own = torch.tensor(given[student])
        divergence = (teacher[own] * (teacher[own].log() - said[student][own].log())).sum(1).mean()
        total = total + divergence
    (found,) = torch.autograd.grad(total, rows)
    result: Array = found.numpy()
    return result


def _centred(rows: Array) -> Array:
    result: Array = rows - rows.mean(axis=1, keepdims=True)
    return result


def test_the_closed_form_is_the_derivative_up_to_a_constant_per_row() -> None:
    values = _probabilities(Key.root(2), 4, 30, 5)
    c = restricted(np.exp(Key.root(3).numpy().standard_normal((4, 4))))
    found = gradient(c, values, _all(values))
    np.testing.assert_allclose(_centred(found), _centred(_autograd(c, values, _all(values))), atol=1e-12)
    # And so is the formula as the specification writes it.
    teacher = np.einsum("nm,mpj->npj", c, values)
    literal = np.einsum("mpj,npj->nm", values, np.log(teacher / values)) / 30
    np.testing.assert_allclose(_centred(found), _centred(literal), atol=1e-12)


def test_the_closed_form_is_the_derivative_where_samples_are_missing() -> None:
    # In float64, since rows of float32 sum to one only nearly, which the derivative of T log T feels.
    values = _probabilities(Key.root(4), 4, 30, 5).astype(np.float64)
    values /= values.sum(axis=2, keepdims=True)
    given = Key.root(5).numpy().random((4, 30)) < 0.7
    given[0] = True  # so that each sample has somebody
    values = values * given[:, :, None]
    c = restricted(np.exp(Key.root(6).numpy().standard_normal((4, 4))))
    np.testing.assert_allclose(gradient(c, values, given), _autograd(c, values, given), atol=1e-12)


def test_one_step_by_hand() -> None:
    # No slope, half the pull: (c + 1 * 1/2) / 2 with 2 lr rho = 1.
    config = CoefficientConfig(c_lr=0.5, rho=1.0)
    block = np.array([[1.0, 0.0], [0.5, 0.5]])
    mass, nothing = np.ones(2), np.zeros((2, 2))
    assert step(block, nothing, mass, 0.5, config).tolist() == [[0.75, 0.25], [0.5, 0.5]]
    explicit = CoefficientConfig(c_lr=0.25, rho=1.0, c_step="explicit")
    assert step(block, nothing, mass, 0.5, explicit).tolist() == [[0.75, 0.25], [0.5, 0.5]]
    # A slope of 0.4 against teacher 1 moves both entries by half of lr * 0.4 towards teacher 0.
    free = CoefficientConfig(c_lr=0.5, rho=0.0)
    slope = np.array([[0.0, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(step(block[[1, 1]], slope, mass, 0.5, free), [[0.6, 0.4], [0.5, 0.5]])


def test_softmax5_is_the_softmax_of_five_times_c_with_the_mass_of_the_row() -> None:
    block = np.array([[0.3, 0.1], [0.5, 0.5]])
    config = CoefficientConfig(c_norm="softmax5")
    found = normalised(block, block.sum(axis=1), config)
    share = 1 / (1 + np.exp(-5 * 0.5))  # of 0.75 against 0.25
    np.testing.assert_allclose(found, [[0.4 * share, 0.4 * (1 - share)], [0.5, 0.5]])


def _settings() -> st.SearchStrategy[CoefficientConfig]:
    return st.builds(
        CoefficientConfig,
        lam=st.sampled_from([0.0, 0.5, 1.0, 30.0]),
        rho=st.sampled_from([0.0, 0.1, 0.7, 1e6]),
        c_lr=st.sampled_from([0.0, 0.01, 1.0, 50.0]),
        c_step=st.sampled_from(["implicit", "explicit"]),
        c_norm=st.sampled_from(["projection", "softmax5"]),
    )


@for_all(
    config=_settings(),
    seed=st.integers(0, 10**6),
    num_clients=st.integers(1, 6),
    num_there=st.integers(1, 6),
    num_samples=st.integers(1, 9),
    missing=st.sampled_from([0.0, 0.4]),
    sharpness=st.sampled_from([0.0, 1.0, 40.0]),
    batch_size=st.sampled_from([1, 4, 256]),
    by_data=st.booleans(),
)
def test_rows_always_sum_to_one_and_only_the_block_moves(
    config: CoefficientConfig,
    seed: int,
    num_clients: int,
    num_there: int,
    num_samples: int,
    missing: float,
    sharpness: float,
    batch_size: int,
    by_data: bool,
) -> None:
    generator = Key.root(seed).numpy()
    c = np.full((num_clients, num_clients), 1 / num_clients)
    for turn in range(3):
        there = np.sort(generator.permutation(num_clients)[: min(num_there, num_clients)])
        values = _probabilities(Key.root(seed).child(turn), len(there), num_samples, 3, sharpness=sharpness)
        given = generator.random(values.shape[:2]) >= missing
        values *= given[:, :, None]
        factors = generator.random(len(there)) if by_data else np.ones(len(there))
        place = np.ix_(there, there)
        before = c.copy()
        block = learned(c[place], values, given, factors, 1 / num_clients, batch_size, config)
        c[place] = block
        assert (c >= 0).all()
        assert np.abs(c.sum(axis=1) - 1).max() <= 1e-6
        before[place] = block
        assert before.tobytes() == c.tobytes()
        mixed = mixture(restricted(block), values, given).astype(np.float32)
        someone = given.any(axis=0)
        np.testing.assert_allclose(mixed[:, someone].sum(axis=2), 1, atol=1e-5)


@for_all(config=_settings(), seed=st.integers(0, 10**6), num_clients=st.integers(1, 6))
def test_rows_sum_to_one_for_parameters_as_well(
    config: CoefficientConfig, seed: int, num_clients: int
) -> None:
    vectors = Key.root(seed).numpy().standard_normal((num_clients, 8))
    block = np.full((num_clients, num_clients), 1 / (num_clients + 2))
    found = learned_from_gram(
        block, vectors @ vectors.T, np.ones(num_clients), 1 / (num_clients + 2), 12, config
    )
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), block.sum(axis=1), atol=1e-6)


def _pass(config: CoefficientConfig, rounds: int = 3) -> Array:
    c = np.full((5, 5), 0.2)
    for turn in range(rounds):
        values = _probabilities(Key.root(8).child(turn), 5, 600, 10, sharpness=3)
        c = learned(c, values, _all(values), np.ones(5), 0.2, 256, config)
    return c


def test_the_explicit_step_diverges_where_the_implicit_one_does_not() -> None:
    # c_lr * rho = 2 > 1: a deviation grows to three times its size with each step, until rows jump between a
    # corner of the simplex and the side that is opposite.
    assert np.abs(_pass(CoefficientConfig(rho=200.0)) - 0.2).max() < 0.01
    for rho in (200.0, 1e6):
        assert np.abs(_pass(CoefficientConfig(rho=rho, c_step="explicit")) - 0.2).max() > 0.19
    # Below that both end alike.
    mild = _pass(CoefficientConfig(c_step="explicit"))
    np.testing.assert_allclose(mild, _pass(CoefficientConfig()), atol=0.01)


def test_without_a_step_nothing_moves() -> None:
    np.testing.assert_allclose(_pass(CoefficientConfig(c_lr=0.0)), 0.2, atol=1e-15)


def test_a_small_share_of_the_data_slows_the_gradient() -> None:
    values = _probabilities(Key.root(9), 2, 256, 10, sharpness=3)
    config = CoefficientConfig(rho=0.0)
    block = np.full((2, 2), 0.5)
    found = learned(block, values, _all(values), np.array([0.25, 1.0]), 0.5, 256, config)
    unit = learned(block, values, _all(values), np.ones(2), 0.5, 256, config)
    np.testing.assert_allclose(found[0] - 0.5, 0.25 * (unit[0] - 0.5), atol=1e-12)
    np.testing.assert_allclose(found[1], unit[1])


def test_two_groups_find_each_other() -> None:
    # Two groups of three clients, whose training labels are disjoint pairs among ten: on a public sample each
    # spreads its probability over its group's pair, with an opinion of its own, and exp(-3) as much over
    # another label. The specification's simulation gives 0.38 self, 0.29 own group, 0.01 other.
    group = np.arange(6) // 3
    c = np.full((6, 6), 1 / 6)
    for turn in range(30):
        scores = 0.5 * Key.root(10).child(turn).numpy().standard_normal((6, 3000, 10))
        for client in range(6):
            scores[client] -= 3
            scores[client, :, 2 * group[client] : 2 * group[client] + 2] += 3
        values = np.exp(scores)
        values = (values / values.sum(axis=2, keepdims=True)).astype(np.float32)
        c = learned(c, values, _all(values), np.ones(6), 1 / 6, 256, CoefficientConfig())
    same = group[:, None] == group
    assert c[same].min() > 10 * c[~same].max()
    np.testing.assert_allclose(c[0], [0.38, 0.29, 0.29, 0.01, 0.01, 0.01], atol=0.05)


def test_the_fixed_point_of_unrelated_models() -> None:
    # Orthogonal vectors of equal length: c_nn = (1 + rho / K) / (1 + rho), specification 5.E.2.
    num_clients, rho = 20, 0.7
    config = CoefficientConfig(rho=rho, c_lr=0.1)
    block = np.full((num_clients, num_clients), 1 / num_clients)
    found = learned_from_gram(block, np.eye(num_clients), np.ones(num_clients), 1 / num_clients, 400, config)
    np.testing.assert_allclose(np.diagonal(found), (1 + rho / num_clients) / (1 + rho), atol=1e-6)


def test_costs() -> None:
    assert mixture_flops(20, 3000, 10) == 2 * 400 * 3000 * 10
    assert learned_flops(20, 3000, 10) == 4 * 400 * 3000 * 10 + 20 * 20 * 3000 * 10
    assert mixture_flops(0, 0, 10) > 0  # work takes time


ROWS = st.integers(1, 7).flatmap(
    lambda m: st.integers(1, 4).flatmap(
        lambda r: st.tuples(
            arrays(np.float64, (r, m), elements=st.floats(-10, 10)),
            arrays(np.float64, (r,), elements=st.just(0.0) | st.floats(1e-3, 5)),
        )
    )
)


@pytest.mark.parametrize(
    ("row", "mass", "projected"),
    [
        ([0.2, 0.3, 0.5], 1.0, [0.2, 0.3, 0.5]),
        ([1.0, 1.0], 1.0, [0.5, 0.5]),
        ([2.0, 0.0, -1.0], 1.0, [1.0, 0.0, 0.0]),
        ([0.8, 0.6, -0.4], 1.0, [0.6, 0.4, 0.0]),
        ([0.0, 0.0, 0.0], 3.0, [1.0, 1.0, 1.0]),
        ([-5.0, -5.0], 1.0, [0.5, 0.5]),
        ([7.0], 2.0, [2.0]),
        ([3.0, 1.0], 0.0, [0.0, 0.0]),
    ],
)
def test_by_hand(row: list[float], mass: float, projected: list[float]) -> None:
    np.testing.assert_allclose(project(np.array([row]), np.array([mass])), [projected], atol=1e-15)


@given(ROWS)
def test_it_is_the_nearest(given_rows: tuple[Array, Array]) -> None:
    # Karush, Kuhn, Tucker: where the result is positive, it is the row less one level; elsewhere the row is
    # not above that level.
    rows, mass = given_rows
    for row, one, result in zip(rows, mass, project(rows, mass), strict=True):
        if one == 0:
            continue
        positive = result > 0
        levels = (row - result)[positive]
        assert np.ptp(levels) <= 1e-12
        assert (row[~positive] <= levels[0] + 1e-12).all()


def test_rows_do_not_meet_and_arguments_stay() -> None:
    rows, mass = np.array([[0.8, 0.6, -0.4], [9.0, 9.0, 9.0]], np.float32), np.array([1.0, 3.0])
    before = rows.copy()
    projected = project(rows, mass)
    assert projected.dtype == np.float64
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(projected[1], project(rows[1:], mass[1:])[0])
