"""What has come to a client process and is not handed over, and what it has not got rid of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fedsim.bus import Header
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Reply
from fedsim.bus.http.pending import Arrival, Deliveries, Replies
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
        arrival = Arrival(header, number, is_coming=large)
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


async def test_a_large_frame_waits_for_large_ones_before_it_and_for_no_small_ones_after_it() -> None:
    mine = Process(HttpLimits(inbox_bytes=100))
    large = mine.announced(1, 0, 0, large=True)
    assert large is not None
    for number in range(2, 5):  # they are handed over after it
        header = Header(-1, number, 1, "train", 0, 0)
        assert not mine.deliveries.announced(Arrival(header, number, bytes(60)))
    await asyncio.wait_for(mine.deliveries.room(), 5)
    mine.deliveries.fetched(large, memoryview(bytes(200)))
    waiting = asyncio.ensure_future(mine.deliveries.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    mine.deliveries.replied((0, 0))
    await asyncio.wait_for(waiting, 5)


async def nothing(reply: Reply) -> None: ...


@asynccontextmanager
async def bringing(*given: Reply, upload: Any = nothing, safe: Any = len) -> AsyncIterator[Replies]:
    """Bring replies; ``upload`` and ``safe`` are what they are to :class:`Replies`."""
    replies = Replies(LIMITS, None, safe, upload, lambda: None)
    tasks = [asyncio.ensure_future(replies.bring(reply)) for reply in given]
    await settled()
    yield replies
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def sized(client: int, dispatch: int, num_bytes: int) -> Reply:
    return Reply((client, dispatch), Frame(bytes(num_bytes), num_bytes))


async def test_of_each_client_one_reply_is_under_way() -> None:
    first, second, third, other = sized(0, 0, 10), sized(0, 1, 100_000), sized(0, 2, 10), sized(1, 0, 10)
    safe, uploads, uploaded = list[tuple[int, ...]](), list[Reply](), asyncio.Event()

    async def upload(reply: Reply) -> None:
        uploads.append(reply)
        await uploaded.wait()

    async with bringing(first, second, third, other, upload=upload, safe=safe.append) as replies:
        assert safe == [(0, 0), (0, 1), (0, 2), (1, 0)]
        assert replies.batch()[0] == [first, other]
        assert not uploads
        replies.taken([first])
        await settled()
        assert (uploads, replies.batch()) == ([second], ([], b""))
        uploaded.set()
        await settled()
        assert replies.batch()[0] == [third]


async def test_a_batch_is_bounded() -> None:
    given = [sized(client, 0, 60_000 if client < 20 else 10) for client in range(2000)]
    for client in range(200):  # and whatever is told beside frames
        given.append(Reply((client, 1), fault="\N{GRINNING FACE}" * 1024))
        given.append(Reply((client, 2), notes="x" * 8192))
    lengths = []
    async with bringing(*given) as replies:
        while (found := replies.batch())[0]:
            lengths.append(len(found[1]))
            replies.taken(found[0])
            await settled()
    assert LIMITS.batch_bytes * 0.8 < max(lengths) <= LIMITS.batch_bytes
    assert len(lengths) <= 20


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
