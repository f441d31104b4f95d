"""Read-only view of a running simulation, safe to use from another thread.

The run's thread does nothing for it that it would not do anyway, but for a note of each drop, evaluation and
other rare event. All else is read where the run keeps it: rows of rounds, counts, open dispatches, totals of
the ledger. That is safe, and takes no lock, since the reader changes nothing, and everything that it reads is
a number, which is replaced as a whole, a list that only grows, or a dictionary or deque that it copies in one
step of the interpreter. Two numbers may be of instants that lie a few events apart, which nobody can see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from fedsim.bus import Totals
from fedsim.clock import now_s, running_loop
from fedsim.report import number_format
from fedsim.report.cost_breakdown import Columns
from fedsim.report.run_text import measured_words
from fedsim.report.tables import rounds_so_far
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_phases import Phase
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.records.result import RoundRow, last_measured

MOST_EVENTS = 15
"""Of each of the two lists."""

LATELY = 1000
"""Dispatches over which means are taken."""

DROPS: Mapping[str, Callable[..., str]] = {
    "drop": lambda client, dispatch, cause: f"no reply of client {client}: {cause}",
    "reject": lambda client, dispatch, reason: f"a reply of client {client} was rejected: {reason}",
    "late": lambda client, dispatch: f"a reply of client {client} came too late",
}
"""Words for a record of a reply that was not merged, by its kind, given its values."""

EVENTS: Mapping[str, Callable[..., str]] = {
    "round_end": lambda number, asked, merged: f"round {number} has ended: {asked} asked, {merged} merged",
    "evaluation": lambda number, clients, mean, of_global: (
        f"round {number}: {number_format.several(clients, 'client')} measured"
        + ("" if mean is None else f", accuracy {number_format.percent(mean)} %")
    ),
    "leave": lambda client, policy: f"client {client} left while at work",
    "return": lambda client: f"client {client} came back",
    "stop": lambda budget: f"run.until.{budget} has ended the rounds",
}
"""Words for what else happens."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a run is.

    Attributes:
        real_s: Real time since it began, s.
        simulated_s: Its own time, s.
        events: Records of its trace.
        outcomes: Dispatches by outcome.
        sent: Frames, bytes and parameters.
    """

    real_s: float
    simulated_s: float
    events: int
    outcomes: Mapping[str, int]
    sent: Totals

    @property
    def num_bytes(self) -> int:
        """Bytes of all frames."""
        return self.sent.sent_up + self.sent.sent_down


class RunAtHand:
    """A run that has begun; made in its thread.

    Args:
        recorder: Of the run.
        parts: What it is made of.

    Attributes:
        parts: The same.
    """

    def __init__(self, recorder: Recorder, parts: Parts) -> None:
        self.parts = parts
        self._recorder = recorder
        self._time_s = running_loop().time
        self._zero_s = self._time_s() - now_s()
        self._began_s = monotonic()
        self._drops = deque[tuple[str, int, tuple[Any, ...]]](maxlen=MOST_EVENTS)
        self._events = deque[tuple[str, int, tuple[Any, ...]]](maxlen=MOST_EVENTS)
        recorder.trace.listen({kind: partial(_note, self._drops, kind) for kind in DROPS})
        recorder.trace.listen({kind: partial(_note, self._events, kind) for kind in EVENTS})

    def counts(self) -> Counts:
        """Return how far it is."""
        recorder = self._recorder
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
        return self._recorder.rows.copy()

    @property
    def round(self) -> int:
        """The last round that has ended; 0 before."""
        rows = self._recorder.rows
        return min(rows[-1].round, self.parts.rounds or rows[-1].round) if rows else 0

    def columns(self) -> Columns:
        """Return the columns of the rounds that have ended."""
        return rounds_so_far(self.rows)

    def share(self, counts: Counts) -> float | None:
        """Return how much of the run is done, in ``[0, 1]``: of its rounds, or of the budget nearest its end.

        None where nobody knows.
        """
        until, shares = self.parts.until, list[float]()
        if self.parts.rounds is not None:
            shares.append(self.round / self.parts.rounds)
        if until is not None and until.simulated is not None:
            shares.append(counts.simulated_s / until.simulated)
        if until is not None and until.bytes is not None:
            shares.append(counts.num_bytes / until.bytes)
        return min(1.0, max(shares)) if shares else None

    def measured(self) -> str:
        """Return the last accuracy, or else loss, in words; empty where there is none."""
        return measured_words(last_measured(self.rows))

    def at_work(self) -> Mapping[Phase, int]:
        """Return how many clients with a dispatch are in which phase now."""
        return self._recorder.dispatches.at_work()

    def lately_at_work(self) -> Mapping[Phase, float]:
        """Return the same as a mean over the last :data:`LATELY` dispatches; nothing before any has ended."""
        return self._recorder.dispatches.lately_at_work(LATELY)

    def drops(self) -> list[tuple[str, str]]:
        """Return the newest replies that were not merged, and when that was, newest first."""
        return _told(self._drops.copy(), DROPS)

    def events(self) -> list[tuple[str, str]]:
        """Return what else has happened."""
        return _told(self._events.copy(), EVENTS)


def _note(notes: deque[tuple[str, int, tuple[Any, ...]]], kind: str, at_ns: int, *values: Any) -> None:
    notes.append((kind, at_ns, values))


def _told(
    notes: Iterable[tuple[str, int, tuple[Any, ...]]], words: Mapping[str, Callable[..., str]]
) -> list[tuple[str, str]]:
    told = [(number_format.duration(at_ns / 1e9), words[kind](*values)) for kind, at_ns, values in notes]
    return told[::-1]
