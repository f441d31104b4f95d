"""Some of the values; the others are taken to be zero."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import floor

import numpy as np

from fedsim.config import Config
from fedsim.params import Array, ArrayForm
from fedsim.ranges import PositiveShare
from fedsim.rng import SeededStream
from fedsim.wire.codecs import index_sets
from fedsim.wire.codecs.base import (
    F32,
    U8,
    About,
    Codec,
    Coded,
    Coding,
    Layout,
    Shapes,
    num_values,
    split,
)

_SEED = ArrayForm(np.dtype("<u8"), (1,))


class ShareConfig(Config):
    """How many values are sent."""

    share: PositiveShare = 0.01
    """The share of the values of a tree that are sent, at least one."""


class _Sparse(Codec[ShareConfig]):
    def kept(self, n: int) -> int:
        """Return how many of n values are sent."""
        return min(n, max(1, floor(self.config.share * n + 0.5)))

    @abstractmethod
    def _set_forms(self, n: int) -> tuple[ArrayForm, ...]:
        """Return the forms of what says which values are sent."""

    def coded(self, shapes: Shapes) -> Layout:
        """Return the values that are sent, as one array, and what says which they are."""
        n = num_values(shapes)
        return Layout(((self.kept(n),),), self._set_forms(n)) if n else Layout(())


class TopK(_Sparse):
    """The share of the values that is largest by absolute value (sparsified SGD).

    Of equal values the first are sent. Which values they are takes the bytes that
    :mod:`fedsim.wire.codecs.index_sets` says. Aji, Heafield: Sparse Communication for Distributed Gradient
    Descent, EMNLP 2017; with error feedback: Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS
    2018 (arXiv 1809.07599).
    """

    about = About(kind="changes of models")

    flops_per_value = (8.0, 1.0)

    def _set_forms(self, n: int) -> tuple[ArrayForm, ...]:
        return (ArrayForm(U8, (index_sets.num_bytes(n, self.kept(n)),)),)

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Choose by absolute value."""
        row = np.concatenate([np.empty(0, F32), *values], axis=None)
        if not row.size:
            return Coded(())
        k, magnitudes = self.kept(row.size), np.abs(row)
        if not np.isfinite(magnitudes).all():
            return Coded([np.full(k, np.nan, F32)], [index_sets.encode(np.arange(k), row.size)])
        # By value, not by argpartition, whose choice among equal ones may differ between processors.
        threshold = np.partition(magnitudes, row.size - k)[row.size - k]
        is_chosen = magnitudes > threshold
        equal = np.flatnonzero(magnitudes == threshold)
        is_chosen[equal[: k - np.count_nonzero(is_chosen)]] = True
        indices = np.flatnonzero(is_chosen)
        return Coded([row[indices]], [index_sets.encode(indices, row.size)])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Put the values in their places."""
        n = num_values(shapes)
        row = np.zeros(n, F32)
        if n:
            row[index_sets.decode(coded.segments[0], n, self.kept(n))] = coded.values[0]
        return split(row, shapes)


class RandK(_Sparse):
    """A share of the values at random, and a key of 8 bytes; unbiased (random mask).

    Without error feedback they are scaled by n / k. Konecny et al.: Federated Learning: Strategies for
    Improving Communication Efficiency, 2016 (arXiv 1610.05492), "random mask".
    """

    about = About(kind="changes of models", unbiased=True)

    flops_per_value = (1.0, 1.0)

    def _set_forms(self, n: int) -> tuple[ArrayForm, ...]:
        return (_SEED,)

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Draw the places."""
        row = np.concatenate([np.empty(0, F32), *values], axis=None)
        if not row.size:
            return Coded(())
        seed = int(coding.generator().integers(2**63))
        k = self.kept(row.size)
        chosen = row[_drawn(seed, row.size, k)]
        if not np.isfinite(row).all():
            chosen = np.full(k, np.nan, F32)
        scaled = chosen if coding.has_feedback else (chosen * (row.size / k)).astype(F32)
        return Coded([scaled], [np.array([seed], "<u8")])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Draw the same places."""
        n = num_values(shapes)
        row = np.zeros(n, F32)
        if n:
            row[_drawn(int(coded.segments[0][0]), n, self.kept(n))] = coded.values[0]
        return split(row, shapes)


def _drawn(seed: int, n: int, k: int) -> Array:
    """Return k different numbers below n, ascending; each set has the same probability."""
    wanted, stream = min(k, n - k), SeededStream("randk")
    stream.start(seed)
    drawn = np.empty(0, np.int64)
    while len(drawn) < wanted:
        # The first different ones of a sequence of uniform numbers.
        uniform = (stream.draw(wanted - len(drawn) + 16) >> np.uint64(11)) * 2.0**-53
        several = np.concatenate([drawn, (uniform * n).astype(np.int64)])
        _, first = np.unique(several, return_index=True)
        drawn = several[np.sort(first)][:wanted]
    if wanted == k:
        return np.sort(drawn)
    is_left = np.ones(n, bool)
    is_left[drawn] = False
    return np.flatnonzero(is_left)


PLUGINS = {"topk": TopK, "randk": RandK}
