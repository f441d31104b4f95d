"""What a client process reports of its clients' work with each reply: how long jobs ran, and what was noted.

A client does one thing at a time, so what it notes belongs to the reply that it gives next.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedsim.bus import Header
from fedsim.bus.reply_report import MOST_PER_REPLY, Note, Report, in_words
from fedsim.clock import Trace


class _Work:
    """The jobs of one dispatch; those at the same time count once."""

    __slots__ = ("since_ns", "spent_ns", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.since_ns = 0
        self.spent_ns = 0


class Reports:
    """Listens to the jobs and hooks of a client process."""

    def __init__(self, trace: Trace) -> None:
        self._work: dict[tuple[int, int], _Work] = {}
        self._notes: dict[int, list[Note]] = {}
        self._left_out: Counter[int] = Counter()
        trace.listen({"job_start": self._began, "job_end": self._ended})

    def warn(self, event: str, *, client: int, **values: Any) -> None:
        """Keep what a reader of the run's log may have to know, for the client's next reply."""
        self._keep(Note("warning", event, values), client)

    def note(self, event: str, *, client: int, **values: Any) -> None:
        """Keep something ordinary, likewise."""
        self._keep(Note("info", event, values), client)

    def of(self, header: Header) -> Report:
        """Return what is to be reported with a reply, and forget it."""
        work = self._work.pop((header.client, header.dispatch), None)
        return Report(
            0 if work is None else work.spent_ns,
            self._notes.pop(header.client, ()),
            self._left_out.pop(header.client, 0),
        )

    def _keep(self, note: Note, client: int) -> None:
        notes = self._notes.setdefault(client, [])
        if len(notes) < MOST_PER_REPLY:
            notes.append(in_words(note))  # now: a list may change until the reply, and a tensor is large
        else:
            self._left_out[client] += 1  # a hook that notes without end takes up no more

    def _began(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        work = self._work.setdefault((client, dispatch), _Work())
        if not work.under_way:
            work.since_ns = at_ns
        work.under_way += 1

    def _ended(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        work = self._work.get((client, dispatch))
        if work is None:
            return
        work.under_way -= 1
        if not work.under_way:
            work.spent_ns += at_ns - work.since_ns
