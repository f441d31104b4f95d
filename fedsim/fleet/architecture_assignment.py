"""Which client of a group trains which architecture.

A group has one architecture for all, or several by share, or by how much data its clients have
(specification 7.2): then the clients, ordered by training samples, are cut into equally large parts, each
with shares of its own. Shares hold exactly, to within one client; who gets which is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsim.params import Array
from fedsim.rng import Key
from fedsim.shares import apportion

Shares = Mapping[str, float]
"""Label of an architecture to its weight."""


def assign(parts: Sequence[Shares], sizes: Array, key: Key) -> tuple[tuple[str, ...], Array]:
    """Return the architectures of a group, and the place of each client's among them.

    ``sizes`` are the clients' training samples; of equal ones the first counts as smaller.
    """
    labels = tuple(dict.fromkeys(label for shares in parts for label in shares))
    places = np.zeros(len(sizes), np.int32)
    by_size = np.argsort(sizes, kind="stable")
    for number, (shares, clients) in enumerate(zip(parts, np.array_split(by_size, len(parts)), strict=True)):
        weights = np.array([shares.get(label, 0.0) for label in labels])
        dealt = np.repeat(np.arange(len(labels)), apportion(len(clients), weights))
        places[clients] = key.child(number).numpy().permutation(dealt)
    return labels, places
