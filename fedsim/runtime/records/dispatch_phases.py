"""The phases of a dispatch: at each instant, from its start to its end, it is in one of them.

It is computing, uploading, downloading, or waiting, which is all the rest: queueing behind other work of a
busy client, or a lease that runs out after a frame was lost. What overlaps counts once, in the order of this
list. While its client is away, what would be computing, uploading or downloading stands still, and that is a
phase of its own, *away*. Work that begins anew on the return counts twice, as it is done twice. Phases sum to
the turnaround to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

WAITING, DOWNLOAD, UPLOAD, COMPUTE, AWAY = range(5)

Phase = Literal["download", "compute", "upload", "away", "waiting"]
PHASES: tuple[Phase, ...] = ("download", "compute", "upload", "away", "waiting")
WORK: tuple[Phase, ...] = ("download", "compute", "upload")
"""The phases in which somebody is at work; being away and waiting cost nothing."""

PLACES: dict[Phase, int] = {
    "waiting": WAITING,
    "download": DOWNLOAD,
    "upload": UPLOAD,
    "compute": COMPUTE,
    "away": AWAY,
}
"""Where the time of each phase is counted."""

Span: TypeAlias = tuple[int, int, int]
"""A phase, one of :data:`PLACES`, and the instants at which it began and ended, in ns."""


@dataclass(slots=True, eq=False)
class Underway:
    """A dispatch of which more may come.

    Attributes:
        client: Whose it is.
        dispatch: Its number among those to this client.
        row: Its row in the table.
        version: The server's when it was asked.
        since_ns: The last event; at the end, when it ended.
        is_away: Whether its client is.
        phase: Of what it is at; while its client is away, it stands still.
        has_replied: Whether its reply has come.
        is_lost: Whether its reply will never arrive.
        spent_ns: How long it was in each phase, by :data:`PLACES`.
        active: How many things of each phase are under way.
    """

    client: int
    dispatch: int
    row: int
    version: int
    since_ns: int
    is_away: bool
    phase: int = WAITING
    has_replied: bool = False
    is_lost: bool = False
    spent_ns: list[int] = field(default_factory=[0, 0, 0, 0, 0].copy)
    active: list[int] = field(default_factory=[0, 0, 0, 0].copy)

    def advance(self, at_ns: int) -> None:
        """Count the time since the last event."""
        phase = self.phase
        self.spent_ns[AWAY if self.is_away and phase else phase] += at_ns - self.since_ns
        self.since_ns = at_ns

    def begin(self, at_ns: int, phase: int) -> None:
        """Begin something of a phase."""
        # As in advance, without a call: this and the next are told of every frame and job.
        now = self.phase
        self.spent_ns[AWAY if self.is_away and now else now] += at_ns - self.since_ns
        self.since_ns = at_ns
        self.active[phase] += 1
        if phase > self.phase:
            self.phase = phase

    def end(self, at_ns: int, phase: int) -> None:
        """End it."""
        now = self.phase
        self.spent_ns[AWAY if self.is_away and now else now] += at_ns - self.since_ns
        self.since_ns = at_ns
        active = self.active
        active[phase] -= 1
        while self.phase and not active[self.phase]:
            self.phase -= 1

    def told(self, at_ns: int, download_ns: int, compute_ns: int, upload_ns: int) -> None:
        """Replace what events have shown by what is told of it; the rest was waiting."""
        self.advance(at_ns)
        left_ns = sum(self.spent_ns)
        for phase, told_ns in ((UPLOAD, upload_ns), (DOWNLOAD, download_ns), (COMPUTE, compute_ns)):
            self.spent_ns[phase] = min(told_ns, left_ns)
            left_ns -= self.spent_ns[phase]
        self.spent_ns[WAITING] = left_ns


@dataclass(slots=True, eq=False)
class UnderwayInSpans(Underway):
    """One that also remembers when it was in which phase.

    Attributes:
        spans: Without gaps, from its start to the last event; no two in a row are of one phase.
        are_exact: Whether that is when; else only their lengths are known.
    """

    spans: list[Span] = field(default_factory=list)
    are_exact: bool = True

    def advance(self, at_ns: int) -> None:
        """Count the time since the last event."""
        self._pass(at_ns)
        Underway.advance(self, at_ns)

    def begin(self, at_ns: int, phase: int) -> None:
        """Begin something of a phase."""
        self._pass(at_ns)
        Underway.begin(self, at_ns, phase)

    def end(self, at_ns: int, phase: int) -> None:
        """End it."""
        self._pass(at_ns)
        Underway.end(self, at_ns, phase)

    def _pass(self, at_ns: int) -> None:
        """Remember the phase since the last event."""
        self._add(AWAY if self.is_away and self.phase else self.phase, self.since_ns, at_ns)

    def told(self, at_ns: int, download_ns: int, compute_ns: int, upload_ns: int) -> None:
        """Replace what events have shown, which knows when the download began; the upload ends now.

        When the client has computed is not known: it is taken to be right before the upload.
        """
        Underway.told(self, at_ns, download_ns, compute_ns, upload_ns)
        began_ns = at_ns - sum(self.spent_ns)
        first, _, ended_ns = self.spans[0] if self.spans else (WAITING, began_ns, began_ns)
        before_ns = min(ended_ns - began_ns, self.spent_ns[WAITING]) if first == WAITING else 0
        after_ns = self.spent_ns[WAITING] - before_ns
        self.spans.clear()
        for phase, passed_ns in (
            (WAITING, before_ns),
            (DOWNLOAD, self.spent_ns[DOWNLOAD]),
            (WAITING, after_ns),
            (COMPUTE, self.spent_ns[COMPUTE]),
            (UPLOAD, self.spent_ns[UPLOAD]),
        ):
            self._add(phase, began_ns, began_ns + passed_ns)
            began_ns += passed_ns
        self.are_exact = False

    def _add(self, phase: int, began_ns: int, ended_ns: int) -> None:
        if ended_ns == began_ns:
            return
        if self.spans and self.spans[-1][0] == phase:
            began_ns = self.spans.pop()[1]
        self.spans.append((phase, began_ns, ended_ns))
