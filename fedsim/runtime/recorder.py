"""What a run leaves: one row per round, tallies per client, totals."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedsim.bus import Ledger, Totals
from fedsim.params import Array
from fedsim.runtime.observer import Accuracy


@dataclass(frozen=True, slots=True, eq=False)
class RoundRow:
    """One round.

    Attributes:
        round: Its number; 0 is what came before the first, one more than the last what came after it.
        began_at_s: Virtual time at its start, s.
        ended_at_s: Virtual time at its end, s.
        asked: Dispatches.
        merged: Replies merged.
        dropped: Dispatches without an answer in time.
        rejected: Replies that could not be merged.
        late: Replies that came after their dispatch was closed.
        traffic: Frames, bytes and parameters sent during it.
        accuracy: What was measured at its end, if anything.
        drops: Dispatches without an answer in time, by cause.
    """

    round: int
    began_at_s: float
    ended_at_s: float
    asked: int
    merged: int
    dropped: int
    rejected: int
    late: int
    traffic: Totals
    accuracy: Accuracy | None
    drops: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    asked: int = 0
    merged: int = 0
    dropped: int = 0
    rejected: int = 0
    late: int = 0


OUTCOMES = tuple(outcome.name for outcome in dataclasses.fields(_Tally))
"""What can become of a dispatch, its asking first."""


@dataclass(slots=True)
class Recorder:
    """Collects; ``watch`` is told of each finished round.

    What happens between two rounds counts in the second, and what is left when the run ends gets a row of its
    own, so that rows always sum to the whole.

    Attributes:
        num_clients: K.
        ledger: Every frame.
        watch: Told of each row.
        rows: One per finished round.
        drops: Dispatches without an answer in time, by cause.
        reasons: Replies that could not be merged, by reason.
        refusals: Merges that were refused: round and reason.
        counted: Tallies of dispatches by outcome, int32 ``[K]``, of the outcomes that there were.
    """

    num_clients: int
    ledger: Ledger
    watch: Callable[[RoundRow], None] = lambda row: None
    rows: list[RoundRow] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    refusals: list[tuple[int, str]] = field(default_factory=list)
    counted: dict[str, Array] = field(default_factory=dict)
    _tally: _Tally = field(default_factory=_Tally)
    _round: int = 0
    _is_open: bool = False
    _began_at_s: float = 0.0
    _before: Totals = field(default_factory=Totals)
    _accuracy: Accuracy | None = None
    _drops: Counter[str] = field(default_factory=Counter)

    @property
    def by_client(self) -> dict[str, Array]:
        """Tallies of dispatches by outcome, int32 ``[K]`` each."""
        nobody = np.zeros(self.num_clients, np.int32)
        return {outcome: self.counted.get(outcome, nobody) for outcome in OUTCOMES}

    def was_asked(self, client: int) -> bool:
        """Say whether a client was ever asked."""
        return "asked" in self.counted and bool(self.counted["asked"][client])

    def begin(self, round: int, at_s: float) -> None:  # noqa: A002
        """A round begins."""
        self._round, self._began_at_s, self._is_open = round, at_s, True

    def end(self, at_s: float) -> RoundRow:
        """It ends; return its row."""
        tally, totals = self._tally, self.ledger.totals()
        row = RoundRow(
            self._round,
            self._began_at_s,
            at_s,
            tally.asked,
            tally.merged,
            tally.dropped,
            tally.rejected,
            tally.late,
            totals - self._before,
            self._accuracy,
            self._drops,
        )
        self._tally, self._accuracy, self._before = _Tally(), None, totals
        self._drops = Counter()
        self._is_open = False
        self.rows.append(row)
        self.watch(row)
        return row

    def close(self, at_s: float) -> None:
        """The run ends; what no row counts yet, such as drops because it ends, gets one after the last."""
        if self._tally == _Tally() and self.ledger.totals() == self._before:
            return
        if not self._is_open:
            self.begin(self._round + 1, at_s)
        self.end(at_s)

    def asked(self, client: int) -> None:
        """A client is asked."""
        self._tally.asked += 1
        self._count("asked", client)

    def merged(self, client: int) -> None:
        """Its reply is merged."""
        self._tally.merged += 1
        self._count("merged", client)

    def dropped(self, client: int, cause: str) -> None:
        """It has not answered in time."""
        self._tally.dropped += 1
        self._count("dropped", client)
        self.drops[cause] += 1
        self._drops[cause] += 1

    def rejected(self, client: int, reason: str) -> None:
        """Its reply cannot be merged."""
        self._tally.rejected += 1
        self._count("rejected", client)
        self.reasons[reason] += 1

    def refused(self, reason: str) -> None:
        """A merge is refused; each of its replies is rejected beside."""
        self.refusals.append((self._round, reason))

    def late(self, client: int) -> None:
        """Its reply comes after its dispatch was closed."""
        self._tally.late += 1
        self._count("late", client)

    def _count(self, outcome: str, client: int) -> None:
        tally = self.counted.get(outcome)
        if tally is None:  # most runs have only some of the outcomes
            tally = self.counted[outcome] = np.zeros(self.num_clients, np.int32)
        tally[client] += 1

    def measured(self, accuracy: Accuracy) -> None:
        """Accuracy was measured in the round at hand."""
        self._accuracy = accuracy
