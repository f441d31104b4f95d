"""Clients that are never asked because their devices cannot hold their job in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.report import text

if TYPE_CHECKING:
    from fedsim.runtime.parts import Parts

MOST_NAMED = 20
"""So many clients are named at most; the table of clients has all of them, with their memory."""


def ineligible(parts: Parts) -> dict[str, Any]:
    """Return what the summary says: their ``count``, the first of them as ``clients``, and the ``reason``.

    The reason is ``memory``, or None where there are none.
    """
    clients = np.flatnonzero(~parts.holds_job())
    return {
        "count": len(clients),
        "clients": clients[:MOST_NAMED].tolist(),
        "reason": "memory" if len(clients) else None,
    }


def line(found: Mapping[str, Any], population: int) -> str | None:
    """Return the same in a line for people; None where there are none.

    Args:
        found: What :func:`ineligible` returns.
        population: Clients of the fleet.
    """
    if not found["count"]:
        return None
    named = ", ".join(map(str, found["clients"]))
    if more := found["count"] - len(found["clients"]):
        named += f" and {more} more"
    of = text.several(population, "client")
    return f"{found['count']} of {of}, too little memory to hold their job: {named}"
