"""Sums and differences of parameter trees, for servers and clients that compute with models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.params import Form, PendingTree, Tree, freeze


def combination(trees: Sequence[Tree], factors: Sequence[float]) -> Tree:
    """Return ``sum_i factors[i] * trees[i]``, in the dtype of the first tree, added up in float64.

    A mean is :func:`fedsim.params.weighted_mean`. The result is pending while one of the trees is, so that a
    client that sends the change of its model is trained together with others.

    Args:
        trees: At least one tree of floating arrays, all with the same names and shapes.
        factors: One for each tree, of any sign.
    """
    if any(type(tree) is PendingTree and tree.is_pending for tree in trees):
        first = trees[0]
        form = first.form if type(first) is PendingTree else Form.of(first)
        return PendingTree(form, lambda: _combination(trees, factors))
    return _combination(trees, factors)


def zeros(tree: Tree) -> Tree:
    """Return zeros, with the names, shapes and dtypes of a tree."""
    return freeze({name: np.zeros_like(array) for name, array in tree.items()})


def difference(left: Tree, right: Tree) -> Tree:
    """Return ``left - right``."""
    return combination([left, right], [1.0, -1.0])


def squared_distance(left: Tree, right: Tree) -> float:
    """Return the squared Euclidean distance of two trees, in float64."""
    gaps = (np.subtract(array, right[name], dtype=np.float64) for name, array in left.items())
    return float(sum(np.square(gap).sum() for gap in gaps))


def _combination(trees: Sequence[Tree], factors: Sequence[float]) -> Tree:
    first, *others = trees
    result = {}
    for name, array in first.items():
        total = np.multiply(array, factors[0], dtype=np.float64)
        for tree, factor in zip(others, factors[1:], strict=True):
            total += np.multiply(tree[name], factor, dtype=np.float64)
        result[name] = np.asarray(total.astype(array.dtype))
    return freeze(result)
