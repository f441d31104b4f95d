"""Where the time of a dispatch went: what the server has seen, and what a process says, bounded by that."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Header, Ledger, Outcome
from fedsim.bus.http import transfer_records
from fedsim.bus.http.sessions import Dispatch
from fedsim.bus.http.transfer_records import TransferRecords
from fedsim.clock import Trace
from fedsim.network import NO_OVERHEAD
from fedsim.wire import PublicBatch, pack

DOWN = Header(-1, 3, 1, "train", 5, 5)


@pytest.mark.parametrize(
    ("had_at_s", "upload_at_s", "spent_s", "expected", "options"),
    [
        # Acknowledged after 4 s, held for 10, of which 9 computing; uploaded from 15 on.
        (104.0, 115.0, (10.0, 9.0), (4.0, 9.0, 5.0), {}),
        # The same, but the acknowledgement has come with the answer: 15 less 10 are left.
        (None, 115.0, (10.0, 9.0), (5.0, 9.0, 5.0), {}),
        # It came after 7 s, having waited for something to go with: no more than 5 can have been download.
        (107.0, 115.0, (10.0, 9.0), (5.0, 9.0, 5.0), {}),
        # A small answer is there at once.
        (104.0, None, (15.0, 12.0), (4.0, 12.0, 0.0), {}),
        # Nothing is said: what is not known is not told.
        (104.0, None, (0.0, 0.0), (4.0, 0.0, 0.0), {}),
        # Lies: longer than there was time for, or longer in hand than it was away.
        (104.0, 115.0, (10.0, 500.0), (4.0, 11.0, 5.0), {}),
        (104.0, None, (500.0, 500.0), (0.0, 20.0, 0.0), {}),
        # A peer that uploads before it is asked.
        (104.0, 90.0, (0.0, 5.0), (0.0, 0.0, 20.0), {}),
        # A header alone takes no download.
        (104.0, None, (15.0, 12.0), (0.0, 12.0, 0.0), {"has_frame": False}),
        (104.0, None, (15.0, 0.0), None, {"has_frame": False}),
        # The first one went to a process that was killed; another had it 2 s after it was sent again.
        (109.0, None, (5.0, 4.0), (2.0, 4.0, 0.0), {"sent_at_s": (100.0, 107.0)}),
    ],
)
def test_where_time_went(
    monkeypatch: pytest.MonkeyPatch,
    had_at_s: float | None,
    upload_at_s: float | None,
    spent_s: tuple[float, float],
    expected: tuple[float, ...] | None,
    options: dict[str, Any],
) -> None:
    """Download, compute and upload, in s, of a dispatch sent at 100 s whose reply comes at 120 s."""
    now_s, has_frame = 100.0, options.get("has_frame", True)
    monkeypatch.setattr(transfer_records, "now_ns", lambda: int(now_s * 1e9))
    trace = Trace(keep=True)
    books = TransferRecords(Ledger(), trace, NO_OVERHEAD, log=None)  # type: ignore[arg-type]  # nothing is noted

    async def main() -> None:
        nonlocal now_s
        packed = pack(PublicBatch(np.arange(3))) if has_frame else None
        frame = packed.frame(sender=-1, receiver=3, round=1, exchange="train") if packed else None
        dispatch = Dispatch(DOWN, packed, frame, 99.0, 0)
        for now_s in options.get("sent_at_s", (100.0,)):  # noqa: B007 - it is what the clock says
            books.sent(dispatch)
        if had_at_s is not None:
            now_s = had_at_s
            books.ended(dispatch, Outcome.DELIVERED)
        now_s = 120.0
        books.ended(dispatch, Outcome.DELIVERED)
        books.reported(
            dispatch, (*spent_s, 0.0, 0.0), None, -1 if upload_at_s is None else int(upload_at_s * 1e9)
        )

    asyncio.run(main())
    told = [tuple(ns / 1e9 for ns in record[4:]) for record in trace.kept if record[1] == "spent"]
    assert told == ([] if expected is None else [expected])
