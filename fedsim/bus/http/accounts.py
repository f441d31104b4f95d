"""Records transfers in the ledger and the trace, and counts what peers did wrong.

What client processes report with a reply (:mod:`fedsim.bus.reply_report`) is entered beside: notes go to the
log, marked as theirs; what the reply took goes to the trace in a record of its own, ``spent``. Of the time
since the dispatch was last put on a connection, that is

- *upload*, from the first bytes of a large reply that arrive until it is taken; a small one arrives at once;
- *download*, until the process says that it has the dispatch, which it does a little later; at most what,
  before the upload, the process does not say to have held it;
- *compute*, in which the process says that a job of the client's was under way or queued for a worker.

Each is bounded by what is left of the time between the records of the trace, so nobody can have spent more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fedsim.bus.base import Header, Log
from fedsim.bus.http.sessions import Dispatch
from fedsim.bus.ledger import OUTCOME_WORDS, Ledger, Outcome
from fedsim.bus.memory import TRANSFER_END, TRANSFER_START
from fedsim.bus.reply_report import read
from fedsim.clock import RecordKind, Trace, now_ns
from fedsim.network import OverheadConfig
from fedsim.quoting import MOST_SAID, shortened
from fedsim.wire import Message, num_parameters

UNREADABLE = "unreadable"
"""The kind, in ledger and trace, of a reply that cannot be decoded."""
SPENT = RecordKind("spent", ("client", "dispatch", "download_ns", "compute_ns", "upload_ns"))
"""Where the time of a dispatch went whose reply has come, as far as it is known."""


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

    def reject(self, cause: str, why: str = "", *, event: str = "peer rejected") -> None:
        """Count something that a peer did; the log tells of the 1st, 2nd, 4th, 8th, ... of each cause.

        It tells nothing of what is ``repeated``, as every process does after a connection has broken.
        """
        self.rejected[cause] += 1
        count = self.rejected[cause]
        if not count & (count - 1) and cause != "repeated":
            self._log.warning(event, cause=cause, count=count, why=shortened(why, MOST_SAID))

    def began(self, dispatch: Dispatch, sharing: int) -> None:
        """Enter that a dispatch is being put on a connection, or once more, in a piece with others."""
        packed, frame = dispatch.packed, dispatch.frame
        if frame is not None and packed is not None:
            if dispatch.began_ns >= 0:
                self.retransmitted_frames += 1
            elif not self._is_sealed:
                header = dispatch.header
                dispatch.row = self._enter(
                    header, packed.kind, len(frame), packed.num_parameters, packed.is_data, sharing
                )
        # After the record, so that nothing is measured from before it. What came before a break was in vain.
        dispatch.began_ns, dispatch.had_ns = now_ns(), -1

    def ended(self, dispatch: Dispatch, outcome: Outcome, cause: str = "") -> None:
        """Enter what became of a dispatch on its way; only the first end counts."""
        if dispatch.had_ns < 0:
            dispatch.had_ns = now_ns()
        if dispatch.row >= 0 and not self._is_sealed:
            self._end(dispatch.header, dispatch.row, outcome, cause)
            dispatch.row = -1

    def reported(
        self, dispatch: Dispatch, spent_s: tuple[float, float], notes: Any, first_ns: int = -1
    ) -> None:
        """Enter what a reply took, and what its client's process has noted.

        Args:
            dispatch: What it replies to.
            spent_s: For how long the process says that it held the dispatch, and that its jobs ran.
            notes: Notes for the log, as they came; None where there are none.
            first_ns: When the first bytes of a large reply came; negative for a small one.
        """
        if self._is_sealed:
            return
        header = dispatch.header
        if notes is not None:
            self._note(header.client, notes)
        if any(spent_ns := _spent_ns(dispatch, spent_s, first_ns)):
            self._trace.record(SPENT, header.client, header.dispatch, *spent_ns)

    def came(
        self, header: Header, message: Message | None, num_bytes: int, sharing: int, why: str = ""
    ) -> None:
        """Enter a reply that has arrived whole; ``None`` for one that cannot be decoded."""
        if self._is_sealed:
            return
        if message is None:
            entered, outcome = (UNREADABLE, num_bytes, 0, False, sharing), Outcome.UNDECODABLE
        else:
            entered = (message.KIND, num_bytes, num_parameters(message), message.IS_DATA, sharing)
            outcome = Outcome.DELIVERED
        self._end(header, self._enter(header, *entered), outcome, why)

    def _note(self, client: int, text: Any) -> None:
        try:
            notes = read(text)
        except ValueError as error:
            self.reject("note", f"client {client}: {error}")
            return
        for level, event, values in notes:
            say = self._log.warning if level == "warning" else self._log.info
            say(event, client=client, **values, told_by="client")

    def _enter(
        self, header: Header, kind: str, num_bytes: int, parameters: int, is_data: bool, sharing: int
    ) -> int:
        up = header.sender >= 0
        added = self._overhead.wire_bytes(num_bytes, "up" if up else "down", sharing) - num_bytes
        row = self._ledger.sent(now_ns(), header, kind, num_bytes, parameters, is_data, added)
        self._trace.record(
            *(TRANSFER_START, header.client, header.dispatch),
            *(up, kind, num_bytes, parameters, is_data, added),
        )
        return row

    def _end(self, header: Header, row: int, outcome: Outcome, cause: str) -> None:
        self._ledger.ended(now_ns(), row, outcome)
        up = header.sender >= 0
        self._trace.record(TRANSFER_END, header.client, header.dispatch, up, OUTCOME_WORDS[outcome], cause)


def _spent_ns(dispatch: Dispatch, spent_s: tuple[float, float], first_ns: int) -> tuple[int, int, int]:
    """Return how long a dispatch was downloading, computing and uploading."""
    held_ns, worked_ns = (int(seconds * 1e9) for seconds in spent_s)
    passed_ns = now_ns() - dispatch.began_ns
    before_ns = passed_ns if first_ns < 0 else max(0, first_ns - dispatch.began_ns)
    download_ns, upload_ns = 0, passed_ns - before_ns
    if dispatch.frame is not None:
        download_ns = max(0, min(dispatch.had_ns - dispatch.began_ns, before_ns - held_ns))
    return download_ns, min(worked_ns, max(0, before_ns - download_ns)), upload_ns
