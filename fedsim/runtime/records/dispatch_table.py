"""Every dispatch, and where its time went: a table built by listening to the trace.

At each instant from its start to its end a dispatch is in one phase
(:mod:`fedsim.runtime.records.dispatch_phases`).

A dispatch *ends* with the last thing that happens to it: the arrival of its reply (with the client's last
work, where no frame goes up), or, where none has come, the server's giving it up. Work that goes on after
that for a reply that comes late is part of the dispatch; waiting for the others before a merge is not.

Over sockets the server sees none of a client's jobs, nor a frame until it is whole. What it knows of the time
of a dispatch it tells once the reply has come (:mod:`fedsim.bus.http.accounts`), and that stands in place of
what the events have shown until then; the rest was waiting: for a process to be there, or for a client's
turn. The download is that of the last sending, until the client's process has said that it has the dispatch.
Of a dispatch without a reply only the download is known.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any

import numpy as np

from fedsim.bus.ledger import Numbers
from fedsim.clock import Records
from fedsim.params import Array
from fedsim.runtime.records.dispatch_phases import (
    AWAY,
    COMPUTE,
    DOWNLOAD,
    PHASES,
    PLACES,
    UPLOAD,
    WAITING,
    WORK,
    Phase,
    Underway,
    UnderwayInSpans,
)

OUTCOMES = ("asked", "merged", "dropped", "rejected", "late")
"""What is counted of dispatches, by round and by client; all were asked."""


class Fate(IntEnum):
    """What became of a dispatch; one whose reply comes late was dropped before."""

    OPEN = 0
    MERGED = 1
    DROPPED = 2
    REJECTED = 3
    LATE = 4


# To ask the class for a member takes longer than to append one.
_OPEN, _DROPPED = Fate.OPEN, Fate.DROPPED

_ASKED = {"client": "i", "dispatch": "i", "round": "i", "exchange": "h", "version": "i", "asked_ns": "q"}
"""What is known of a dispatch when it is asked, with its format, which struct and NumPy call the same."""

_ASKED_ROW, _ASKED_DTYPE = Struct("=" + "".join(_ASKED.values())), np.dtype(list(_ASKED.items()))

# When it ended, then how long it was in each phase but waiting, which follows from the others; all in ns.
_TIMES_ROW, _ENDED = Struct("=5q"), WAITING
_NOT_MERGED = -1  # in place of a staleness
_NO_TIMES = bytes(_TIMES_ROW.size)
_NO_DISPATCHES: dict[int, Underway] = {}


class DispatchTable:
    """The table; a row costs 73 bytes, and more only while it is open.

    Args:
        trace: What to listen to, until :meth:`finish`.
        hear: Told of each dispatch when nothing more is to come of it, with its spans; if left out, none are
            kept.

    Attributes:
        counts: How many dispatches had which outcome until now, by the names of :meth:`outcomes`.
    """

    def __init__(self, trace: Records, hear: Callable[[UnderwayInSpans], object] | None = None) -> None:
        self.counts = Counter[str]()
        # Rows are written as a whole when a dispatch is asked and when it ends, not value by value.
        self._asked, self._times = array("b"), array("q")
        self._fate, self._cause, self._staleness = array("b"), array("h"), array("i")
        self._merges = 0
        self._rounds_of_merges = array("i")  # the opening exchanges, before round 1, do not count
        self._words = Numbers({"": 0})
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

    def __len__(self) -> int:
        return len(self._fate)

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

    def lately_at_work(self, most: int) -> Mapping[Phase, float]:
        """Return how many clients were in which phase, on average over the last dispatches that ended.

        Another thread may ask for this too.
        """
        count = len(self)
        first = max(0, count - most)
        rows = slice(first * _ASKED_ROW.size, count * _ASKED_ROW.size)
        asked_ns = np.frombuffer(self._asked[rows].tobytes(), _ASKED_DTYPE)["asked_ns"]
        times = np.array(self._times[first * 5 : count * 5]).reshape(-1, 5)
        has_ended = times[:, _ENDED] > 0
        asked_ns, times = asked_ns[has_ended], times[has_ended]
        passed_ns = times[:, _ENDED].max() - asked_ns.min() if len(times) else 0
        if not passed_ns:
            return {}
        times[:, WAITING] = times[:, _ENDED] - asked_ns - times[:, _ENDED + 1 :].sum(axis=1)
        spent_ns = times.sum(axis=0, dtype=float)
        return {phase: float(spent_ns[PLACES[phase]] / passed_ns) for phase in PHASES}

    # What the table says; valid once it is finished

    def client(self) -> Array:
        """Return whose each dispatch is, ``[dispatches]``, in the order of sending."""
        return self._asked_rows()["client"].copy()

    def round(self) -> Array:
        """Return the round of each; 0 before the first, one more than the last after it."""
        return self._asked_rows()["round"].copy()

    def fate(self) -> Array:
        """Return what became of each, as :class:`Fate`."""
        return np.array(self._fate)

    def turnaround_ns(self) -> Array:
        """Return how long each took, int64 ``[dispatches]``, ns."""
        turnaround_ns: Array = self._times_rows()[:, _ENDED] - self._asked_rows()["asked_ns"]
        return turnaround_ns

    def phase_ns(self, phase: Phase) -> Array:
        """Return how long each was in a phase, int64 ``[dispatches]``, ns."""
        if phase == "waiting":
            busy_ns: Array = self.work_ns() + self.phase_ns("away")
            return np.subtract(self.turnaround_ns(), busy_ns)
        return self._times_rows()[:, PLACES[phase]].copy()

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
        mine, number = self.client(), self._asked_rows()["dispatch"]
        order = np.lexsort((number, mine))
        # A client's dispatches are numbered from 0 without a gap.
        rows: Array = order[np.searchsorted(mine[order], client) + dispatch]
        return rows

    def asked_ns(self) -> Array:
        """Return when each was asked, int64 ``[dispatches]``, ns."""
        return self._asked_rows()["asked_ns"].copy()

    def ended_ns(self) -> Array:
        """Return when each ended, int64 ``[dispatches]``, ns."""
        return self._times_rows()[:, _ENDED].copy()

    def staleness(self) -> Array:
        """Return how stale each reply was that a round merged, ``[merged]``, in the order of sending."""
        return np.array(self._staleness)[self._is_merged()]

    def merge_of_each(self) -> Array:
        """Return the number of the merge of each of them, ``[merged]``, from 0."""
        number: Array = self._asked_rows()["version"][self._is_merged()] + self.staleness()
        return number

    def rounds_of_merges(self) -> Array:
        """Return the round of each merge, ``[merges]``."""
        return np.array(self._rounds_of_merges)

    def _is_merged(self) -> Array:
        is_merged: Array = np.array(self._staleness) != _NOT_MERGED
        return is_merged

    def columns(self) -> dict[str, Array]:
        """Return all rows as columns, one array ``[dispatches]`` for each name, in the order of sending.

        ``cause`` is None where nothing was dropped, ``staleness`` is masked where nothing was merged.
        """
        words = np.array(list(self._words), dtype=object)
        causes = words.copy()
        causes[0] = None
        fates = np.array([fate.name.lower() for fate in Fate], dtype=object)
        asked = self._asked_rows()
        return {
            "client": self.client(),
            "dispatch": asked["dispatch"].copy(),
            "round": self.round(),
            "exchange": words[asked["exchange"]],
            "asked_at_s": asked["asked_ns"] / 1e9,
            "ended_at_s": self._times_rows()[:, _ENDED] / 1e9,
            **{f"{phase}_s": self.phase_ns(phase) / 1e9 for phase in PHASES},
            "outcome": fates[self.fate()],
            "cause": causes[np.array(self._cause)],
            "version": asked["version"].copy(),
            "staleness": np.ma.masked_equal(np.array(self._staleness), _NOT_MERGED),
        }

    def _asked_rows(self) -> Array:
        """Return what was known of each when it was asked: a view, and while it lives no row can follow."""
        return np.ndarray(len(self), _ASKED_DTYPE, self._asked)

    def _times_rows(self) -> Array:
        """Return when each ended and how long it was in each phase, int64 ``[dispatches, 5]``: a view too."""
        return np.ndarray((len(self), 5), np.int64, self._times)

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
        self._asked.frombytes(_ASKED_ROW.pack(client, dispatch, round, self._words[exchange], version, at_ns))
        self._times.frombytes(_NO_TIMES)
        self._fate.append(_OPEN)
        self._cause.append(0)
        self._staleness.append(_NOT_MERGED)
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
        one.spent_ns[_ENDED] = one.since_ns
        _TIMES_ROW.pack_into(self._times, one.row * _TIMES_ROW.size, *one.spent_ns)
        if self._hear is not None and isinstance(one, UnderwayInSpans):
            self._hear(one)
