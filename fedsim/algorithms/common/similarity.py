"""Weights by similarity, and mixtures of models with weights; pure, for ``server.call``.

Cosines are between clients' predictions or parameters. They are rounded to twelve decimals, so that equal
clients have equal weights. m: clients, r: some of them, p: public samples, N: classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedsim.algorithms.common.ktpfl_coefficients import product
from fedsim.params import Array, Model, Tree, mean_model

DECIMALS = 12
AT_ONCE = 1 << 16  # numbers of each vector that are taken to float64 at a time: models may be large, and many


def gram_rows(trees: Sequence[Tree], rows: Sequence[int], centred: bool) -> tuple[Array, Array]:
    """Return inner products of some parameter vectors with all, float64 ``[r, m]``, and all squares, ``[m]``.

    With ``centred`` they are those of the vectors less their mean.
    """
    products, squares = np.zeros((len(rows), len(trees))), np.zeros(len(trees))
    some, others = np.array(rows), np.setdiff1d(np.arange(len(trees)), rows)
    for vectors in _pieces(trees, centred):
        products += product(vectors[some], vectors.T)
        squares[others] += np.square(vectors[others]).sum(axis=1)
    squares[some] = products[np.arange(len(rows)), some]
    return products, squares


def gram_rows_flops(num_rows: int, num_vectors: int, size: int) -> float:
    """Return the operations of :func:`gram_rows` for vectors of ``size`` numbers."""
    return float(max(1, 2 * (num_rows * num_vectors + num_vectors + num_vectors - num_rows) * size))


def cosines(products: Array) -> Array:
    """Return cosines from inner products ``[m, m]``; 0 beside a vector of zeros."""
    squares = np.diagonal(products)
    result = rounded_cosines(products, squares[:, None], squares[None, :])
    np.fill_diagonal(result, 1)
    return result


def rounded_cosines(products: Array, squares: Array, others: Array) -> Array:
    """Return cosines from inner products and squares of either side; 0 beside a vector of zeros."""
    lengths = np.sqrt(squares * others)
    result: Array = np.round(products / np.where(lengths > 0, lengths, 1), DECIMALS)
    return result


def cosines_of_predictions(values: Array, given: Array) -> Array:
    """Return cosines of predictions ``[m, m]``, each pair's over the samples that both gave."""
    flat = values.reshape(len(values), -1)
    squares = product(np.square(values, dtype=np.float64).sum(axis=2), given.T)
    result = rounded_cosines(product(flat, flat.T), squares, squares.T)
    np.fill_diagonal(result, 1)
    return result


def cosines_flops(num_clients: int, num_samples: int, num_classes: int) -> float:
    """Return the operations of :func:`cosines_of_predictions`."""
    return float(max(1, 2 * num_clients * (num_clients + 1) * num_samples * num_classes))


def by_range(similarities: Array) -> Array:
    """Return rows ``(q - min q) / sum(q - min q)``; uniform where all of a row are equal."""
    return _shares(similarities - similarities.min(axis=1, keepdims=True))


def by_sum(similarities: Array) -> Array:
    """Return rows ``q / sum q``; negative similarities count as 0."""
    return _shares(np.maximum(similarities, 0))


def by_rank(similarities: Array, num_neighbours: int) -> Array:
    """Return equal weights for the most similar, oneself first, then ties by lower number, ``[m, m]``."""
    count = min(num_neighbours, len(similarities))
    order = np.where(np.eye(len(similarities), dtype=np.bool_), -np.inf, -similarities)
    nearest = np.argsort(order, axis=1, kind="stable")[:, :count]
    weights = np.zeros(similarities.shape)
    np.put_along_axis(weights, nearest, 1 / count, axis=1)
    return weights


def mixtures(models: Sequence[Model], weights: Array) -> list[Model]:
    """Return a mean of the models for each row of weights ``[r, m]``, buffers included."""
    return [
        mean_model([models[place] for place in np.flatnonzero(row).tolist()], row[row != 0].tolist())
        for row in weights
    ]


def _shares(amounts: Array) -> Array:
    total = amounts.sum(axis=1, keepdims=True)
    return np.where(total > 0, amounts / np.where(total > 0, total, 1), 1 / len(amounts))


def _pieces(trees: Sequence[Tree], centred: bool) -> Iterator[Array]:
    """Yield the parameter vectors piece by piece, float64 ``[m, n]``."""
    for name in trees[0]:
        flat = [tree[name].reshape(-1) for tree in trees]
        for start in range(0, len(flat[0]), AT_ONCE):
            vectors = np.stack([vector[start : start + AT_ONCE] for vector in flat]).astype(np.float64)
            if centred:
                vectors -= vectors.mean(axis=0)
            yield vectors
