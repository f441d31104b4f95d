"""k-means on predictions (specification 3.7)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.common.prediction_clusters import Clusters, cluster, cost_flops
from fedsim.params import Array


def _same(left: Clusters, right: Clusters) -> bool:
    pairs = ((left.centroids, right.centroids), (left.counts, right.counts), (left.labels, right.labels))
    return all(np.array_equal(one, other) for one, other in pairs)


def _groups(sizes: tuple[int, ...], spread: float = 0.01) -> tuple[Array, Array]:
    """Return predictions ``[m, 5, 3]`` around a vertex for each group, shuffled, and their groups."""
    generator = np.random.Generator(np.random.Philox(3))
    owner = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = np.eye(3)[np.arange(len(sizes)) % 3][:, None, :].repeat(5, axis=1)
    vectors = centres[owner] + generator.normal(0, spread, (len(owner), 5, 3))
    return vectors.astype(np.float32), owner


def test_by_hand() -> None:
    vectors = np.array([[[10.0, 0.0]], [[0.0, 0.0]], [[12.0, 0.0]], [[0.0, 2.0]], [[0.0, 1.0]]], np.float32)
    found = cluster(vectors, 2, seed=0)
    assert found.labels.tolist() == [0, 1, 0, 1, 1]  # numbered by their first members
    assert found.counts.tolist() == [2, 3]
    assert found.centroids.tolist() == [[[11.0, 0.0]], [[0.0, 1.0]]]
    types = [array.dtype.name for array in (found.centroids, found.counts, found.labels)]
    assert types == ["float32", "int32", "int64"]


def test_either_shape_of_numpys_places_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.array([[[1.0]], [[0.0]], [[1.0]], [[5.0]]], np.float32)
    expected, unique = cluster(vectors, 2, seed=0), np.unique

    def in_a_column(*arguments: Any, **how: Any) -> Any:
        found = unique(*arguments, **how)
        return (found[0], found[1].reshape(-1, 1)) if "return_inverse" in how else found

    monkeypatch.setattr(np, "unique", in_a_column)
    assert _same(cluster(vectors, 2, seed=0), expected)


def test_one_cluster_is_the_plain_mean() -> None:
    vectors, _ = _groups((4, 3, 2))
    vectors = np.concatenate([vectors, vectors[:2]])  # also where some are equal
    found = cluster(vectors, 1, seed=5)
    np.testing.assert_array_equal(
        found.centroids[0], vectors.astype(np.float64).mean(axis=0).astype(np.float32)
    )
    assert (found.counts.tolist(), found.labels.tolist()) == ([11], [0] * 11)


@pytest.mark.parametrize("seed", range(5))
def test_separated_groups_are_found(seed: int) -> None:
    vectors, owner = _groups((7, 4, 5))
    found = cluster(vectors, 3, seed)
    assert len(found.counts) == 3
    for number in range(3):
        members = found.labels == number
        assert len(set(owner[members].tolist())) == 1
        np.testing.assert_allclose(found.centroids[number], vectors[members].mean(axis=0), rtol=1e-5)


def test_with_a_cluster_for_each_vector_every_vector_is_its_own_centroid() -> None:
    vectors, _ = _groups((3, 2), spread=0.2)
    for wanted in (5, 9):
        found = cluster(vectors, wanted, seed=1)
        assert found.labels.tolist() == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(found.centroids, vectors)


def test_equal_vectors_share_a_cluster_so_that_none_is_empty() -> None:
    vectors = np.array([[1.0], [2.0], [1.0], [1.0]], np.float32)
    found = cluster(vectors, 3, seed=0)
    assert found.centroids.tolist() == [[1.0], [2.0]]
    assert (found.counts.tolist(), found.labels.tolist()) == ([3, 1], [0, 1, 0, 0])
    alone = cluster(np.full((6, 2, 2), 0.5, np.float32), 4, seed=0)
    assert (alone.counts.tolist(), alone.centroids.tolist()) == ([6], [[[0.5, 0.5], [0.5, 0.5]]])


def test_equal_vectors_weigh_as_many_as_they_are() -> None:
    vectors = np.array([[0.0]] * 9 + [[2.0]] + [[4.5]], np.float32)
    found = cluster(vectors, 2, seed=0)
    assert found.labels.tolist() == [0] * 10 + [1]
    np.testing.assert_allclose(found.centroids, [[0.2], [4.5]], rtol=1e-6)
    assert found.counts.tolist() == [10, 1]


def test_a_seed_decides_and_only_32_bits_of_it() -> None:
    vectors, _ = _groups((9, 9, 9), spread=0.8)
    first = cluster(vectors, 4, seed=11)
    assert _same(first, cluster(vectors, 4, seed=11))
    assert _same(first, cluster(vectors, 4, seed=11 + 2**32))
    assert any(not _same(first, cluster(vectors, 4, seed=seed)) for seed in range(20))


@given(st.permutations(range(9)))
def test_the_order_of_vectors_changes_numbers_alone(order: list[int]) -> None:
    vectors, _ = _groups((4, 3, 2))
    whole, shuffled = cluster(vectors, 3, seed=2), cluster(vectors[order], 3, seed=2)
    partition = {frozenset(np.flatnonzero(whole.labels == number).tolist()) for number in range(3)}
    back = np.array(order)
    assert {frozenset(back[shuffled.labels == number].tolist()) for number in range(3)} == partition
    firsts = [int(np.flatnonzero(shuffled.labels == number)[0]) for number in range(3)]
    assert firsts == sorted(firsts)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**40))
def test_laws(num_vectors: int, wanted: int, seed: int) -> None:
    generator = np.random.Generator(np.random.Philox(seed))
    vectors = generator.integers(0, 3, (num_vectors, 2, 2)).astype(np.float32)
    found = cluster(vectors, wanted, seed)
    distinct = len(np.unique(vectors.reshape(num_vectors, -1), axis=0))
    assert 1 <= len(found.counts) <= min(wanted, distinct)
    assert found.counts.tolist() == np.bincount(found.labels).tolist()
    assert found.counts.min() >= 1
    for number, centroid in enumerate(found.centroids):
        mean = vectors[found.labels == number].mean(axis=0)
        np.testing.assert_allclose(centroid, mean, rtol=1e-6, atol=1e-7)


def test_it_never_costs_nothing() -> None:
    assert cost_flops(10, 20_000, 3) == 3 * 10 * 20 * 10 * 20_000 * 3
    assert cost_flops(1, 0, 1) == 1
