"""Records transfers in the ledger and the trace, and counts what peers did wrong.

A client process also reports with a reply (:mod:`fedsim.bus.reply_report`). Its notes go to the log, marked
as the client's. Its times go to the trace as a ``spent`` record. Of the time since the dispatch was last
sent,

- *upload* begins with the first message that brings a large reply; a small reply takes none;
- *download* ends when the process confirms the dispatch; it excludes the time for which the process held it;
- *compute* is the time in which a job of the client ran or waited for a worker.

Each is bounded by what remains of the time that the server has seen, so a process cannot report more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedsim.bus.base import Header, Log
from fedsim.bus.http.messages import Spent
from fedsim.bus.http.sessions import Dispatch
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.bus.memory import (
    CODED,
    RETRY,
    TRANSFER_COPY,
    TRANSFER_END,
    TRANSFER_START,
    coded_values,
    transfer_end_values,
    transfer_start_values,
)
from fedsim.bus.reply_report import read
from fedsim.clock import RecordKind, Trace, now_ns
from fedsim.network import OverheadConfig
from fedsim.network.faults import FAULT
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.wire import Packed

UNREADABLE = "unreadable"
"""The kind, in ledger and trace, of a reply that cannot be decoded."""
SPENT = RecordKind("spent", ("client", "dispatch", "download_ns", "compute_ns", "upload_ns"))
"""Where the time of a replied dispatch went, as far as it is known."""
WORKED = RecordKind("worked", ("client", "dispatch", "jobs", "flops"))
"""How many jobs a client has done for a dispatch, and their operations."""


class TransferRecords:
    """Records every frame once; ``rejected`` counts the faults of peers by cause."""

    def __init__(self, ledger: Ledger, trace: Trace, overhead: OverheadConfig, log: Log) -> None:
        self.rejected: Counter[str] = Counter()
        self._ledger = ledger
        self._trace = trace
        self._overhead = overhead
        self._log = log
        self._is_sealed = False

    def seal(self) -> None:
        """Record no more frames; faults of peers are still counted."""
        self._is_sealed = True

    def reject(self, cause: str, why: str = "", *, event: str = "peer rejected") -> None:
        """Count a fault of a peer, and log the 1st, 2nd, 4th, 8th, ... of each cause but ``repeated``."""
        self.rejected[cause] += 1
        count = self.rejected[cause]
        if not count & (count - 1) and cause != "repeated":
            self._log.warning(event, cause=cause, count=count, why=shortened(why, MAX_SHOWN))

    def sent(self, dispatch: Dispatch) -> None:
        """Record that a dispatch is sent; a repeated one has a record."""
        packed, frame = dispatch.packed, dispatch.frame
        if frame is not None and packed is not None and dispatch.began_ns < 0 and not self._is_sealed:
            dispatch.row = self.enter(dispatch.header, packed, len(frame))
        # After the record, so that times are measured from it, and again after a break.
        dispatch.began_ns, dispatch.had_ns = now_ns(), -1

    def ended(self, dispatch: Dispatch, outcome: Outcome, cause: str = "") -> None:
        """Record the outcome of a dispatch, and of its copies if it has arrived; only the first counts."""
        if dispatch.had_ns < 0:
            dispatch.had_ns = now_ns()
        if dispatch.row >= 0 and not self._is_sealed:
            num_copies = dispatch.num_copies if outcome is Outcome.DELIVERED else 0
            self.end(dispatch.header, dispatch.row, outcome, cause, num_copies)
            dispatch.row = -1

    def reported(self, dispatch: Dispatch, spent: Spent, notes: Any, first_ns: int = -1) -> None:
        """Record the times and the work that a process reports, and log its notes.

        ``first_ns`` is the start of a large upload, negative for a small reply.
        """
        if self._is_sealed:
            return
        header = dispatch.header
        if notes is not None:
            self._note(header.client, notes)
        held_s, worked_s, num_jobs, flops = spent
        if any(spent_ns := _spent_ns(dispatch, (held_s, worked_s), first_ns)):
            self._trace.record(SPENT, header.client, header.dispatch, *spent_ns)
        if num_jobs:
            self._trace.record(WORKED, header.client, header.dispatch, int(num_jobs), flops)

    def received(
        self, header: Header, packed: Packed | None, num_bytes: int, why: str = "", num_copies: int = 0
    ) -> None:
        """Record a reply that has arrived; the message of one that cannot be decoded is None."""
        if self._is_sealed:
            return
        outcome = Outcome.UNDECODABLE if packed is None else Outcome.DELIVERED
        self.end(header, self.enter(header, packed, num_bytes), outcome, why, num_copies)

    def struck(self, header: Header, kind: str) -> None:
        """Record that a fault shows at a frame."""
        self._trace.record(FAULT, header.client, header.dispatch, header.sender >= 0, kind)

    def tried_again(self, header: Header) -> None:
        """Record that a frame which is about to end will be sent again."""
        self._trace.record(RETRY, header.client, header.dispatch, header.sender >= 0)

    def _note(self, client: int, text: Any) -> None:
        try:
            notes = read(text)
        except ValueError as error:
            self.reject("note", f"client {client}: {error}")
            return
        for level, event, values in notes:
            say = self._log.warning if level == "warning" else self._log.info
            say(event, client=client, **values, told_by="client")

    def enter(self, header: Header, packed: Packed | None, num_bytes: int) -> int:
        """Record that a frame is sent, and return its row; None stands for a message that is not readable."""
        up, of_message = header.sender >= 0, (UNREADABLE, 0, False)
        if packed is not None:
            of_message = packed.kind, packed.num_parameters, packed.is_data
        kind, parameters, is_data = of_message
        added = self._overhead.wire_bytes(num_bytes, "up" if up else "down") - num_bytes
        what = kind, num_bytes, parameters, is_data, added
        plain_bytes = None if packed is None else packed.plain_bytes(header.exchange)
        row = self._ledger.sent(now_ns(), header, up, what, plain_bytes)
        self._trace.record(TRANSFER_START, *transfer_start_values(header, up, what))
        if plain_bytes is not None:
            self._trace.record(CODED, *coded_values(header, up, plain_bytes))
        return row

    def end(self, header: Header, row: int, outcome: Outcome, cause: str, num_copies: int = 0) -> None:
        """Record how a frame has ended, and so have further copies, which a fault has made of it."""
        values = transfer_end_values(header, header.sender >= 0, outcome, cause)
        for kind in (TRANSFER_END, *[TRANSFER_COPY] * num_copies):
            if kind is TRANSFER_COPY:
                self.struck(header, "duplicate")
            self._ledger.ended(now_ns(), row, outcome)
            self._trace.record(kind, *values)


def _spent_ns(dispatch: Dispatch, spent_s: tuple[float, float], first_ns: int) -> tuple[int, int, int]:
    """Return the times of download, computation and upload."""
    held_ns, worked_ns = (int(seconds * 1e9) for seconds in spent_s)
    passed_ns = now_ns() - dispatch.began_ns
    before_ns = passed_ns if first_ns < 0 else max(0, first_ns - dispatch.began_ns)
    download_ns, upload_ns = 0, passed_ns - before_ns
    if dispatch.frame is not None:
        download_ns = max(0, min(dispatch.had_ns - dispatch.began_ns, before_ns - held_ns))
    return download_ns, min(worked_ns, max(0, before_ns - download_ns)), upload_ns
