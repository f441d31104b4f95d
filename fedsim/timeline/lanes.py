"""Lanes: what overlaps in time lies side by side, since the slices of a track may only be nested."""

from __future__ import annotations

from collections.abc import Iterable


def lanes(times: Iterable[tuple[int, int]]) -> list[int]:
    """Return a lane for each time: the first that is free. Times are begins and ends, ordered by begin."""
    free_at: list[int] = []
    found = []
    for began, ended in times:
        lane = next((number for number, end in enumerate(free_at) if end <= began), len(free_at))
        if lane == len(free_at):
            free_at.append(ended)
        free_at[lane] = ended
        found.append(lane)
    return found
