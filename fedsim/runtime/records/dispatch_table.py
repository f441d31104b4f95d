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
from copy import copy
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from fedsim.clock import Records
from fedsim.clock.event_trace import Listener, Row, TogetherListener
from fedsim.clock.record_columns import Columns
from fedsim.errors import InvariantError
from fedsim.params import Array
from fedsim.runtime.records.dispatch_phases import (
    AWAY,
    COMPUTE,
    DOWNLOAD,
    PASSED,
    PHASES,
    PLACES,
    UPLOAD,
    WAITING,
    Phase,
    PhaseLog,
    Report,
)
from fedsim.runtime.records.dispatch_rows import DispatchRows, Fate

MAX_LOGGED = 1 << 16
"""Events that are kept until times are computed from them."""

_DROPPED = Fate.DROPPED  # to ask the class for a member takes longer than to compare with one
_NO_DISPATCHES: dict[int, _Open] = {}
_UP = 3  # the column of a transfer's records that says whether the frame goes to the server


@dataclass(slots=True, eq=False)
class _Open:
    """A dispatch of which more may come.

    Attributes:
        row: Its row in the table.
        version: The server's when it was asked.
        active: How many things of each phase are under way.
        has_replied: Whether its reply has come.
        is_lost: Whether its reply will never arrive.
        is_retried: Whether the frame that ends next without an arrival is sent again.
    """

    row: int
    version: int
    active: list[int] = field(default_factory=[0, 0, 0, 0].copy)
    has_replied: bool = False
    is_lost: bool = False
    is_retried: bool = False


class DispatchTable(DispatchRows):
    """The table; a row costs more than its bytes only while it is open.

    Args:
        trace: What to listen to until it ends.
        keep_spans: Whether ``spans`` are kept.

    Attributes:
        counts: How many dispatches had which outcome until now, by the names of :meth:`outcomes`.
        spans: When each dispatch was in which phase, once the table is finished; see :meth:`PhaseLog.spans`.
        gone_ns: When a client was gone for good from a dispatch, by row: it had dropped out, say.
    """

    def __init__(self, trace: Records, *, keep_spans: bool = False) -> None:
        super().__init__()
        self.counts = Counter[str]()
        self.spans = np.empty((0, 5), np.int64)
        self.gone_ns: dict[int, int] = {}
        self._keep_spans = keep_spans
        self._merges = 0
        self._log, self._max_logged = PhaseLog(), MAX_LOGGED
        self._lock = Lock()  # held while times are computed
        self._open: dict[int, dict[int, _Open]] = {}  # by client, then by number
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self._handlers: dict[str, Callable[..., object]] = {
            "dispatch": self._dispatched,
            "transfer_start": self._transfer_began,
            "transfer_end": self._transfer_ended,
            "spent": self._reported,
            "job_start": self._job_began,
            "job_end": self._job_ended,
            "leave": self._left,
            "return": self._returned,
            "abandon": self._abandoned,
            "retry": self._tried_again,
            "drop": self._dropped,
            "late": self._came_late,
            "reject": self._rejected,
            "merge": self._merged,
            "edge_merge": self._merged_at_edge,
        }
        together: dict[Listener, TogetherListener] = {
            self._dispatched: self._dispatched_together,
            self._transfer_began: self._transfers_began,
            self._transfer_ended: self._transfers_ended,
            self._job_began: self._jobs_began,
            self._job_ended: self._jobs_ended,
        }
        trace.listen(self._handlers, together)

    def finish(self, at_ns: int) -> None:
        """End the table with the run; what is under way counts until now."""
        for one in (one for mine in self._open.values() for one in mine.values()):
            if any(one.active) or self._fate[one.row] == Fate.OPEN:
                self._log.add(one.row, at_ns, PASSED)
        self._open.clear()
        self._compute_times()

    def until(self, at_ns: int) -> DispatchTable:
        """Return the table as if the run had ended at an instant, which is now."""
        copied = copy(self)
        copied._log, copied._times, copied._open = self._log.copy(), self._times[:], self._open.copy()
        copied._lock = Lock()
        copied.finish(at_ns)
        return copied

    def unanswered(self) -> list[tuple[int, int]]:
        """Return client and number of each dispatch that is open."""
        return [
            (client, dispatch)
            for client, mine in self._open.items()
            for dispatch, one in mine.items()
            if self._fate[one.row] == Fate.OPEN
        ]

    def phases_of(self, client: int) -> dict[int, int]:
        """Return in which phase each dispatch to a client is whose reply has not come, now, by its number."""
        is_away, mine = client in self._away, self._open.get(client, _NO_DISPATCHES)
        phases = {number: _phase(one) for number, one in mine.items() if not one.has_replied}
        return {number: AWAY if is_away and phase else phase for number, phase in phases.items()}

    def is_lost(self, client: int, dispatch: int) -> bool:
        """Say whether the reply to an open dispatch will never arrive."""
        one = self._find(client, dispatch)
        return one is not None and one.is_lost

    def at_work(self) -> Counter[Phase]:
        """Return how many clients are in which phase, now; those without a dispatch are in none.

        Another thread may ask while the run goes on: what it reads is copied in one step of the interpreter.
        """
        clients, names = Counter[Phase](), {place: name for name, place in PLACES.items()}
        for client, mine in self._open.copy().items():
            phase = max((_phase(one) for one in mine.copy().values()), default=WAITING)
            clients[names[AWAY if client in self._away else phase]] += 1
        return clients

    def lately_at_work(self, most: int) -> dict[Phase, float]:
        """Return how many clients were in which phase, on average over the last dispatches that ended.

        Another thread may ask while the run goes on.
        """
        with self._lock:
            # In this order: of a dispatch that is not open any more, all events are in the log.
            count, is_open = len(self), self._open_rows()
            first, log = max(0, count - most), self._log.copy()
            asked_ns, times_ns = self._copied(first, count)
        spans = log.spans(is_open)
        spans = spans[(spans[:, 0] >= first) & (spans[:, 0] < count)]
        spans[:, 0] -= first
        _add_spans(times_ns, spans)
        has_ended = ~np.isin(np.arange(first, count), is_open)
        asked_ns, times_ns = asked_ns[has_ended], times_ns[has_ended]
        passed_ns = (asked_ns + times_ns.sum(axis=1)).max() - asked_ns.min() if len(times_ns) else 0
        if not passed_ns:
            return {}
        spent_ns = times_ns.sum(axis=0, dtype=float)
        return {phase: float(spent_ns[PLACES[phase]] / passed_ns) for phase in PHASES}

    # What the trace says

    def _dispatched(self, *row: Any) -> None:
        self._add_open([row])

    def _dispatched_together(self, columns: Columns) -> None:
        self._add_open(list(columns.rows()))

    def _add_open(self, rows: Sequence[Row]) -> None:
        version, places = len(self._rounds_of_merges), range(len(self), len(self) + len(rows))
        for place, (_, client, dispatch, *_) in zip(places, rows, strict=True):
            self._open.setdefault(client, {})[dispatch] = _Open(place, version)
        self._add(rows, version)
        self._log.extend(places, [row[0] for row in rows], [PASSED] * len(rows))
        for place, (at_ns, client, *_) in zip(places, rows, strict=True):
            if client in self._away:
                self._log.add(place, at_ns, AWAY)
        self.counts["asked"] += len(rows)

    def _transfer_began(self, at_ns: int, client: int, dispatch: int, up: bool, *_: Any) -> None:
        self._begin(at_ns, client, dispatch, UPLOAD if up else DOWNLOAD)

    def _transfer_ended(
        self, at_ns: int, client: int, dispatch: int, up: bool, outcome: str, cause: str, *_: Any
    ) -> None:
        one = self._end(at_ns, client, dispatch, UPLOAD if up else DOWNLOAD)
        if one is None:
            return
        if outcome == "delivered":
            one.has_replied = up
        elif one.is_retried:
            one.is_retried = False  # it will be under way again
        elif cause != "restarted":  # then it is under way again at the same instant
            one.is_lost = True
            self._close_if_over(client, dispatch, one)

    def _job_began(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self._begin(at_ns, client, dispatch, COMPUTE)  # or it is the server's own work

    def _job_ended(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._end(at_ns, client, dispatch, COMPUTE)
        if one is not None and one.is_lost:
            self._close_if_over(client, dispatch, one)

    def _begin(self, at_ns: int, client: int, dispatch: int, phase: int) -> None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is not None:
            one.active[phase] += 1
            self._log.add(one.row, at_ns, phase)

    def _end(self, at_ns: int, client: int, dispatch: int, phase: int) -> _Open | None:
        one = self._open.get(client, _NO_DISPATCHES).get(dispatch)
        if one is not None:
            one.active[phase] -= 1
            self._log.add(one.row, at_ns, -phase)
        return one

    def _reported(self, at_ns: int, client: int, dispatch: int, *spent_ns: int) -> None:
        one = self._find(client, dispatch)
        if one is not None:
            self._log.report(one.row, Report(at_ns, *spent_ns))

    # The same for records of dispatches that are open, have not ended, and whose frames are all delivered.

    def _transfers_began(self, columns: Columns) -> None:
        self._log_together(columns, UPLOAD if columns.values[_UP] else DOWNLOAD, 1)

    def _transfers_ended(self, columns: Columns) -> None:
        up = columns.values[_UP]
        for one in self._log_together(columns, UPLOAD if up else DOWNLOAD, -1):
            one.has_replied = up

    def _jobs_began(self, columns: Columns) -> None:
        self._log_together(columns, COMPUTE, 1)

    def _jobs_ended(self, columns: Columns) -> None:
        self._log_together(columns, COMPUTE, -1)

    def _log_together(self, columns: Columns, phase: int, change: int) -> list[_Open]:
        """Note that a phase begins (1) or ends (-1) in each of some dispatches; return these."""
        at_ns, client, dispatch = [columns.plain(place) for place in range(3)]
        mine = [self._open[its][number] for its, number in zip(client, dispatch, strict=True)]
        for one in mine:
            one.active[phase] += change
        self._log.extend([one.row for one in mine], at_ns, [change * phase] * len(mine))
        return mine

    def _left(self, at_ns: int, client: int, *_: Any) -> None:
        if client not in self._away:
            self._away.add(client)
            self._log_all(at_ns, client, AWAY)

    def _returned(self, at_ns: int, client: int) -> None:
        if client in self._away:
            self._away.discard(client)
            self._log_all(at_ns, client, -AWAY)

    def _log_all(self, at_ns: int, client: int, event: int) -> None:
        for one in self._open.get(client, _NO_DISPATCHES).values():
            self._log.add(one.row, at_ns, event)

    def _abandoned(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self._returned(at_ns, client)  # nobody watches any more whether it does
        one = self._find(client, dispatch)
        if one is not None:
            one.is_lost = True
            self.gone_ns[one.row] = at_ns
            self._close_if_over(client, dispatch, one)

    def _tried_again(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._find(client, dispatch)
        if one is not None:
            one.is_retried = True

    def _dropped(self, at_ns: int, client: int, dispatch: int, cause: str, *_: Any) -> None:
        one = self._find(client, dispatch)
        if one is None:
            raise self._ended_before(client, dispatch, Fate.DROPPED)
        self._fate[one.row] = Fate.DROPPED
        self._cause[one.row] = self._words[cause]
        self.counts["dropped"] += 1
        if one.has_replied:  # but its reply is not wanted
            self._close(client, dispatch, Fate.DROPPED)
            return
        self._log.add(one.row, at_ns, PASSED)
        self._close_if_over(client, dispatch, one)

    def _came_late(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self.counts["late"] += 1
        one = self._find(client, dispatch)
        if one is not None:
            self._log.add(one.row, at_ns, PASSED)
            self._close(client, dispatch, Fate.LATE)
            return
        # A second copy of a frame that had been lost, or a reply at the very instant of the drop: rare.
        self._fate[self._last_row(client, dispatch)] = Fate.LATE

    def _rejected(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self.counts["rejected"] += 1
        self._close(client, dispatch, Fate.REJECTED)

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
            one = self._close(client, dispatch, Fate.MERGED)
            if counts:
                self._staleness[one.row] = len(self._rounds_of_merges) - one.version
        if counts:
            self._rounds_of_merges.append(round)

    def _merged_at_edge(
        self,
        at_ns: int,
        round: int,  # noqa: A002
        exchange: str,
        edge: int,
        clients: Sequence[int],
        dispatches: Sequence[int],
    ) -> None:
        self.counts["merged"] += len(clients)
        for client, dispatch in zip(clients, dispatches, strict=True):
            self._close(client, dispatch, Fate.MERGED)

    def _find(self, client: int, dispatch: int) -> _Open | None:
        return self._open.get(client, _NO_DISPATCHES).get(dispatch)

    def _open_rows(self) -> list[int]:
        return [one.row for mine in self._open.copy().values() for one in mine.copy().values()]

    def _close_if_over(self, client: int, dispatch: int, one: _Open) -> None:
        if one.is_lost and not any(one.active) and self._fate[one.row] == _DROPPED:
            self._close(client, dispatch, Fate.DROPPED)

    def _close(self, client: int, dispatch: int, fate: Fate) -> _Open:
        try:
            mine = self._open[client]
            one = mine.pop(dispatch)
        except KeyError:
            raise self._ended_before(client, dispatch, fate) from None
        if not mine:
            del self._open[client]
        self._fate[one.row] = fate
        if len(self._log) > self._max_logged:
            self._compute_times()
            self._max_logged = max(MAX_LOGGED, 2 * len(self._log))
        return one

    def _ended_before(self, client: int, dispatch: int, fate: Fate) -> InvariantError:
        """Return what is wrong with another end of a dispatch."""
        before, again = Fate(self._fate[self._last_row(client, dispatch)]), fate.name.lower()
        ends = f"{again} twice" if before == fate else f"{before.name.lower()}, and then {again}"
        return InvariantError(f"dispatch {dispatch} of client {client} was {ends}")

    def _last_row(self, client: int, dispatch: int) -> int:
        asked = self._asked_rows()
        (rows,) = np.nonzero((asked["client"] == client) & (asked["dispatch"] == dispatch))
        return int(rows[-1])

    def _compute_times(self) -> None:
        """Compute how long dispatches that are over were in each phase."""
        with self._lock:
            spans = self._log.spans(self._open_rows())
            _add_spans(self._times_rows(), spans)
        if self._keep_spans:
            self.spans = np.concatenate([self.spans, spans])


def _phase(one: _Open) -> int:
    """Return the phase in which a dispatch is while its client is there."""
    return max((phase for phase in (DOWNLOAD, UPLOAD, COMPUTE) if one.active[phase]), default=WAITING)


def _add_spans(times_ns: Array, spans: Array) -> None:
    """Add spans to the times of dispatches in phases, ``[dispatches, 5]``."""
    np.add.at(times_ns, (spans[:, 0], spans[:, 1]), spans[:, 3] - spans[:, 2])
