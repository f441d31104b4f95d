"""Every dispatch, and where its time went: a table built by listening to the trace.

From its start to its end a dispatch is, at each instant, in one *phase*: computing, uploading, downloading,
or waiting, which is all the rest: queueing behind other work of a busy client, or a lease that runs out after
a frame was lost. What overlaps counts once, in the order of this list. While its client is away, what would
be computing, uploading or downloading stands still, and that is a phase of its own, *away*. Work that begins
anew on the return counts twice, as it is done twice. Phases sum to the turnaround to the nanosecond.

A dispatch *ends* with the last thing that happens to it: the arrival of its reply (with the client's last
work, where no frame goes up), or, where none has come, the server's giving it up. Work that goes on after
that for a reply that comes late is part of the dispatch; waiting for the others before a merge is not.

Over sockets the server sees none of a client's jobs, nor a frame until it is whole. What it knows of the time
of a dispatch it tells once the answer has come (:mod:`fedsim.bus.http.accounts`), and that stands in place of
what the events have shown until then; the rest was waiting: for a process to be there, or for a client's
turn. The download is that of the last sending, until it was acknowledged, which a process with a state folder
does once its disk has the answer. Of a dispatch whose answer never comes only the download is known.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Literal

import numpy as np

from fedsim.clock import Trace
from fedsim.params import Array

_WAITING, _DOWNLOAD, _UPLOAD, _COMPUTE, _AWAY = range(5)

Phase = Literal["download", "compute", "upload", "away", "waiting"]
PHASES: tuple[Phase, ...] = ("download", "compute", "upload", "away", "waiting")
WORK: tuple[Phase, ...] = ("download", "compute", "upload")
"""The phases in which somebody is at work; being away and waiting cost nothing."""


class Fate(IntEnum):
    """What became of a dispatch; one whose reply comes late was dropped before."""

    OPEN = 0
    MERGED = 1
    DROPPED = 2
    REJECTED = 3
    LATE = 4


class _Underway:
    """A dispatch of which more may come."""

    __slots__ = ("active", "has_answered", "is_away", "is_lost", "phase", "row", "since_ns", "spent_ns")

    def __init__(self, row: int, at_ns: int, is_away: bool) -> None:
        self.row = row
        self.since_ns = at_ns
        self.phase = _WAITING  # of what it is at; while its client is away, it stands still
        self.is_away = is_away
        self.spent_ns = [0, 0, 0, 0, 0]
        self.active = [0, 0, 0, 0]
        self.has_answered = False  # its reply has arrived
        self.is_lost = False  # its reply never will

    def advance(self, at_ns: int) -> None:
        """Count the time since the last event."""
        self.spent_ns[_AWAY if self.is_away and self.phase else self.phase] += at_ns - self.since_ns
        self.since_ns = at_ns


class DispatchTable:
    """The table; a row costs 65 bytes, and more only while it is open.

    Args:
        trace: What to listen to, until :meth:`finish`.
    """

    def __init__(self, trace: Trace) -> None:
        self._client = array("i")
        self._dispatch = array("i")
        self._round = array("i")
        self._exchange = array("h")
        self._cause = array("h")
        self._fate = array("b")
        self._asked_ns = array("q")
        self._ended_ns = array("q")
        self._download_ns = array("q")
        self._compute_ns = array("q")
        self._upload_ns = array("q")
        self._away_ns = array("q")
        self._words: dict[str, int] = {"": 0}
        self._open: dict[int, dict[int, _Underway]] = {}  # by client, then by number
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self._handlers: dict[str, Callable[..., object]] = {
            "dispatch": self._asked,
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

    def __len__(self) -> int:
        return len(self._client)

    @property
    def row_bytes(self) -> int:
        """What one dispatch costs to remember."""
        return sum(column.itemsize for column in vars(self).values() if isinstance(column, array))

    @property
    def num_open(self) -> int:
        """Dispatches of which more may come."""
        return sum(map(len, self._open.values()))

    def finish(self, at_ns: int) -> None:
        """End the table with the run; what is under way counts until now."""
        self._stop()
        for one in (one for mine in self._open.values() for one in mine.values()):
            if one.phase != _WAITING or self._fate[one.row] == Fate.OPEN:
                one.advance(at_ns)
            self._write(one)
        self._open.clear()

    # What the table says; valid once it is finished

    def client(self) -> Array:
        """Return whose each dispatch is, ``[dispatches]``, in the order of sending."""
        return np.array(self._client)

    def round(self) -> Array:
        """Return in which round the server asked; 0 before the first, one more than the last after it."""
        return np.array(self._round)

    def fate(self) -> Array:
        """Return what became of each, as :class:`Fate`."""
        return np.array(self._fate)

    def turnaround_ns(self) -> Array:
        """Return how long each took, int64 ``[dispatches]``, ns."""
        return np.subtract(self._ended_ns, self._asked_ns)

    def phase_ns(self, phase: Phase) -> Array:
        """Return how long each was in a phase, int64 ``[dispatches]``, ns."""
        if phase == "waiting":
            busy_ns: Array = self.work_ns() + self.phase_ns("away")
            return np.subtract(self.turnaround_ns(), busy_ns)
        columns = {
            "download": self._download_ns,
            "compute": self._compute_ns,
            "upload": self._upload_ns,
            "away": self._away_ns,
        }
        return np.array(columns[phase])

    def work_ns(self) -> Array:
        """Return how long somebody was at work for each, int64 ``[dispatches]``, ns."""
        work_ns: Array = np.array([self.phase_ns(phase) for phase in WORK]).sum(axis=0)
        return work_ns

    def outcomes(self) -> dict[str, Array]:
        """Return which dispatches had which outcome, booleans ``[dispatches]``; all were asked."""
        fate = self.fate()
        late = fate == Fate.LATE
        return {
            "asked": np.ones(len(fate), np.bool_),
            "merged": fate == Fate.MERGED,
            "dropped": (fate == Fate.DROPPED) | late,
            "rejected": fate == Fate.REJECTED,
            "late": late,
        }

    def causes(self) -> dict[str, Array]:
        """Return which dispatches were dropped, by cause in alphabetical order: booleans ``[dispatches]``."""
        number = np.array(self._cause)
        masks = {word: number == index for word, index in self._words.items() if word}
        return {word: masks[word] for word in sorted(masks) if masks[word].any()}

    def rows_of(self, client: Array, dispatch: Array) -> Array:
        """Return the rows of dispatches, given by client and by number; each must be in the table."""
        mine, number = np.array(self._client), np.array(self._dispatch)
        order = np.lexsort((number, mine))
        # A client's dispatches are numbered from 0 without a gap.
        rows: Array = order[np.searchsorted(mine[order], client) + dispatch]
        return rows

    def columns(self) -> dict[str, Array]:
        """Return all rows as columns, one array ``[dispatches]`` for each name, in the order of sending.

        ``cause`` is None where nothing was dropped.
        """
        words = np.array(list(self._words), dtype=object)
        causes = words.copy()
        causes[0] = None
        fates = np.array([fate.name.lower() for fate in Fate], dtype=object)
        return {
            "client": np.array(self._client, np.int64),
            "dispatch": np.array(self._dispatch),
            "round": np.array(self._round),
            "exchange": words[np.array(self._exchange, np.int64)],
            "asked_at_s": np.array(self._asked_ns) / 1e9,
            "ended_at_s": np.array(self._ended_ns) / 1e9,
            **{f"{phase}_s": self.phase_ns(phase) / 1e9 for phase in PHASES},
            "outcome": fates[np.array(self._fate, np.int64)],
            "cause": causes[np.array(self._cause, np.int64)],
        }

    # What the trace says

    def _asked(self, at_ns: int, client: int, dispatch: int, round: int, exchange: str, *_: Any) -> None:  # noqa: A002
        one = _Underway(len(self._client), at_ns, client in self._away)
        self._open.setdefault(client, {})[dispatch] = one
        self._client.append(client)
        self._dispatch.append(dispatch)
        self._round.append(round)
        self._exchange.append(self._word(exchange))
        self._cause.append(0)
        self._fate.append(Fate.OPEN)
        self._asked_ns.append(at_ns)
        self._ended_ns.append(at_ns)
        self._download_ns.append(0)
        self._compute_ns.append(0)
        self._upload_ns.append(0)
        self._away_ns.append(0)

    def _transfer_began(self, at_ns: int, client: int, dispatch: int, up: bool, *_: Any) -> None:
        self._begin(at_ns, client, dispatch, _UPLOAD if up else _DOWNLOAD)

    def _transfer_ended(
        self, at_ns: int, client: int, dispatch: int, up: bool, outcome: str, cause: str, *_: Any
    ) -> None:
        one = self._end(at_ns, client, dispatch, _UPLOAD if up else _DOWNLOAD)
        if one is None:
            return
        if outcome == "delivered":
            one.has_answered = up
        elif cause != "restarted":  # then it is under way again at the same instant
            one.is_lost = True
            self._close_if_over(client, dispatch, one)

    def _told(
        self, at_ns: int, client: int, dispatch: int, download_ns: int, compute_ns: int, upload_ns: int
    ) -> None:
        one = self._find(client, dispatch)
        if one is None:
            return
        one.advance(at_ns)
        left_ns = sum(one.spent_ns)
        for phase, told_ns in ((_UPLOAD, upload_ns), (_DOWNLOAD, download_ns), (_COMPUTE, compute_ns)):
            one.spent_ns[phase] = min(told_ns, left_ns)
            left_ns -= one.spent_ns[phase]
        one.spent_ns[_WAITING] = left_ns

    def _job_began(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self._begin(at_ns, client, dispatch, _COMPUTE)

    def _job_ended(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._end(at_ns, client, dispatch, _COMPUTE)
        if one is not None and one.is_lost:
            self._close_if_over(client, dispatch, one)

    def _begin(self, at_ns: int, client: int, dispatch: int, phase: int) -> None:
        mine = self._open.get(client)
        if mine is None or (one := mine.get(dispatch)) is None:
            return  # the server's own work
        one.advance(at_ns)
        one.active[phase] += 1
        if phase > one.phase:
            one.phase = phase

    def _end(self, at_ns: int, client: int, dispatch: int, phase: int) -> _Underway | None:
        mine = self._open.get(client)
        if mine is None or (one := mine.get(dispatch)) is None:
            return None
        one.advance(at_ns)
        active = one.active
        active[phase] -= 1
        while one.phase and not active[one.phase]:
            one.phase -= 1
        return one

    def _left(self, at_ns: int, client: int, *_: Any) -> None:
        self._away.add(client)
        self._stand(at_ns, client, is_away=True)

    def _returned(self, at_ns: int, client: int) -> None:
        self._away.discard(client)
        self._stand(at_ns, client, is_away=False)

    def _stand(self, at_ns: int, client: int, *, is_away: bool) -> None:
        for one in self._open.get(client, {}).values():
            if one.phase != _WAITING:  # which goes on meanwhile, and has perhaps ended before
                one.advance(at_ns)
            one.is_away = is_away

    def _abandoned(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        if client in self._away:  # nobody watches any more whether it returns
            self._returned(at_ns, client)
        one = self._find(client, dispatch)
        if one is not None:
            one.is_lost = True
            self._close_if_over(client, dispatch, one)

    def _dropped(self, at_ns: int, client: int, dispatch: int, cause: str, *_: Any) -> None:
        one = self._open[client][dispatch]
        self._fate[one.row] = Fate.DROPPED
        self._cause[one.row] = self._word(cause)
        if one.has_answered:  # but its reply is not wanted
            self._close(client, dispatch, Fate.DROPPED)
            return
        one.advance(at_ns)
        self._close_if_over(client, dispatch, one)

    def _came_late(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        one = self._find(client, dispatch)
        if one is not None:
            one.advance(at_ns)
            self._close(client, dispatch, Fate.LATE)
            return
        # A second copy of a frame that had been lost, or a reply at the very instant of the drop: rare.
        of = client, dispatch
        rows = range(len(self) - 1, -1, -1)
        row = next(row for row in rows if (self._client[row], self._dispatch[row]) == of)
        self._fate[row] = Fate.LATE

    def _rejected(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        self._close(client, dispatch, Fate.REJECTED)

    def _merged(self, at_ns: int, *values: Any) -> None:
        *_, clients, dispatches = values
        for client, dispatch in zip(clients, dispatches, strict=True):
            self._close(client, dispatch, Fate.MERGED)

    def _find(self, client: int, dispatch: int) -> _Underway | None:
        mine = self._open.get(client)
        return mine.get(dispatch) if mine is not None else None

    def _close_if_over(self, client: int, dispatch: int, one: _Underway) -> None:
        if one.is_lost and one.phase == _WAITING and self._fate[one.row] == Fate.DROPPED:
            self._close(client, dispatch, Fate.DROPPED)

    def _close(self, client: int, dispatch: int, fate: Fate) -> None:
        mine = self._open[client]
        one = mine.pop(dispatch)
        if not mine:
            del self._open[client]
        self._fate[one.row] = fate
        self._write(one)

    def _write(self, one: _Underway) -> None:
        row, spent_ns = one.row, one.spent_ns
        self._ended_ns[row] = one.since_ns
        self._download_ns[row] = spent_ns[_DOWNLOAD]
        self._compute_ns[row] = spent_ns[_COMPUTE]
        self._upload_ns[row] = spent_ns[_UPLOAD]
        self._away_ns[row] = spent_ns[_AWAY]

    def _word(self, word: str) -> int:
        return self._words.setdefault(word, len(self._words))
