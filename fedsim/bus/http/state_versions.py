"""After which dispatches there are states of clients, and which of them are still needed.

A state is needed if a server may go back to it: the newest before a *mark*, which is the next dispatch of the
client at a checkpoint or at the end of the last round, and all later ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

Marks = Mapping[int, Sequence[int]]
"""Of clients, the dispatches before which their state is needed."""


class StateVersions:
    """The states of the clients of one process.

    Args:
        remove: Removes the state of a client after a dispatch.
    """

    def __init__(self, remove: Callable[[int, int], object]) -> None:
        self._remove = remove
        self._dispatches: dict[int, list[int]] = {}  # ascending

    def add(self, client: int, dispatch: int) -> None:
        """Note that there is a state after a dispatch, later than all others of the client."""
        self._dispatches.setdefault(client, []).append(dispatch)

    def newest(self, client: int) -> int | None:
        """Return the dispatch after which a client has its newest state; None if it has none."""
        dispatches = self._dispatches.get(client)
        return dispatches[-1] if dispatches else None

    def rewind(self, client: int, dispatch: int) -> None:
        """Remove the states of a client after this dispatch and later ones."""
        dispatches = self._dispatches.get(client, [])
        while dispatches and dispatches[-1] >= dispatch:
            self._remove(client, dispatches.pop())

    def go_back(self, firsts: Mapping[int, int]) -> None:
        """Remove the states after these dispatches and later ones, and all of clients that are not named."""
        for client in self._dispatches:
            self.rewind(client, firsts.get(client, 0))

    def forget(self, marks: Marks) -> None:
        """Remove the states of clients that are not needed any more."""
        for client, own in marks.items():
            dispatches = self._dispatches.get(client, [])
            first_later = bisect_left(dispatches, max(own))
            needed = {bisect_left(dispatches, mark) - 1 for mark in own}
            kept = [at for at, _ in enumerate(dispatches) if at in needed or at >= first_later]
            for at, dispatch in enumerate(dispatches):
                if at not in kept:
                    self._remove(client, dispatch)
            self._dispatches[client] = [dispatches[at] for at in kept]
