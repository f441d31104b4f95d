"""The rules of a session, alone; then a model of both sides over a link that breaks."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedsim.bus import Header
from fedsim.bus.http.session import (
    FROM_CLIENT,
    FROM_SERVER,
    Inbox,
    Outbox,
    SessionError,
    TokenBucket,
    encode,
    header_of,
    header_values,
    parse,
)

HEADER = Header(-1, 3, 2, "train", 5, 4, -1)


def test_an_outbox_numbers_keeps_and_settles() -> None:
    box: Outbox[str] = Outbox(100, 10)
    assert [box.add(item, 10) for item in "abc"] == [1, 2, 3]
    assert (len(box), box.num_bytes, box.last, box.base) == (3, 30, 3, 0)
    assert box.settle(2) == "b"
    assert box.settle(2) is None
    assert box.replay(0) == [1, 3]
    assert box.replay(1) == [3]
    assert box.acknowledge(2) == [(1, "a")]
    assert (box.base, box.num_bytes, list(box)) == (2, 10, [(3, "c")])
    assert (box.get(3), box.get(1)) == ("c", None)
    for call in (box.acknowledge, box.replay):
        with pytest.raises(SessionError, match="the last sent is 3"):
            call(4)
    box.skip_to(9)
    assert box.add("d", 1) == 10


def test_an_outbox_is_bounded_and_takes_one_of_any_length() -> None:
    box: Outbox[str] = Outbox(100, 2)
    box.add("long", 1000)
    assert not box.fits(1)
    with pytest.raises(OverflowError):
        box.add("b", 1)
    box.settle(1)
    box.add("a", 60)
    assert not box.fits(41)
    box.add("b", 40)
    assert not box.fits(0)  # two are enough


def test_what_deliveries_share_counts_once() -> None:
    box: Outbox[str] = Outbox(100, 10)
    box.add("a", 1, "model", 80)
    assert not box.fits(20)
    assert box.fits(19, "model", 80)
    assert not box.fits(1, "other", 80)
    box.add("b", 1, "model", 80)
    assert box.num_bytes == 82
    box.settle(1)
    assert box.num_bytes == 81
    box.settle(2)
    assert box.num_bytes == 0


def test_an_inbox_takes_each_number_once_in_order() -> None:
    box = Inbox()
    assert [box.accept(number) for number in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    for number in (0, -1, 5):
        with pytest.raises(SessionError):
            box.accept(number)
    gaps = Inbox(gaps=True)
    assert [gaps.accept(number) for number in (4, 2, 9)] == [True, False, True]


def test_a_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    bucket = TokenBucket(10.0, 3, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(0.1) for _ in range(2)] == [True, False]
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]


def test_messages_go_there_and_back() -> None:
    said = parse(encode("send", n=7, h=header_values(HEADER), a=2, c=9) + b"frame", FROM_SERVER)
    assert (said.word, said.values["n"], bytes(said.body)) == ("send", 7, b"frame")
    assert header_of(said.values["h"]) == HEADER


@pytest.mark.parametrize(
    ("data", "words", "problem"),
    [
        (
            encode("welcome", resumed=True, last=0, run="0" * 32, finished=False),
            FROM_CLIENT,
            "'welcome' is no",
        ),
        (encode("ready"), FROM_SERVER, "'ready' is no"),
        (encode("ack"), FROM_CLIENT, "the fields are"),
        (encode("ack", n=1, m=2), FROM_CLIENT, "the fields are"),
        (encode("ack", n=-1), FROM_CLIENT, "ack.n: -1"),
        (encode("ack", n=1.0), FROM_CLIENT, "ack.n: 1.0"),
        (encode("ack", n=1) + b"x", FROM_CLIENT, "1 bytes follow"),
        (encode("none", n=1, a=0, h=(0, 1, 0, "", 0, 0, 0)), FROM_CLIENT, "none.h"),
        (encode("none", n=1, a=0, h=(-1, -1, 0, "", 0, 0, 0)), FROM_CLIENT, "none.h"),
        (b"", FROM_CLIENT, "end within"),
        (b"\x81\xa1", FROM_CLIENT, "end within"),
        (b"\x01", FROM_CLIENT, "a message is a map"),
        (b"\xc1", FROM_CLIENT, "not a message"),
        (b"\x82\xa1t\xa3ack\xa1t\xa3ack", FROM_CLIENT, "twice"),
        (b"\x91" * 3000, FROM_CLIENT, "nested|not a message"),
        (b"\xdf\xff\xff\xff\xff", FROM_CLIENT, "not a message"),
        (b"\x81\x01\x02", FROM_CLIENT, "not a message"),
    ],
)
def test_what_is_no_message(data: bytes, words: frozenset[str], problem: str) -> None:
    with pytest.raises(SessionError, match=problem):
        parse(data, words)


@given(st.binary(max_size=300), st.binary(max_size=50), st.integers(0, 200))
def test_any_bytes_are_a_message_or_a_session_error(noise: bytes, insert: bytes, at: int) -> None:
    valid = encode("send", n=7, h=header_values(HEADER), a=2, c=9) + b"frame"
    for data in (noise, valid[:at] + insert + valid[at:], valid[:at] + insert + valid[at + len(insert) :]):
        with suppress(SessionError):
            assert parse(data, FROM_CLIENT).word in FROM_CLIENT


class Sides(RuleBasedStateMachine):
    """Two sides that keep the rules, over two queues that are lost when the connection breaks.

    The server asks; the client answers what it has in hand, in any order; it may be killed, with a state
    folder or without. A connection never reorders, but what was under way when it broke is lost, and what is
    replayed may be there already.
    """

    @initialize()
    def begin(self) -> None:
        self.asked = 0
        self.unanswered: dict[int, int] = {}  # dispatch -> number, at the server
        self.taken: list[int] = []  # dispatches whose answers the server's actor saw
        self.server_out: Outbox[int] = Outbox(10**9, 8)
        self.server_in = Inbox()
        self.waiting: deque[int] = deque()
        self.seen: list[int] = []  # dispatches that the actor of the living process saw
        self.client_in = Inbox(gaps=True)
        self.client_out: Outbox[int] = Outbox(10**9, 8)
        self.in_hand: list[int] = []
        self.durable: list[int] = []  # answered, not acknowledged
        self.down: deque[tuple[int, int, int]] = deque()
        self.up: deque[tuple[int, int, int]] = deque()
        self.connected = False
        self.acknowledged: set[int] = set()

    @rule()
    def ask(self) -> None:
        self.waiting.append(self.asked)
        self.asked += 1
        self._fill()

    def _fill(self) -> None:
        while self.waiting and self.server_out.fits(1):
            dispatch = self.waiting.popleft()
            number = self.server_out.add(dispatch, 1)
            self.unanswered[dispatch] = number
            if self.connected:
                self.down.append((number, dispatch, self.server_in.last))

    @precondition(lambda self: self.down)
    @rule(copies=st.integers(1, 2))
    def arrive_down(self, copies: int) -> None:
        number, dispatch, acknowledged = self.down.popleft()
        for _ in range(copies):
            self._acknowledged(acknowledged)
            if not self.client_in.accept(number):
                continue
            if dispatch in self.in_hand or dispatch in self.durable:
                continue
            assert dispatch not in self.acknowledged, "what is acknowledged is not replayed"
            assert not self.seen or self.seen[-1] < dispatch or dispatch in self.replayed, "out of order"
            assert dispatch not in self.seen, "seen twice"
            self.seen.append(dispatch)
            self.in_hand.append(dispatch)

    replayed: tuple[int, ...] = ()

    def _acknowledged(self, number: int) -> None:
        for _, dispatch in self.client_out.acknowledge(number):
            self.durable.remove(dispatch)
            self.acknowledged.add(dispatch)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        dispatch = data.draw(st.sampled_from(self.in_hand))
        if not self.client_out.fits(1):
            return
        self.in_hand.remove(dispatch)
        self.durable.append(dispatch)
        number = self.client_out.add(dispatch, 1)
        if self.connected:
            self.up.append((number, dispatch, self.client_in.last))

    @precondition(lambda self: self.up)
    @rule(copies=st.integers(1, 2))
    def arrive_up(self, copies: int) -> None:
        number, dispatch, _ = self.up.popleft()
        for _ in range(copies):
            if self.server_in.accept(number) and dispatch in self.unanswered:
                self.server_out.settle(self.unanswered.pop(dispatch))
                self.taken.append(dispatch)
                self._fill()

    @precondition(lambda self: self.connected)
    @rule()
    def break_off(self) -> None:
        self.connected = False
        self.down.clear()
        self.up.clear()

    @precondition(lambda self: not self.connected)
    @rule()
    def connect(self) -> None:
        self.connected = True
        self.client_out.skip_to(self.server_in.last)
        self._acknowledged(self.server_in.last)
        for number in self.server_out.replay(self.client_in.last):
            dispatch = self.server_out.get(number)
            assert dispatch is not None
            self.down.append((number, dispatch, self.server_in.last))
        if self.lost_memory:  # an answer gets its number only now, above all that the server has had
            self.lost_memory = False
            for dispatch in self.durable:
                self.client_out.add(dispatch, 1)
        for number, dispatch in self.client_out:
            self.up.append((number, dispatch, self.client_in.last))

    lost_memory = False

    @rule(with_state=st.booleans())
    def kill(self, with_state: bool) -> None:
        """Kill the process; without state it begins a session of its own and takes the clients over."""
        self.break_off()
        self.client_in = Inbox(gaps=True)
        self.client_out = Outbox(10**9, 8)
        self.in_hand.clear()
        self.lost_memory = True
        self.replayed = tuple(self.unanswered)
        self.seen = []
        if not with_state:
            self.durable.clear()
            again = sorted(self.unanswered)
            box: Outbox[int] = Outbox(10**9, 8)
            self.unanswered = {dispatch: box.add(dispatch, 1) for dispatch in again}
            self.server_out, self.server_in = box, Inbox()

    @invariant()
    def each_answer_is_taken_once(self) -> None:
        if hasattr(self, "taken"):
            assert len(self.taken) == len(set(self.taken))

    @invariant()
    def outboxes_are_bounded(self) -> None:
        if hasattr(self, "taken"):
            assert len(self.server_out) <= 8
            assert len(self.client_out) <= 8

    def teardown(self) -> None:
        """Everything is answered in the end, once."""
        if not hasattr(self, "taken"):
            return
        for _ in range(6 * self.asked + 6):
            if not self.connected:
                self.connect()
            while self.down:
                self.arrive_down(1)
            while self.in_hand and self.client_out.fits(1):
                dispatch = self.in_hand.pop(0)
                self.durable.append(dispatch)
                self.up.append((self.client_out.add(dispatch, 1), dispatch, 0))
            while self.up:
                self.arrive_up(1)
            self._acknowledged(min(self.server_in.last, self.client_out.last))
        assert sorted(self.taken) == list(range(self.asked))
        assert len(self.server_out) == 0


Sides.TestCase.settings = settings(
    max_examples=settings().max_examples * 2, stateful_step_count=40, deadline=None
)
TestSides = Sides.TestCase
