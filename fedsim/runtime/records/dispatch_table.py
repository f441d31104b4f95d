"""Every dispatch, and where its time went: a table built by listening to the trace.

At each instant from its start to its end a dispatch is in one phase
(:mod:`fedsim.runtime.records.dispatch_phases`).

A dispatch *ends* with the last thing that happens to it: the arrival of its reply (with the client's last
work, where no frame goes up), or, where none has come, the server's giving it up. Work that goes on after
that for a reply that comes late is part of the dispatch; waiting for the others before a merge is not.

Over sockets the server sees none of a client's jobs, nor a frame until it is whole. What it knows of the time
of a dispatch it tells once the reply has come (``bus/http/transfer_records.py``), and that stands in place of
what the events have shown until then; the rest was waiting: for a process to be there, or for a client's
turn. The download is that of the last sending, until the client's process has said that it has the dispatch.
Of a dispatch without a reply only the download is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsim.clock import Records
from fedsim.runtime.records.dispatch_phases import (
    AWAY,
    COMPUTE,
    DOWNLOAD,
    PLACES,
    UPLOAD,
    WAITING,
    Phase,
    Underway,
    UnderwayInSpans,
)
from fedsim.runtime.records.dispatch_rows import DispatchRows, Fate

_DROPPED = Fate.DROPPED  # to ask the class for a member takes longer than to compare with one
_NO_DISPATCHES: dict[int, Underway] = {}


class DispatchTable(DispatchRows):
    """The table; a row costs more than its bytes only while it is open.

    Args:
        trace: What to listen to, until :meth:`finish`.
        hear: Told of each dispatch when nothing more is to come of it, with its spans; if left out, none are
            kept.

    Attributes:
        counts: How many dispatches had which outcome until now, by the names of :meth:`outcomes`.
    """

    def __init__(self, trace: Records, hear: Callable[[UnderwayInSpans], object] | None = None) -> None:
        super().__init__()
        self.counts = Counter[str]()
        self._merges = 0
        self._underway = Underway if hear is None else UnderwayInSpans
        self._hear = hear
        self._open: dict[int, dict[int, Underway]] = {}  # by client, then by number
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self._handlers: dict[str, Callable[..., object]] = {
            "dispatch": self._dispatched,
            "transfer_start": self._transfer_began,
            "transfer_end": self._transfer_ended,
            "spent": self._told,
            "job_start": self._job_began,
            "job_end": self._job_ended,
            "leave": self._left,
            "return": self._returned,
            "abandon": self._abandoned,
            "drop": self._dropped,
            "late": self._came_late,
            "reject": self._rejected,
            "merge": self._merged,
        }
        self._stop = trace.listen(self._handlers)

    def finish(self, at_ns: int) -> None:
        """End the table with the run; what is under way counts until now."""
        self._stop()
        for one in (one for mine in self._open.values() for one in mine.values()):
            if one.phase != WAITING or self._fate[one.row] == Fate.OPEN:
                one.advance(at_ns)
            self._write(one)
        self._open.clear()

    def at_work(self) -> Counter[Phase]:
        """Return how many clients are in which phase, now; those without a dispatch are in none.

        Another thread may ask while the run goes on: what it reads is copied in one step of the interpreter.
        """
        clients, names = Counter[Phase](), {place: name for name, place in PLACES.items()}
        for client, mine in self._open.copy().items():
            phase = max((one.phase for one in mine.copy().values()), default=WAITING)
            clients[names[AWAY if client in self._away else phase]] += 1
        return clients

    # What the trace says

    def _dispatched(
        self,
        at_ns: int,
        client: int,
        dispatch: int,
        round: int,  # noqa: A002
        exchange: str,
        *_: Any,
    ) -> None:
        version = len(self._rounds_of_merges)
        one = self._underway(client, dispatch, len(self._fate), version, at_ns, client in self._away)
        self._open.setdefault(client, {})[dispatch] = one
        self._add(client, dispatch, round, exchange, version, at_ns)
        self.counts["asked"] += 1

    def _transfer_began(self, at_ns: int, client: int, dispatch: int, up: bool, *_: Any) -> None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is not None:
            one.begin(at_ns, UPLOAD if up else DOWNLOAD)

    def _transfer_ended(
        self, at_ns: int, client: int, dispatch: int, up: bool, outcome: str, cause: str, *_: Any
    ) -> None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is None:
            return
        one.end(at_ns, UPLOAD if up else DOWNLOAD)
        if outcome == "delivered":
            one.has_replied = up
        elif cause != "restarted":  # then it is under way again at the same instant
            one.is_lost = True
            self._close_if_over(one)

    def _told(
        self, at_ns: int, client: int, dispatch: int, download_ns: int, compute_ns: int, upload_ns: int
    ) -> None:
        one = self._find(client, dispatch)
        if one is not None:
            one.told(at_ns, download_ns, compute_ns, upload_ns)

    def _job_began(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is not None:  # else it is the server's own work
            one.begin(at_ns, COMPUTE)

    def _job_ended(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is not None:
            one.end(at_ns, COMPUTE)
            if one.is_lost:
                self._close_if_over(one)

    def _left(self, at_ns: int, client: int, *_: Any) -> None:
        self._away.add(client)
        self._stand(at_ns, client, is_away=True)

    def _returned(self, at_ns: int, client: int) -> None:
        self._away.discard(client)
        self._stand(at_ns, client, is_away=False)

    def _stand(self, at_ns: int, client: int, *, is_away: bool) -> None:
        for one in self._open.get(client, _NO_DISPATCHES).values():
            if one.phase != WAITING:  # which goes on meanwhile, and has perhaps ended before
                one.advance(at_ns)
            one.is_away = is_away

    def _abandoned(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        if client in self._away:  # nobody watches any more whether it returns
            self._returned(at_ns, client)
        one = self._find(client, dispatch)
        if one is not None:
            one.is_lost = True
            self._close_if_over(one)

    def _dropped(self, at_ns: int, client: int, dispatch: int, cause: str, *_: Any) -> None:
        one = self._open[client][dispatch]
        self._fate[one.row] = Fate.DROPPED
        self._cause[one.row] = self._words[cause]
        self.counts["dropped"] += 1
        if one.has_replied:  # but its reply is not wanted
            self._close(one, Fate.DROPPED)
            return
        one.advance(at_ns)
        self._close_if_over(one)

    def _came_late(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self.counts["late"] += 1
        one = self._find(client, dispatch)
        if one is not None:
            one.advance(at_ns)
            self._close(one, Fate.LATE)
            return
        # A second copy of a frame that had been lost, or a reply at the very instant of the drop: rare.
        asked = self._asked_rows()
        (rows,) = np.nonzero((asked["client"] == client) & (asked["dispatch"] == dispatch))
        self._fate[rows[-1]] = Fate.LATE

    def _rejected(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self.counts["rejected"] += 1
        self._close(self._open[client][dispatch], Fate.REJECTED)

    def _merged(
        self,
        at_ns: int,
        round: int,  # noqa: A002
        exchange: str,
        version: int,
        clients: Sequence[int],
        dispatches: Sequence[int],
    ) -> None:
        self.counts["merged"] += len(clients)
        # Answers to a selector's question are merged into nothing: they leave the number of merges as it is.
        counts = round > 0 and version > self._merges
        self._merges = version
        for client, dispatch in zip(clients, dispatches, strict=True):
            one = self._open[client][dispatch]
            if counts:
                self._staleness[one.row] = len(self._rounds_of_merges) - one.version
            self._close(one, Fate.MERGED)
        if counts:
            self._rounds_of_merges.append(round)

    def _find(self, client: int, dispatch: int) -> Underway | None:
        return self._open.get(client, _NO_DISPATCHES).get(dispatch)

    def _close_if_over(self, one: Underway) -> None:
        if one.is_lost and one.phase == WAITING and self._fate[one.row] == _DROPPED:
            self._close(one, Fate.DROPPED)

    def _close(self, one: Underway, fate: Fate) -> None:
        mine = self._open[one.client]
        del mine[one.dispatch]
        if not mine:
            del self._open[one.client]
        self._fate[one.row] = fate
        self._write(one)

    def _write(self, one: Underway) -> None:
        self._write_times(one.row, one.since_ns, one.spent_ns)
        if self._hear is not None and isinstance(one, UnderwayInSpans):
            self._hear(one)
