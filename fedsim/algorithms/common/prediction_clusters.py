"""k-means on predictions (specification 3.7): scikit-learn's, independent of the number of threads.

Equal vectors are given once, weighted by their number, so there are never more centroids than different
vectors, and none is empty. Clusters are numbered by their first member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array

RESTARTS = 10
ITERATIONS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """A clustering of m vectors."""

    centroids: Array  # means of the clusters, float32 [C, *shape]
    counts: Array  # their members, int32 [C], each at least 1
    labels: Array  # the cluster of each vector, int64 [m]


def cluster(vectors: Array, num_clusters: int, seed: int) -> Clusters:
    """Return at most ``num_clusters`` clusters: k-means++, Lloyd, the best of ten starts."""
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    distinct, place = np.unique(flat, axis=0, return_inverse=True)
    place = place.ravel()  # a column, with some versions of NumPy
    labels = np.zeros(len(flat), np.int64)
    if min(num_clusters, len(distinct)) > 1:
        labels = _labels(distinct, np.bincount(place), min(num_clusters, len(distinct)), seed)[place]
    _, first = np.unique(labels, return_index=True)
    order = np.argsort(first)  # old numbers in the order of their first members
    renumbered = np.argsort(order)[np.searchsorted(np.unique(labels), labels)]
    centroids = np.stack([flat[renumbered == number].mean(axis=0) for number in range(len(order))])
    counts = np.bincount(renumbered).astype(np.int32)
    return Clusters(centroids.reshape(-1, *vectors.shape[1:]).astype(np.float32), counts, renumbered)


async def clustered(server: ServerContext, vectors: Sequence[Array], wanted: int) -> Clusters:
    """Cluster the clients' vectors ``[*shape]``; takes the server's time."""
    flops = cost_flops(len(vectors), vectors[0].size, wanted)
    seed = server.key.child("kmeans").seed
    clusters: Clusters = await server.call(cluster, np.stack(vectors), wanted, seed, flops=flops)
    return clusters


def cost_flops(num_vectors: int, size: int, num_clusters: int) -> float:
    """Return about the operations of :func:`cluster`: twenty iterations of each start."""
    return float(max(1, 3 * RESTARTS * 20 * num_vectors * size * num_clusters))


def _labels(distinct: Array, weights: Array, num_clusters: int, seed: int) -> Array:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    means = KMeans(
        num_clusters, n_init=RESTARTS, max_iter=ITERATIONS, random_state=seed % 2**32, algorithm="lloyd"
    )
    with threadpool_limits(1):  # sums over threads end in other bits
        labels: Array = means.fit_predict(distinct, sample_weight=weights)
    return labels.astype(np.int64)
