"""What has come to a client process and is not handed over, and what it has not got rid of."""

from __future__ import annotations

import asyncio

from fedsim.bus import Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Reply
from fedsim.bus.http.pending import Arrival, Deliveries, Replies
from fedsim.bus.http.transfers import Incoming
from fedsim.bus.inbox import Inbox
from fedsim.wire import COMMON, Frame, Kinds

LIMITS = HttpLimits()


class Process:
    """Deliveries of a client process, and what it has received."""

    def __init__(self, limits: HttpLimits = LIMITS) -> None:
        self.inbox = Inbox(limits.inbox_bytes)
        self.faults: list[Header] = []
        self.deliveries = Deliveries(limits, self.inbox, lambda header, why: self.faults.append(header))
        self.deliveries.kinds = Kinds(COMMON)

    def announced(self, number: int, client: int, dispatch: int, *, large: bool = False) -> Arrival | None:
        """Announce a dispatch; return it if it is to be fetched."""
        header = Header(-1, client, 1, "train", dispatch, 0)
        arrival = Arrival(header, number, incoming=Incoming(100_000) if large else None)
        return arrival if self.deliveries.announced(arrival) else None

    async def received(self) -> tuple[int, int]:
        header = (await asyncio.wait_for(self.inbox.receive(), 5)).header
        return header.client, header.dispatch


async def test_what_is_announced_again_is_taken_once_and_in_order() -> None:
    mine = Process()
    fetched = mine.announced(1, 0, 0, large=True)
    assert fetched is not None
    assert mine.announced(2, 1, 0) is None  # waits behind it
    assert mine.deliveries.had == 0
    mine.deliveries.begin_anew()
    assert (mine.deliveries.last, mine.deliveries.had) == (0, 0)
    assert mine.announced(1, 0, 0, large=True) is None  # it is being fetched already
    assert mine.announced(2, 1, 0) is None
    mine.deliveries.fetched(fetched, None)  # the server has it no more
    assert await mine.received() == (1, 0)
    assert mine.deliveries.had == mine.deliveries.last == 2
    for _ in range(2):
        mine.deliveries.begin_anew()
        assert mine.announced(1, 1, 0) is None  # it is at work
    assert mine.announced(2, 2, 0) is None
    assert await mine.received() == (2, 0)


async def test_a_dispatch_that_is_read_after_its_reply_was_taken_is_dropped() -> None:
    """It can be in the stream of a new outbox while the reply goes, and is answered, beside it."""
    mine = Process()
    mine.announced(1, 0, 4)
    assert await mine.received() == (0, 4)
    mine.deliveries.replied((0, 4))
    for dispatch in (4, 3, 5):
        mine.announced(2, 0, dispatch)
    assert await mine.received() == (0, 5)


async def test_nothing_is_remembered_of_what_is_replied_to_but_its_number() -> None:
    mine = Process()
    spoilt = mine.announced(1, 2, 0, large=True)
    assert spoilt is not None
    mine.deliveries.fetched(spoilt, memoryview(b"spoilt"))
    assert [header.client for header in mine.faults] == [2]
    mine.announced(2, 0, 0)
    assert mine.deliveries.held_s((0, 0)) >= 0
    for key in ((0, 0), (2, 0)):
        mine.deliveries.replied(key)
    assert mine.deliveries._in_hand == {}
    assert mine.deliveries._held_bytes == 0
    assert mine.deliveries.held_s((0, 0)) == 0


async def test_a_large_frame_does_not_wait_for_small_ones_that_come_after_it() -> None:
    """They are handed over after it."""
    mine = Process(HttpLimits(inbox_bytes=100))
    large = mine.announced(1, 0, 0, large=True)
    assert large is not None
    for number in range(2, 5):
        header = Header(-1, number, 1, "train", 0, 0)
        assert not mine.deliveries.announced(Arrival(header, number, bytes(60)))
    await asyncio.wait_for(mine.deliveries.room(), 5)


class Bringing:
    """Replies of a client process, and what it has done with them."""

    def __init__(self) -> None:
        self.uploads: list[Reply] = []
        self.waking = 0
        self.given: list[tuple[int, ...]] = []
        self.replies = Replies(LIMITS, None, self.given.append, self.upload, self.wake)

    def wake(self) -> None:
        self.waking += 1

    async def upload(self, reply: Reply) -> None:
        self.uploads.append(reply)
        await self.uploaded.wait()

    async def add(self, *replies: Reply) -> None:
        self.tasks += [asyncio.ensure_future(self.replies.bring(reply)) for reply in replies]
        await settled()

    async def __aenter__(self) -> Bringing:
        self.uploaded = asyncio.Event()
        self.tasks: list[asyncio.Future[None]] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def sized(client: int, dispatch: int, num_bytes: int) -> Reply:
    return Reply((client, dispatch), Frame(bytes(num_bytes), num_bytes))


async def test_of_each_client_one_reply_is_under_way() -> None:
    async with Bringing() as mine:
        first, second, third = sized(0, 0, 10), sized(0, 1, 100_000), sized(0, 2, 10)
        other = sized(1, 0, 10)
        await mine.add(first, second, third, other)
        assert mine.given == [(0, 0), (0, 1), (0, 2), (1, 0)]
        assert mine.replies.batch()[0] == [first, other]
        assert not mine.uploads
        mine.replies.taken([first])
        await settled()
        assert (mine.uploads, mine.replies.batch()) == ([second], ([], b""))
        mine.uploaded.set()
        mine.replies.taken([other])
        await settled()
        assert mine.replies.batch()[0] == [third]
        assert mine.waking == 3


async def batches(replies: list[Reply]) -> list[int]:
    """Return the lengths of the requests in which replies travel."""
    lengths = []
    async with Bringing() as mine:
        await mine.add(*replies)
        while (batch := mine.replies.batch())[0]:
            lengths.append(len(batch[1]))
            mine.replies.taken(batch[0])
            await settled()
    return lengths


async def test_a_batch_is_bounded() -> None:
    lengths = await batches([sized(client, 0, 60_000 if client < 20 else 10) for client in range(2000)])
    assert max(lengths) <= LIMITS.batch_bytes
    assert len(lengths) < 20


async def test_a_batch_is_bounded_whatever_is_told_beside_frames() -> None:
    faults = [Reply((client, 0), fault="\N{GRINNING FACE}" * 1024) for client in range(200)]
    lengths = await batches(faults + [Reply((client, 1), notes="x" * 8192) for client in range(200)])
    assert LIMITS.batch_bytes * 0.8 < max(lengths) <= LIMITS.batch_bytes


async def test_what_is_on_its_way_has_not_come_though_a_new_session_numbers_in_another_order() -> None:
    mine = Process()
    fetched = [mine.announced(number, client, 0, large=True) for number, client in ((1, 1), (2, 0))]
    mine.deliveries.begin_anew()
    for number, client in ((1, 0), (2, 1)):
        assert mine.announced(number, client, 0, large=True) is None
    assert mine.deliveries.had == 0
    assert fetched[0] is not None
    mine.deliveries.fetched(fetched[0], None)
    assert mine.deliveries.had == 0
