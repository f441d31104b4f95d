"""Public samples: which ones a round uses, and clients' predictions on them.

If clients hold the public set, its samples are named by their positions; otherwise they are sent, in a frame
that counts as data. A reply names its samples by a digest, or in full if some are missing (specification 3.5,
E10). p: samples asked about, N: classes, m: replies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedsim.algorithms.base import Reply
from fedsim.algorithms.contexts import ServerContext
from fedsim.engine.jobs import InlineSamples, PublicSamples, Samples
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.wire import Form, LogitsDown, LogitsUp, PublicBatch, PublicData, indices_digest


@dataclass(frozen=True, slots=True, eq=False)
class Announced:
    """Public samples that the server has announced, as a client keeps them.

    Attributes:
        positions: Their positions in the public set, int64 ``[p]``.
        values: The samples ``[p, ...]`` as they were sent, uint8 for images of eight bits; None if clients
            hold the public set.
    """

    positions: Array
    values: Array | None = None

    @classmethod
    def of(cls, message: PublicBatch | PublicData) -> Announced:
        """Return the announcement in a message."""
        return cls(message.indices, message.values if isinstance(message, PublicData) else None)

    def samples(self, named: Array | None = None) -> Samples:
        """Return the samples for a job, all of them or those at positions int64 ``[q]``."""
        if self.values is None:
            return PublicSamples(self.positions if named is None else named)
        values = self.values if named is None else self.values[rows_of(self.positions, named)]
        return InlineSamples(restored(values))

    def samples_of(self, message: LogitsDown) -> Samples | None:
        """Return the samples of the server's values; None if those are on other samples."""
        named = self.positions if message.indices is None else message.indices
        return self.samples(message.indices) if message.indices_digest == indices_digest(named) else None


def draw(
    key: Key, num_public: int, wanted: int | Literal["all"] | None, *, replacement: bool = False
) -> Array:
    """Return random positions of public samples, int64 ``[p]``.

    Args:
        key: Names the draw.
        num_public: Samples in the public set.
        wanted: How many, at most as many as there are; ``all`` or None for all.
        replacement: Whether a sample may be drawn more than once.
    """
    count = min(wanted, num_public) if isinstance(wanted, int) else num_public
    if replacement:
        return key.numpy().integers(0, num_public, count)
    return key.numpy().permutation(num_public)[:count]


def announce(server: ServerContext, positions: Array) -> PublicBatch | PublicData:
    """Return the message that names the samples, with their values if clients do not hold them."""
    if server.public_at_clients:
        return PublicBatch(positions)
    return PublicData(positions, compact(server.public_values(positions)))


def compact(values: Array) -> Array:
    """Return images of 8-bit origin as uint8, others unchanged; :func:`restored` is its exact inverse."""
    if values.dtype != np.float32:
        return values
    steps = np.rint(values * 255)
    if not ((steps >= 0) & (steps <= 255)).all():
        return values
    packed = steps.astype(np.uint8)
    return packed if np.array_equal(restored(packed), values) else values


def restored(values: Array) -> Array:
    """Return samples for jobs: float32 images in [0, 1] from uint8, others unchanged."""
    if values.dtype != np.uint8:
        return values
    x = values.astype(np.float32)
    x /= 255
    return x


def predictions(
    values: Array,
    positions: Array,
    form: Form,
    temperature: float = 1.0,
    kind: type[LogitsUp] = LogitsUp,
    **fields: Any,
) -> LogitsUp:
    """Return a client's reply with predictions on public samples.

    Args:
        values: Its predictions, ``[p, N]``.
        positions: The samples asked about, int64 ``[p]``; empty if the client has no public samples.
        form: Whether values are logits or probabilities.
        temperature: Divisor of the logits.
        kind: The kind of message.
        **fields: Further fields of that kind.
    """
    digest, named = indices_digest(positions), None if len(positions) else positions
    return kind(values, form=form, temperature=temperature, indices_digest=digest, indices=named, **fields)


def unusable(
    message: LogitsUp, positions: Array, num_outputs: int, form: Form, temperature: float = 1.0
) -> str | None:
    """Return why a reply cannot be merged, or None.

    A reply may name some of the samples asked about, none more often than asked for.

    Args:
        message: The reply.
        positions: The samples asked about, int64 ``[p]``.
        num_outputs: N.
        form: The form of its rows.
        temperature: The divisor of their logits.
    """
    if (message.form, message.temperature) != (form, temperature):
        came = f"{message.form} of temperature {message.temperature}"
        return f"{came}, not {form} of temperature {temperature}"
    named = positions if message.indices is None else message.indices
    is_foreign = message.indices is not None and Counter(named.tolist()) - Counter(positions.tolist())
    if is_foreign or message.indices_digest != indices_digest(named):
        return "predictions on other public samples than were asked for"
    wanted, values = (len(named), num_outputs), message.values
    if values.shape != wanted:
        return f"predictions of shape {values.shape}, not {wanted}"
    if form == "probs" and ((values < 0).any() or not np.allclose(values.sum(axis=-1), 1, atol=1e-3)):
        return "rows that are no probabilities: non-negative numbers that sum to one"
    return None


def stacked(positions: Array, num_outputs: int, replies: Sequence[Reply]) -> tuple[Array, Array]:
    """Return all replies' rows, and which rows are there.

    A sample that was asked for more than once has its row at all its places.

    Returns:
        float32 ``[m, p, N]``, zero where a row is missing, and booleans ``[m, p]``.
    """
    values = np.zeros((len(replies), len(positions), num_outputs), np.float32)
    given = np.zeros((len(replies), len(positions)), np.bool_)
    for number, reply in enumerate(replies):
        named = reply.message.indices
        if named is None:
            values[number], given[number] = reply.message.values, True
            continue
        given[number] = np.isin(positions, named)
        values[number, given[number]] = reply.message.values[rows_of(named, positions[given[number]])]
    return values, given


def rows_of(positions: Array, named: Array) -> Array:
    """Return the first place of each named sample among the positions."""
    order = np.argsort(positions, kind="stable")
    rows: Array = order[np.searchsorted(positions, named, sorter=order)]
    return rows


def mean_by_sample(values: Array, given: Array) -> tuple[Array, Array]:
    """Return the plain mean of each sample's rows.

    Args:
        values: ``[m, p, N]`` from :func:`stacked`.
        given: Booleans ``[m, p]``.

    Returns:
        float32 ``[q, N]`` for the q samples with any row, and which those are, booleans ``[p]``.
    """
    senders = given.sum(axis=0)
    known = senders > 0
    total = values.sum(axis=0, dtype=np.float64)
    return (total[known] / senders[known, None]).astype(np.float32), known
