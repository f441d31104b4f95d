"""The server's books: ledger and trace of frames, and counts of what was sent again or turned away.

What clients' processes say of themselves (:mod:`fedsim.bus.http.enclosed`) is entered beside: notes go to the
log, marked as theirs; what an answer took goes to the trace in a record of its own, ``spent``, once it has
come. Of the time since the dispatch was last put on a link, that is

- *upload*, from the first part of a large answer that arrives until it is whole; a small one arrives at once;
- *download*, until the process says that it has the dispatch, which waits a little for something to go with;
  at most what, before the upload, the process does not say to have held it;
- *compute*, in which the process says that a job of the client's was under way or queued for a worker.

Each is bounded by what is left of the time, so nobody can have spent more than has passed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Protocol

from fedsim.bus.base import Header
from fedsim.bus.http.enclosed import read
from fedsim.bus.http.peer import Answered, Ask
from fedsim.bus.ledger import OUTCOME_WORDS, Ledger, Outcome
from fedsim.bus.memory import TRANSFER_END, TRANSFER_START
from fedsim.clock import RecordKind, Trace, now_ns
from fedsim.network import OverheadConfig
from fedsim.quoting import MOST_SAID, shortened
from fedsim.wire import Message, num_parameters

UNREADABLE = "unreadable"
"""The kind, in ledger and trace, of an answer that cannot be decoded."""
SPENT = RecordKind("spent", ("client", "dispatch", "download_ns", "compute_ns", "upload_ns"))
"""Where the time of a dispatch went whose answer has come, as far as it is known."""


class Log(Protocol):
    """What the bus needs of a logger."""

    def info(self, event: str, **values: Any) -> Any:
        """Note something ordinary."""

    def warning(self, event: str, **values: Any) -> Any:
        """Note something that a reader may have to know."""


class Accounts:
    """Enters every frame once: one to a client when it is first sent, one to the server when it is whole.

    Attributes:
        rejected: What peers did and must not, by cause.
        retransmitted_frames: Frames that went to a client once more, after a break; not in the ledger.
    """

    def __init__(self, ledger: Ledger, trace: Trace, overhead: OverheadConfig, log: Log) -> None:
        self.rejected: Counter[str] = Counter()
        self.retransmitted_frames = 0
        self._ledger = ledger
        self._trace = trace
        self._overhead = overhead
        self._log = log
        self._is_sealed = False

    def seal(self) -> None:
        """Enter nothing more; what is done amiss, or once more, is counted all the same."""
        self._is_sealed = True

    def reject(self, cause: str, why: str = "") -> None:
        """Count something that a peer did; the log tells of the 1st, 2nd, 4th, 8th, ... of each cause."""
        self.rejected[cause] += 1
        count = self.rejected[cause]
        if not count & (count - 1):
            self._log.warning("peer rejected", cause=cause, count=count, why=shortened(why, MOST_SAID))

    def began(self, ask: Ask) -> None:
        """Enter that a delivery to a client is being put on a link, or once more."""
        again = ask.has_begun
        packed = ask.packed
        if ask.frame is not None and packed is not None:
            if again:
                self.retransmitted_frames += 1
            elif not self._is_sealed:
                ask.row = self._enter(
                    ask.header, packed.kind, len(ask.frame), packed.num_parameters, packed.is_data
                )
        # What came before a break was in vain: then it waited for a process. Read once the transfer is
        # recorded, so that what an answer took lies between the instants of the trace.
        ask.began_at_s = _now_s()

    def ended(self, ask: Ask, outcome: Outcome, cause: str = "") -> None:
        """Enter what became of a delivery to a client; only the first end counts."""
        if ask.had_at_s < 0:
            ask.had_at_s = _now_s()
        if ask.row < 0 or ask.has_ended or self._is_sealed:
            return
        ask.has_ended = True
        self._end(ask.header, ask.row, outcome, cause)

    def beside(self, ask: Ask, answer: Answered) -> None:
        """Enter what an answer took, and what its client's process has noted."""
        if self._is_sealed:
            return
        if answer.words is not None:
            self._note(answer.header, answer.words)
        if any(spent_ns := _spent_ns(ask, answer)):
            self._trace.record(SPENT, answer.header.client, answer.header.dispatch, *spent_ns)

    def came(self, header: Header, message: Message | None, num_bytes: int, why: str = "") -> None:
        """Enter an answer that has arrived whole; ``None`` for one that cannot be decoded."""
        if self._is_sealed:
            return
        if message is None:
            row = self._enter(header, UNREADABLE, num_bytes, 0, False)
            self._end(header, row, Outcome.UNDECODABLE, why)
        else:
            row = self._enter(header, message.KIND, num_bytes, num_parameters(message), message.IS_DATA)
            self._end(header, row, Outcome.DELIVERED, "")

    def _note(self, header: Header, words: Any) -> None:
        try:
            notes = read(words)
        except ValueError as error:
            self.reject("note", f"client {header.client}: {error}")
            return
        for level, event, values in notes:
            say = self._log.warning if level == "warning" else self._log.info
            say(event, client=header.client, **values, told_by="client")

    def _enter(self, header: Header, kind: str, num_bytes: int, parameters: int, is_data: bool) -> int:
        up = header.sender >= 0
        added = self._overhead.wire_bytes(num_bytes, "up" if up else "down") - num_bytes
        row = self._ledger.sent(now_ns(), header, kind, num_bytes, parameters, is_data, added)
        self._trace.record(
            TRANSFER_START,
            header.client,
            header.dispatch,
            up,
            kind,
            num_bytes,
            parameters,
            is_data,
            added,
        )
        return row

    def _end(self, header: Header, row: int, outcome: Outcome, cause: str) -> None:
        self._ledger.ended(now_ns(), row, outcome)
        up = header.sender >= 0
        self._trace.record(TRANSFER_END, header.client, header.dispatch, up, OUTCOME_WORDS[outcome], cause)


def _spent_ns(ask: Ask, answer: Answered) -> tuple[int, int, int]:
    """Return how long a dispatch was downloading, computing and uploading."""
    passed_s = first_s = whole_s = _now_s() - ask.began_at_s
    if (upload := answer.upload) is not None:  # which a peer may have begun before it was asked
        first_s = max(0.0, upload.first_at_s - ask.began_at_s)
        whole_s = max(first_s, upload.whole_at_s - ask.began_at_s)
    held_s, worked_s = answer.spent_s or (0.0, 0.0)
    download_s, upload_s = 0.0, whole_s - first_s
    if ask.frame is not None:
        download_s = max(0.0, min(ask.had_at_s - ask.began_at_s, first_s - held_s))
    compute_s = min(worked_s, max(0.0, passed_s - download_s - upload_s))
    return int(download_s * 1e9), int(compute_s * 1e9), int(upload_s * 1e9)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
