"""What has come to a client process, before it is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fedsim.bus import Header
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.arrivals import Arrivals
from fedsim.bus.http.control import Control, header_values
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.mailbox import Mailbox
from fedsim.wire import COMMON, Kinds

LIMITS = HttpLimits()


def arrivals(
    mailbox: Mailbox, is_answered: Callable[[tuple[int, int]], bool] = lambda key: False
) -> Arrivals:
    made = Arrivals(ClientRanges.parse("0-3"), LIMITS, mailbox, is_answered, lambda number, why: None)
    made.kinds = Kinds(COMMON)
    return made


def notice(number: int, client: int, dispatch: int, word: str = "none") -> Control:
    header = Header(-1, client, 1, "train", dispatch, 0)
    values = {"n": number, "h": header_values(header), "a": 0}
    return Control(word, values | ({"b": 100_000} if word == "blob" else {}), memoryview(b""))


async def test_what_had_not_been_handed_over_is_taken_once_more_after_a_new_beginning() -> None:
    mailbox = Mailbox(LIMITS.inbox_bytes)
    mine = arrivals(mailbox)
    assert mine.announced(notice(1, 0, 0, "blob"))
    assert not mine.announced(notice(2, 1, 0))  # waits behind it
    mine.begin_anew()
    assert not mine.announced(notice(1, 1, 0))
    assert (await asyncio.wait_for(mailbox.receive(), 5)).header.client == 1
    assert mine.announced(notice(2, 0, 0, "blob"))


async def test_what_is_at_work_is_not_taken_twice_after_a_new_beginning() -> None:
    mailbox = Mailbox(LIMITS.inbox_bytes)
    mine = arrivals(mailbox)
    assert not mine.announced(notice(1, 0, 0))
    assert (await mailbox.receive()).header.dispatch == 0
    for _ in range(2):
        mine.begin_anew()
        assert mine.announced(notice(1, 1, 0, "blob"))  # what comes again waits behind it
        assert not mine.announced(notice(2, 0, 0))
    mine.begin_anew()
    mine.announced(notice(1, 0, 0))
    mine.announced(notice(2, 2, 0))
    assert (await asyncio.wait_for(mailbox.receive(), 5)).header.client == 2


async def test_nothing_is_remembered_of_what_is_answered() -> None:
    mailbox = Mailbox(LIMITS.inbox_bytes)
    mine = arrivals(mailbox)
    mine.announced(notice(1, 0, 0))
    mine.announced(notice(2, 1, 0))
    mine.announced(notice(3, 2, 0, "send"))  # without a body, so that it cannot be read
    assert set(mine._handed_at_s) == {(0, 0), (1, 0)}
    mine.answered((1, 0))
    assert set(mine._handed_at_s) == {(0, 0)}
    mine.answered((0, 0))
    assert mine._handed_at_s == {}
    assert mine._in_hand == {}
    assert mine.held_ns((0, 0)) == 0
