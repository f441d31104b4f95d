"""A few classes for each client, in different parts, and equal totals: PersFL's data setup 1 (DS-1).

Classes are dealt like cards, from one shuffled deck of all classes after another, so that each class has
K * classes / N holders (one more or less where that is no whole number) and no client has a class twice. A
random positive matrix on this pattern is scaled in turn to equal row sums and to the classes' totals.

Whole numbers and equal totals leave some samples over, which are not used: fewer than ``classes`` for each
client if the data set's classes are equally large and all decks are dealt out, otherwise more. If fewer cards
are dealt than there are classes, classes that no client holds are left out.
"""

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, scaled
from fedsim.errors import DataError
from fedsim.ranges import Classes

ITERATIONS = 200
"""How often rows and columns are scaled."""


class ClassesPerClientConfig(Config):
    """Settings of the partition by classes per client."""

    classes: Classes = 4
    """Classes that each client holds."""


class ClassesPerClient(ClassPartition[ClassesPerClientConfig]):
    """Equally many classes and samples for each client, in different parts."""

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out every class that has a holder, except for what is left over."""
        there = np.flatnonzero(totals)
        if len(there) < self.config.classes:
            raise DataError(
                f"classes = {self.config.classes} for each client, but the data set has {len(there)}: "
                f"write {len(there)} or fewer"
            )
        holds = np.zeros((num_clients, len(totals)), bool)
        holds[:, there] = deal(num_clients, len(there), self.config.classes, generator)
        self.require_holders(totals, holds)
        held = np.where(holds.any(axis=0), totals, 0)
        # Uniform on (0, 1] instead of [0, 1), so that no holder has a wish of zero.
        wishes = np.where(holds, 1 - generator.random(holds.shape), 0.0)
        rows = np.full(num_clients, held.sum() / num_clients)
        return _whole(scaled(wishes, rows, held, ITERATIONS), holds, held)


def deal(num_clients: int, num_classes: int, hand: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return bool (K, N), which client holds which class, dealt from one shuffled deck after another.

    A client that takes the last cards of a deck skips those of the next deck that it already has; these stay
    in the deck for the next client.
    """
    holds = np.zeros((num_clients, num_classes), bool)
    deck: list[int] = []
    for held in holds:
        for _ in range(hand):
            if not deck:
                deck = generator.permutation(num_classes).tolist()
            card = next(card for card in deck if not held[card])
            deck.remove(card)
            held[card] = True
    return holds


def _whole(matrix: NDArray[np.float64], holds: NDArray[np.bool_], totals: Counts) -> Counts:
    """Return whole numbers near ``matrix`` with equal row sums, and column sums of at most ``totals``.

    They are at least 1 where ``holds``, and 0 elsewhere.
    """
    counts: Counts = np.maximum(np.floor(matrix + 1e-9).astype(np.int64), holds)
    for column, total in zip(counts.T, totals, strict=True):
        while column.sum() > total:
            column[column.argmax()] -= 1
    room = totals - counts.sum(axis=0)
    goal = int(matrix.sum(axis=1).min() + 1e-6)
    for row, wished in zip(counts, matrix, strict=True):
        while row.sum() < goal and (room[row > 0] > 0).any():
            j = int(np.where((row > 0) & (room > 0), wished - row, -np.inf).argmax())
            row[j] += 1
            room[j] -= 1
    least = int(counts.sum(axis=1).min())
    for row in counts:
        while row.sum() > least:
            row[row.argmax()] -= 1
    return counts


PLUGIN = ClassesPerClient
