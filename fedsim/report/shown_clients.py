"""Which clients of a large fleet are shown one by one: the slowest, those in the middle, and the fastest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsim.params import Array

MAX_CLIENTS = 60
"""How many are shown unless told otherwise."""


def shown_clients(client: Array, turnaround: Array, most: int = MAX_CLIENTS) -> Mapping[str, Array]:
    """Return the clients to show, ascending, by what they are; all as ``""`` if there are no more than that.

    A third of them each are the slowest, those in the middle and the fastest, by the mean time of their
    dispatches. Clients without any are not shown. Both arrays are ``[dispatches]``.
    """
    asked, of = np.unique(client, return_inverse=True)
    if len(asked) <= most:
        return {"": asked}
    mean = np.bincount(of, turnaround) / np.bincount(of)
    slowest_first = asked[np.lexsort((asked, -mean))]
    each, extra = divmod(most, 3)
    middle = (len(asked) - each) // 2
    parts = {
        "slowest": slowest_first[: each + extra],
        "median": slowest_first[middle : middle + each],
        "fastest": slowest_first[len(asked) - each :],
    }
    return {name: np.sort(part) for name, part in parts.items()}
