"""Talking about public samples: which ones a round uses, and what clients say about them.

Where clients hold the public set, its samples are named by their positions; where the server alone does, they
are sent, in a frame that counts as data. What comes back names its samples by a digest, or in full where some
are missing (specification 3.5, E10). p: samples asked about, N: classes, m: replies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.algorithms.base import Reply
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import InlineSamples, PublicSamples, Samples
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.wire import LogitsUp, PublicBatch, PublicData, indices_digest


def draw(key: Key, num_public: int, wanted: int | None, *, replacement: bool = False) -> Array:
    """Return positions of public samples, int64 ``[p]``, drawn anew from a key; all of them by default."""
    generator = key.numpy()
    if replacement:
        return generator.integers(0, num_public, num_public if wanted is None else wanted)
    return generator.permutation(num_public)[: num_public if wanted is None else wanted]


def announce(server: ServerContext, positions: Array) -> PublicBatch | PublicData:
    """Return the message that names the samples, or brings them where clients do not hold them."""
    if server.public_at_clients:
        return PublicBatch(positions)
    return PublicData(positions, compact(server.public_values(positions)))


def samples_of(client: ClientContext, message: PublicBatch | PublicData) -> Samples:
    """Return the samples of an announcement, for jobs of the client."""
    if isinstance(message, PublicData):
        return InlineSamples(restored(message.values))
    return client.public(message.indices)


def chosen(samples: Samples, rows: Array) -> Samples:
    """Return some of an announcement's samples, by their rows int64 ``[q]``."""
    match samples:
        case InlineSamples(x):
            return InlineSamples(x[rows])
        case PublicSamples(positions):
            return PublicSamples(positions[rows])
    raise TypeError(f"{type(samples).__name__} is no announcement's")


def compact(values: Array) -> Array:
    """Return images of 8-bit origin as uint8, so that a scalar takes one byte; others as they are.

    :func:`restored` gives the same float32 values, bit for bit.
    """
    if values.dtype != np.float32:
        return values
    steps = np.rint(values * 255)
    if not ((steps >= 0) & (steps <= 255)).all():
        return values
    packed = steps.astype(np.uint8)
    return packed if np.array_equal(restored(packed), values) else values


def restored(values: Array) -> Array:
    """Return samples as jobs take them: float32 images in [0, 1] from uint8, others as they are."""
    if values.dtype != np.uint8:
        return values
    x = values.astype(np.float32)
    x /= 255
    return x


def misnamed(message: LogitsUp, positions: Array, num_outputs: int) -> str | None:
    """Return why a reply is not about the samples asked for, or None."""
    named = positions if message.indices is None else message.indices
    subset = message.indices is not None
    strange = subset and (len(np.unique(named)) < len(named) or not np.isin(named, positions).all())
    if strange or message.indices_digest != indices_digest(named):
        return "predictions on other public samples than were asked for"
    wanted = (len(named), num_outputs)
    if message.values.shape != wanted:
        return f"predictions of shape {message.values.shape}, not {wanted}"
    return None


def not_probabilities(values: Array) -> str | None:
    """Return why rows are no probabilities, or None."""
    if (values < 0).any() or not np.allclose(values.sum(axis=-1), 1, atol=1e-3):
        return "rows that are no probabilities: non-negative numbers that sum to one"
    return None


def stacked(positions: Array, num_outputs: int, replies: Sequence[Reply]) -> tuple[Array, Array]:
    """Return all replies' rows side by side, and who has given which.

    Returns:
        float32 ``[m, p, N]``, zero where a row is missing, and booleans ``[m, p]``.
    """
    values = np.zeros((len(replies), len(positions), num_outputs), np.float32)
    given = np.zeros((len(replies), len(positions)), np.bool_)
    for number, reply in enumerate(replies):
        rows = rows_of(positions, reply.message.indices)
        values[number, rows] = reply.message.values
        given[number, rows] = True
    return values, given


def rows_of(positions: Array, named: Array | None) -> Array:
    """Return the places of the samples named among those asked for; None names all of them."""
    if named is None:
        return np.arange(len(positions))
    order = np.argsort(positions, kind="stable")
    rows: Array = order[np.searchsorted(positions, named, sorter=order)]
    return rows


def mean_by_sample(values: Array, given: Array) -> tuple[Array, Array]:
    """Return the plain mean of each sample's rows over those who gave one.

    Args:
        values: ``[m, p, N]`` as of :func:`stacked`.
        given: Booleans ``[m, p]``.

    Returns:
        float32 ``[q, N]`` for the q samples that anybody gave, and which those are, booleans ``[p]``.
    """
    senders = given.sum(axis=0)
    known = senders > 0
    total = values.sum(axis=0, dtype=np.float64)
    return (total[known] / senders[known, None]).astype(np.float32), known
