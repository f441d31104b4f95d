"""A client process: states that outlive it, and answers that are the same when they are given twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Delivery, Header
from fedsim.bus.reply_report import Note
from fedsim.clock import RecordKind, Trace
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import FileError, InvariantError, RunError, UserError
from fedsim.runtime.clients.host import Held
from fedsim.runtime.purity import fingerprint
from fedsim.runtime.sockets import join, state_encoding
from fedsim.runtime.sockets.remote_states import QUESTION
from fedsim.wire import SERVER

FolderStore: Any = join.FolderStore  # these tests have connections and folders of their own
host: Any = join.host


class Shelf:
    """A folder of states in memory; notes the order of things."""

    def __init__(self, events: list[str]) -> None:
        self.states: dict[int, bytes] = {}
        self.events = events

    def get(self, client: int) -> bytes | None:
        return self.states.get(client)

    def put(self, client: int, state: bytes) -> None:
        self.events.append(f"put {client}")
        self.states[client] = state


class Connection:
    """What a server sends, by script; ends when so many replies have come."""

    handler: Callable[[int, bytes], Awaitable[bytes]]

    def __init__(self, headers: list[Header], events: list[str], replies: int) -> None:
        self.headers = list(headers)
        self.events = events
        self.left = replies
        self.done = asyncio.Event()
        self.sent: list[tuple[Header, Any]] = []
        self.reports: list[Any] = []
        self.message: Any = None

    async def receive(self) -> Delivery:
        if not self.headers:
            await asyncio.Event().wait()
        return Delivery(self.headers.pop(0), self.message)

    def send(self, header: Header, message: Any) -> Awaitable[None]:
        self.events.append(f"reply {header.sender}")
        self.sent.append((header, message))
        self.reports.append(self.reporter(header))
        self.left -= 1
        if not self.left:
            self.done.set()
        return asyncio.sleep(0)

    def on_probe(self, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handler = handler

    def on_reply(self, reporter: Callable[[Header], Any]) -> None:
        self.reporter = reporter

    async def over(self) -> None:
        await self.done.wait()


def ask(client: int, dispatch: int, merged: int = -1) -> Header:
    return Header(SERVER, client, 1, "talk", dispatch, dispatch, merged)


def play(world: Any, headers: list[Header], shelf: Any = None) -> tuple[Any, Connection]:
    algorithm = world.Scripted()

    async def main() -> Connection:
        events = shelf.events if shelf is not None else []
        connection = Connection(headers, events, len(headers))
        await host(world.make_parts(algorithm), connection, folder=shelf)
        return connection

    return algorithm, asyncio.run(asyncio.wait_for(main(), 120))


def test_hosts_until_the_run_is_over(world: Any) -> None:
    algorithm, connection = play(world, [ask(0, 0), ask(2, 0), ask(0, 1, merged=0)])
    assert sorted(header.sender for header, _ in connection.sent) == [0, 0, 2]
    assert (0, 1, world.Diary((0,), 0)) in algorithm.diaries


def test_a_state_is_safe_before_the_reply_leaves(world: Any) -> None:
    shelf = Shelf([])
    play(world, [ask(1, 0)], shelf)
    assert shelf.events == ["put 1", "reply 1"]


@pytest.mark.parametrize(("merged", "mirror"), [(0, 0), (-1, -1)])
def test_another_process_takes_the_state_up(merged: int, mirror: int, world: Any) -> None:
    shelf = Shelf([])
    play(world, [ask(1, 0)], shelf)
    algorithm, _ = play(world, [ask(1, 1, merged)], shelf)
    assert algorithm.diaries == [(1, 1, world.Diary((0,), mirror))]


def test_without_a_folder_it_begins_anew(world: Any) -> None:
    play(world, [ask(1, 0)])
    algorithm, _ = play(world, [ask(1, 1, 0)])
    assert algorithm.diaries == [(1, 1, world.Diary((), -1))]


def test_what_is_in_the_folder_must_be_a_state(world: Any) -> None:
    for spoilt in (b"rubbish", state_encoding.encode((1, 2))):
        shelf = Shelf([])
        shelf.states[1] = spoilt
        with pytest.raises(UserError, match=r"state of client 1 .*another folder"):
            play(world, [ask(1, 0)], shelf)


def test_a_store_brings_back_what_it_was_given(world: Any) -> None:
    shelf = Shelf([])
    store = FolderStore(shelf, world.make_parts(world.Scripted()))
    assert store.load(0) is None
    held = Held(4, world.Diary((1, 2), 3), world.Diary((1, 2), -1))
    store.save(0, held)
    assert store.load(0) == held


def test_optimisers_outlive_a_process(world: Any) -> None:
    """Killed after an answer, it goes on as if it had not been; killed before, it answers the same again."""

    def counting(shelf: Any, headers: list[Header]) -> list[Any]:
        kept: list[Any] = []

        async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
            kept.append((await client.fit(client.initial_model())).states["model"])
            return None, world.word()

        parts = world.make_parts(
            world.Scripted(local=local, join=lambda client: None),
            training=TrainingConfig(lr=0.1, optimiser="adam", keep_optimiser=True),
            executor=THREADS(ExecutorConfig()),
        )
        connection = Connection(headers, [], len(headers))
        asyncio.run(asyncio.wait_for(host(parts, connection, folder=shelf), 120))
        return kept

    shelf = Shelf([])
    (first,) = counting(shelf, [ask(1, 0)])
    before = dict(shelf.states)
    (second,) = counting(shelf, [ask(1, 1)])
    assert [
        next(float(one[name]) for name in one if name.startswith("steps/")) for one in (first, second)
    ] == [1, 2]
    shelf.states = before
    (again,) = counting(shelf, [ask(1, 1)])
    whole = counting(None, [ask(1, 0), ask(1, 1)])
    assert fingerprint([first, second]) == fingerprint(whole)
    assert fingerprint(second) == fingerprint(again)


def test_probes_get_what_a_client_holds(world: Any) -> None:
    async def main() -> None:
        parts = world.make_parts(world.Scripted())
        connection = Connection([ask(1, 0)], [], 2)
        hosting = asyncio.create_task(host(parts, connection))
        while not connection.sent:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        held = state_encoding.decode(await connection.handler(1, QUESTION), (Held, world.Diary))
        assert held == Held(0, world.Diary((0,), 0), world.Diary((0,), -1))
        assert await connection.handler(0, QUESTION) == b""
        assert await connection.handler(1, b"something else") == b""
        connection.done.set()
        await hosting

    asyncio.run(asyncio.wait_for(main(), 120))


def test_optimisers_stay_here_when_a_client_is_probed(world: Any) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        await client.fit(client.initial_model())
        return world.Diary((client.dispatch,), client.dispatch), None

    async def main() -> tuple[Held, Held]:
        parts = world.make_parts(
            world.Scripted(local=local),
            training=TrainingConfig(lr=0.1, momentum=0.9, keep_optimiser=True),
            executor=THREADS(ExecutorConfig()),
        )
        shelf, connection = Shelf([]), Connection([ask(1, 0)], [], 1)
        await host(parts, connection, folder=shelf)
        told = await connection.handler(1, QUESTION)  # what it holds is there still
        return state_encoding.decode_held(shelf.states[1], (world.Diary,)), state_encoding.decode_held(
            told, (world.Diary,)
        )

    kept, told = asyncio.run(asyncio.wait_for(main(), 120))
    assert kept.optimisers
    assert told == replace(kept, optimisers={})


def test_a_state_that_cannot_travel_ends_the_process(world: Any) -> None:
    async def main() -> None:
        async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
            return [1, 2], None

        parts = world.make_parts(world.Scripted(local=local))
        connection = Connection([ask(1, 0)], [], 2)
        hosting = asyncio.create_task(host(parts, connection))
        while not connection.sent:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(RunError):
            await connection.handler(1, QUESTION)
        with pytest.raises(RunError, match=r"client 1: .*list"):
            await hosting

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_state_that_cannot_be_read_for_the_observer_ends_the_process(world: Any) -> None:
    class Unreadable(Shelf):
        def get(self, client: int) -> bytes | None:
            raise FileError("cannot read states/0")

    async def main() -> None:
        connection = Connection([], [], 1)
        hosting = asyncio.create_task(
            host(world.make_parts(world.Scripted()), connection, folder=Unreadable([]))
        )
        while not hasattr(connection, "handler"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(FileError):
            await connection.handler(0, QUESTION)
        with pytest.raises(FileError, match="cannot read states/0"):
            await hosting

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_hook_that_fails_ends_the_process(world: Any) -> None:
    async def main() -> None:
        async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
            raise RunError("no use")

        with pytest.raises(RunError, match="no use"):
            await host(world.make_parts(world.Scripted(local=local)), Connection([ask(1, 0)], [], 1))

    asyncio.run(asyncio.wait_for(main(), 120))


def test_what_clients_note_is_reported_with_their_next_answer(world: Any) -> None:
    said: list[tuple[str, dict[str, Any]]] = []

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        if not client.client:
            client.note("ordinary", dispatch_=client.dispatch)
            client.warn("careful", why="it is a test")
        return None, None

    async def main() -> Connection:
        connection = Connection([ask(0, 0), ask(1, 0), ask(0, 1)], [], 3)
        parts = world.make_parts(world.Scripted(local=local))
        await host(parts, connection, warn=lambda event, **values: said.append((event, values)))
        return connection

    connection = asyncio.run(asyncio.wait_for(main(), 120))
    told = {(header.sender, header.dispatch): report.notes for (header, _), report in _pairs(connection)}
    careful = Note("warning", "careful", {"why": "it is a test"})
    assert {of: list(notes) for of, notes in told.items()} == {
        (0, 0): [Note("info", "ordinary", {"dispatch_": 0}), careful],
        (0, 1): [Note("info", "ordinary", {"dispatch_": 1}), careful],
        (1, 0): [],
    }
    assert said == [("careful", {"client": 0, "why": "it is a test"})] * 2  # here, what matters alone


def _pairs(connection: Connection) -> Any:
    return zip(connection.sent, connection.reports, strict=True)


def test_how_long_jobs_ran_is_reported(world: Any) -> None:
    _, connection = play(world, [ask(0, 0), ask(1, 0)])
    assert all(report.compute_ns > 0 for report in connection.reports)


@pytest.mark.parametrize("verify", [True, False])
def test_under_verify_a_hook_may_not_change_what_it_was_given(verify: bool, world: Any) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        message += 1
        return None, None

    async def main() -> None:
        connection = Connection([ask(1, 0)], [], 1)
        connection.message = np.zeros(3)
        await host(world.make_parts(world.Scripted(local=local), verify=verify), connection)

    if verify:
        with pytest.raises(InvariantError, match="hook local_talk changed its argument 1, a ndarray"):
            asyncio.run(asyncio.wait_for(main(), 120))
    else:
        asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize("verify", [True, False])
def test_under_verify_every_job_must_have_an_end(
    verify: bool, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Trace.record

    def without_ends(trace: Trace, kind: RecordKind, *values: Any) -> None:
        if kind.name != "job_end":
            record(trace, kind, *values)

    async def main() -> None:
        await host(world.make_parts(world.Scripted(), verify=verify), Connection([ask(1, 0)], [], 1))

    monkeypatch.setattr(Trace, "record", without_ends)
    if verify:
        with pytest.raises(InvariantError, match=r"jobs began and never ended: \[\('job', 1, 0, "):
            asyncio.run(asyncio.wait_for(main(), 120))
    else:
        asyncio.run(asyncio.wait_for(main(), 120))
