"""Read-only view of a running simulation, safe to use from another thread.

The run's thread only notes drops, evaluations and other rare events. Rows of rounds, counts, open dispatches
and totals of the ledger are read where the run keeps them. No lock is needed: the reader changes nothing, and
reads numbers, which are replaced as a whole, lists that only grow, and dictionaries and deques that it copies
in one step of the interpreter. Two numbers may be a few events apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from fedsim.bus import Totals
from fedsim.clock import Trace, now_s, running_loop
from fedsim.report import number_format
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.records.result import RoundRow

MAX_EVENTS = 15
"""Entries of each list of events."""

Words: TypeAlias = Mapping[str, Callable[..., str]]

DROPS: Words = {
    "drop": lambda client, dispatch, cause: f"no reply of client {client}: {cause}",
    "reject": lambda client, dispatch, reason: f"a reply of client {client} was rejected: {reason}",
    "late": lambda client, dispatch: f"a reply of client {client} came too late",
}
"""Words for records of replies that were not merged, by kind, given their values."""

EVENTS: Words = {
    "round_end": lambda number, asked, merged: f"round {number} has ended: {asked} asked, {merged} merged",
    "evaluation": lambda number, clients, mean, of_global: (
        f"round {number}: {number_format.several(clients, 'client')} measured"
        + ("" if mean is None else f", accuracy {number_format.percent(mean)} %")
    ),
    "leave": lambda client, policy: f"client {client} left while at work",
    "return": lambda client: f"client {client} came back",
    "stop": lambda budget: f"run.until.{budget} has ended the rounds",
}
"""The same for other records."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Progress of a run: real and simulated time, records of its trace, dispatches by outcome, traffic."""

    real_s: float
    simulated_s: float
    events: int
    outcomes: Mapping[str, int]
    sent: Totals


class RunReader:
    """Reads a run that has begun; made in the run's thread."""

    def __init__(self, recorder: Recorder, parts: Parts) -> None:
        self.parts = parts
        self.recorder = recorder
        self._time_s = running_loop().time
        self._zero_s = self._time_s() - now_s()
        self._began_s = monotonic()
        self.drops, self.events = LastEvents(recorder.trace, DROPS), LastEvents(recorder.trace, EVENTS)

    def counts(self) -> Counts:
        """Return the progress of the run."""
        recorder = self.recorder
        return Counts(
            monotonic() - self._began_s,
            self._time_s() - self._zero_s,
            recorder.trace.count,
            recorder.dispatches.counts.copy(),
            recorder.ledger.totals(),
        )

    @property
    def rows(self) -> list[RoundRow]:
        """The rounds that have ended."""
        return self.recorder.rows.copy()

    @property
    def round(self) -> int:
        """The last round that has ended; 0 before."""
        rows = self.recorder.rows
        return min(rows[-1].round, self.parts.rounds or rows[-1].round) if rows else 0

    def share(self, counts: Counts) -> float | None:
        """Return the finished share of the run: of its rounds, or of the budget nearest its end, if any."""
        until, shares = self.parts.until, list[float]()
        if self.parts.rounds is not None:
            shares.append(self.round / self.parts.rounds)
        if until is not None and until.simulated is not None:
            shares.append(counts.simulated_s / until.simulated)
        if until is not None and until.bytes is not None:
            shares.append((counts.sent.sent_up + counts.sent.sent_down) / until.bytes)
        return min(1.0, max(shares)) if shares else None


class LastEvents:
    """The last records of some kinds; words are made of them only for a reader."""

    def __init__(self, trace: Trace, words: Words) -> None:
        self._words = words
        self._records = deque[tuple[str, int, tuple[Any, ...]]](maxlen=MAX_EVENTS)
        trace.listen({kind: partial(self._note, kind) for kind in words})

    def _note(self, kind: str, at_ns: int, *values: Any) -> None:
        self._records.appendleft((kind, at_ns, values))

    def rows(self) -> list[tuple[str, str]]:
        """Return their times and words, newest first."""
        return [
            (number_format.duration(at_ns / 1e9), self._words[kind](*values))
            for kind, at_ns, values in self._records.copy()
        ]
