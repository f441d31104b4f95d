"""Where the time of a dispatch went: what the server has seen, and what a process says, bounded by that."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Header, Ledger, Outcome
from fedsim.bus.http import accounts
from fedsim.bus.http.accounts import Accounts
from fedsim.bus.http.sessions import Dispatch
from fedsim.clock import Trace
from fedsim.network import NO_OVERHEAD
from fedsim.wire import PublicBatch, pack

DOWN = Header(-1, 3, 1, "train", 5, 5)


def told(
    monkeypatch: pytest.MonkeyPatch,
    *,
    had_at_s: float | None,
    upload_at_s: float | None,
    spent_s: tuple[float, float],
    has_frame: bool = True,
    sent_at_s: tuple[float, ...] = (100.0,),
) -> list[tuple[float, ...]]:
    """Return download, compute and upload, in s, of a dispatch sent at 100 s whose reply comes at 120 s."""
    now_s = 100.0
    monkeypatch.setattr(accounts, "now_ns", lambda: int(now_s * 1e9))
    trace = Trace(keep=True)
    books = Accounts(Ledger(), trace, NO_OVERHEAD, log=None)  # type: ignore[arg-type]  # nothing is noted

    async def main() -> None:
        nonlocal now_s
        packed = pack(PublicBatch(np.arange(3)))
        frame = packed.frame(sender=-1, receiver=3, round=1, exchange="train")
        left: Any = asyncio.get_running_loop().create_future()
        ask = (
            Dispatch(DOWN, packed, frame, left, 99.0) if has_frame else Dispatch(DOWN, None, None, left, 99.0)
        )
        for now_s in sent_at_s:  # noqa: B007 - it is what the clock says
            books.began(ask, 1)
        if had_at_s is not None:
            now_s = had_at_s
            books.ended(ask, Outcome.DELIVERED)
        now_s = 120.0
        books.ended(ask, Outcome.DELIVERED)
        books.reported(ask, spent_s, None, -1 if upload_at_s is None else int(upload_at_s * 1e9))

    asyncio.run(main())
    return [tuple(ns / 1e9 for ns in record[4:]) for record in trace.kept if record[1] == "spent"]


@pytest.mark.parametrize(
    ("had_at_s", "upload_at_s", "spent_s", "expected"),
    [
        # Acknowledged after 4 s, held for 10, of which 9 computing; uploaded from 15 on.
        (104.0, 115.0, (10.0, 9.0), (4.0, 9.0, 5.0)),
        # The same, but the acknowledgement has come with the answer: 15 less 10 are left.
        (None, 115.0, (10.0, 9.0), (5.0, 9.0, 5.0)),
        # It came after 7 s, having waited for something to go with: no more than 5 can have been download.
        (107.0, 115.0, (10.0, 9.0), (5.0, 9.0, 5.0)),
        # A small answer is there at once.
        (104.0, None, (15.0, 12.0), (4.0, 12.0, 0.0)),
        # Nothing is said: what is not known is not told.
        (104.0, None, (0.0, 0.0), (4.0, 0.0, 0.0)),
        # Lies: longer than there was time for, or longer in hand than it was away.
        (104.0, 115.0, (10.0, 500.0), (4.0, 11.0, 5.0)),
        (104.0, None, (500.0, 500.0), (0.0, 20.0, 0.0)),
        # A peer that uploads before it is asked.
        (104.0, 90.0, (0.0, 5.0), (0.0, 0.0, 20.0)),
    ],
)
def test_where_time_went(
    had_at_s: float | None,
    upload_at_s: float | None,
    spent_s: tuple[float, float],
    expected: tuple[float, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, had_at_s=had_at_s, upload_at_s=upload_at_s, spent_s=spent_s) == [expected]


def test_a_header_alone_takes_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = told(monkeypatch, had_at_s=104.0, upload_at_s=None, spent_s=(15.0, 12.0), has_frame=False)
    assert alone == [(0.0, 12.0, 0.0)]
    nothing = told(monkeypatch, had_at_s=104.0, upload_at_s=None, spent_s=(15.0, 0.0), has_frame=False)
    assert nothing == []


def test_the_download_is_that_of_the_last_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one went to a process that was killed; another was there 7 s later."""
    times = told(monkeypatch, had_at_s=109.0, upload_at_s=None, spent_s=(5.0, 4.0), sent_at_s=(100.0, 107.0))
    assert times == [(2.0, 4.0, 0.0)]
