"""The rows of the table of dispatches, and what they say as columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

import numpy as np

from fedsim.bus.ledger import Numbers
from fedsim.clock.event_trace import Row
from fedsim.params import Array
from fedsim.runtime.records.dispatch_phases import PHASES, PLACES, WORK, Phase

OUTCOMES = ("asked", "merged", "dropped", "rejected", "late")
"""What is counted of dispatches, by round and by client; all were asked."""


class Fate(IntEnum):
    """What became of a dispatch; one whose reply comes late was dropped before."""

    OPEN = 0
    MERGED = 1
    DROPPED = 2
    REJECTED = 3
    LATE = 4


_ASKED = {"client": "i", "dispatch": "i", "round": "i", "exchange": "h", "version": "i", "asked_ns": "q"}
"""What is known of a dispatch when it is asked, with its format, which struct and NumPy call the same."""

_ASKED_ROW, _ASKED_DTYPE = Struct("=" + "".join(_ASKED.values())), np.dtype(list(_ASKED.items()))

_NOT_MERGED = -1  # in place of a staleness
_NO_TIMES = bytes(8 * len(PHASES))
_OPEN = Fate.OPEN  # to ask the class for a member takes longer than to append one


class DispatchRows:
    """Rows in the order of sending, 73 bytes each.

    What is known of a dispatch when it is asked is written as a whole, not value by value. How long it was in
    each phase, ns, is known once it has ended.
    """

    def __init__(self) -> None:
        self._asked, self._times = array("b"), array("q")
        self._fate, self._cause, self._staleness = array("b"), array("h"), array("i")
        self._rounds_of_merges = array("i")  # the opening exchanges, before round 1, do not count
        self._words = Numbers({"": 0})

    def __len__(self) -> int:
        return len(self._fate)

    def _add(self, asked: Sequence[Row], version: int) -> None:
        """Add dispatches that are asked: the instant in ns, client, number, round, exchange and more."""
        words, pack, count = self._words, _ASKED_ROW.pack, len(asked)
        rows = [
            pack(client, dispatch, round, words[exchange], version, asked_ns)
            for asked_ns, client, dispatch, round, exchange, *_ in asked  # noqa: A001
        ]
        self._asked.frombytes(b"".join(rows))
        self._times.frombytes(_NO_TIMES * count)
        self._fate.extend([_OPEN] * count)
        self._cause.extend([0] * count)
        self._staleness.extend([_NOT_MERGED] * count)

    def _copied(self, first: int, end: int) -> tuple[Array, Array]:
        """Return when dispatches were asked and how long they were in each phase, copied in one step each."""
        asked = self._asked[first * _ASKED_ROW.size : end * _ASKED_ROW.size]
        times_ns = self._times[first * len(PHASES) : end * len(PHASES)]
        return np.frombuffer(asked, _ASKED_DTYPE)["asked_ns"], np.array(times_ns).reshape(-1, len(PHASES))

    # Valid once the table is finished

    def client(self) -> Array:
        """Return the client of each dispatch, ``[dispatches]``, in the order of sending."""
        return self._asked_rows()["client"].copy()

    def round(self) -> Array:
        """Return the round of each; 0 before the first, one more than the last after it."""
        return self._asked_rows()["round"].copy()

    def fate(self) -> Array:
        """Return what became of each, as :class:`Fate`."""
        return np.array(self._fate)

    def turnaround_ns(self) -> Array:
        """Return how long each took, int64 ``[dispatches]``, ns."""
        turnaround_ns: Array = self._times_rows().sum(axis=1)
        return turnaround_ns

    def phase_ns(self, phase: Phase) -> Array:
        """Return how long each was in a phase, int64 ``[dispatches]``, ns."""
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
        ended_ns: Array = self.asked_ns() + self.turnaround_ns()
        return ended_ns

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
            "ended_at_s": self.ended_ns() / 1e9,
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
        """Return how long each was in each phase, by PLACES, int64 ``[dispatches, 5]``, ns: a view too."""
        return np.ndarray((len(self), 5), np.int64, self._times)
