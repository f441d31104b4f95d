"""A client process: states that outlive it, and replies that are the same when they are given twice."""

import json
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim import clock
from fedsim.bus import Header
from fedsim.bus.reply_report import MAX_NOTES, Note, Report, written
from fedsim.clock import RecordKind, Trace
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import FileError, InvariantError, RunError, UserError
from fedsim.runtime import state_encoding
from fedsim.runtime.clients.held import Held
from fedsim.runtime.purity import fingerprint
from fedsim.runtime.sockets.join import FolderStore, MemoryStore, Reports
from fedsim.runtime.sockets.serve import QUESTION
from fedsim.wire import SERVER
from tests.bus.http.conftest import World
from tests.runtime.sockets.conftest import hosted

Asks = list[tuple[int, int, int]]
"""Client, dispatch, and the newest dispatch that was merged."""


class Shelf(dict[int, bytes]):
    """A folder of states in memory: the newest of each client."""

    def __init__(self, states: Mapping[int, bytes] | None = None) -> None:
        super().__init__(states or {})
        self.kept = [(client, -1, state) for client, state in self.items()]

    def put(self, client: int, dispatch: int, state: bytes) -> None:
        self.kept.append((client, dispatch, state))
        self[client] = state

    @property
    def versions(self) -> "Shelf":
        return self

    def rewind(self, client: int, dispatch: int) -> None:
        self.kept = [each for each in self.kept if each[0] != client or each[1] < dispatch]
        self.clear()
        self.update({client: state for client, _, state in self.kept})


def play(
    parts: Any, asks: Asks, shelf: Any = None, *, message: Any = None, **options: Any
) -> tuple[World, list[bytes]]:
    """Let a process host all clients; return the server's side, states of clients 0 to 2, an answer."""

    def change(client: Any) -> None:
        send = client.send

        def sent(header: Header, reply: Any) -> Any:
            assert shelf is None or header.sender in shelf  # a state is safe before the reply
            return send(header, reply)

        client.send = sent

    async def ask(world: World) -> tuple[World, list[bytes]]:
        for number, dispatch, merged in asks:
            world.server.send(Header(SERVER, number, 1, "talk", dispatch, dispatch, merged), message)
        for _ in asks:
            await world.inbox.get()
        questions = [(0, QUESTION), (1, QUESTION), (2, QUESTION), (1, b"something else")]
        return world, [await world.server.probe(number, question, 60.0) for number, question in questions]

    return hosted(parts, lambda: parts, ["0-2"], ask, change=change, shelf=shelf, **options)


def test_states_in_memory_go_back_with_the_server() -> None:
    store = MemoryStore()
    for client, dispatch in ((0, 1), (0, 3), (0, 6), (1, 0)):
        store.save(client, Held(dispatch, (client, dispatch), None))
    store.versions.go_back({0: 4})
    held = [store.load(client) for client in range(3)]
    assert [one and one.merged for one in held] == [(0, 3), None, None]
    store.rewind(0, 3)
    store.save(0, Held(3, "again", None))
    again = store.load(0)
    assert again is not None
    assert again.merged == "again"


def test_hosts_until_the_run_is_over(world: Any) -> None:
    algorithm = world.Scripted()
    sockets, probed = play(world.make_parts(algorithm), [(0, 0, -1), (2, 0, -1), (0, 1, 0)])
    computed_ns = {record[2:4]: record[5] for record in sockets.trace.kept if record[1] == "spent"}
    assert sorted(computed_ns) == [(0, 0), (0, 1), (2, 0)]
    assert min(computed_ns.values()) > 0  # how long jobs ran
    assert (0, 1, world.Diary((0,), 0)) in algorithm.diaries
    held = state_encoding.decode(probed[2], (Held, world.Diary))
    assert held == Held(0, world.Diary((0,), 0), world.Diary((0,), -1))
    assert (probed[1], probed[3]) == (b"", b"")


@pytest.mark.parametrize(("merged", "mirror"), [(0, 0), (-1, -1)])
def test_another_process_takes_the_state_up(merged: int, mirror: int, world: Any) -> None:
    for shelf, diary in ((Shelf(), world.Diary((0,), mirror)), (None, world.Diary((), -1))):
        play(world.make_parts(world.Scripted()), [(1, 0, -1)], shelf)
        algorithm = world.Scripted()
        play(world.make_parts(algorithm), [(1, 1, merged)], shelf)
        assert algorithm.diaries == [(1, 1, diary)]


def test_a_store_brings_back_what_it_was_given_and_nothing_else(world: Any) -> None:
    shelf: Any = Shelf()
    store = FolderStore(shelf, world.make_parts(world.Scripted()))
    assert store.load(0) is None
    held = Held(4, world.Diary((1, 2), 3), world.Diary((1, 2), -1))
    store.save(0, held)
    assert store.load(0) == held
    for spoilt in (b"rubbish", state_encoding.encode((1, 2))):
        shelf[1] = spoilt
        with pytest.raises(UserError, match=r"state of client 1 .*another folder"):
            store.load(1)


def test_optimisers_outlive_a_process(world: Any) -> None:
    """Killed after a reply, it goes on as if it had not been; killed before, it replies the same again."""

    def counting(shelf: Any, asks: Asks) -> tuple[list[Any], list[bytes]]:
        kept: list[Any] = []

        async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
            kept.append((await client.fit(client.initial_model())).states["model"])
            return None, world.word()

        parts = world.make_parts(
            world.Scripted(local=local, join=lambda client: None),
            training=TrainingConfig(lr=0.1, optimiser="adam", keep_optimiser=True),
            executor=THREADS(ExecutorConfig()),
        )
        _, probed = play(parts, asks, shelf)
        return kept, probed

    def steps(state: Any) -> float:
        return next(float(state[name]) for name in state if name.startswith("steps/"))

    shelf = Shelf()
    (first,), probed = counting(shelf, [(1, 0, -1)])
    before = Shelf(shelf)
    held = state_encoding.decode_held(before[1], ())
    assert held.optimisers
    told = state_encoding.decode_held(probed[1], ())  # optimisers stay here, whatever is asked
    assert told == replace(held, optimisers={})
    (second,), _ = counting(shelf, [(1, 1, -1)])
    assert (steps(first), steps(second)) == (1, 2)
    (again,), _ = counting(before, [(1, 1, -1)])
    whole, _ = counting(None, [(1, 0, -1), (1, 1, -1)])
    assert fingerprint([first, second]) == fingerprint(whole)
    assert fingerprint(second) == fingerprint(again)
    (repeated,), _ = counting(shelf, [(1, 1, -1)])  # its reply has not arrived
    assert fingerprint(second) == fingerprint(repeated)
    (anew,), _ = counting(shelf, [(1, 0, -1)])
    assert fingerprint(first) == fingerprint(anew)


def test_what_cannot_go_on_ends_the_process(world: Any) -> None:
    async def fails(exchange: str, client: Any, state: Any, message: Any) -> Any:
        raise RunError("no use")

    async def lists(exchange: str, client: Any, state: Any, message: Any) -> Any:
        return [1, 2], None

    class Unreadable(Shelf):
        def get(self, *_: Any) -> Any:
            raise FileError("cannot read states/0")

    ends: list[tuple[type[Exception], str, dict[str, Any], Asks, Any]] = [
        (RunError, "no use", {"local": fails}, [(1, 0, -1)], None),  # a hook that fails
        (RunError, r"client 1: .*list", {"local": lists}, [(1, 0, -1)], None),  # a state that cannot travel
        (FileError, "cannot read states/0", {}, [], Unreadable()),  # as the observer asks for it
    ]
    for error, said, hooks, asks, shelf in ends:
        with pytest.raises(error, match=said):
            play(world.make_parts(world.Scripted(**hooks)), asks, shelf)


def test_what_clients_note_is_reported_with_their_next_reply(world: Any) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        if not client.client:
            client.note("ordinary", dispatch_=client.dispatch)
            client.warn("careful", why="it is a test")
        return None, None

    said: list[tuple[str, dict[str, Any]]] = []
    sockets, _ = play(
        world.make_parts(world.Scripted(local=local)),
        [(0, 0, -1), (1, 0, -1), (0, 1, -1)],
        warn=lambda event, **values: said.append((event, values)),
    )
    careful = {"client": 0, "why": "it is a test"}
    assert sockets.log.of("ordinary") == [
        {"client": 0, "dispatch_": dispatch, "told_by": "client"} for dispatch in range(2)
    ]
    assert sockets.log.of("careful") == [{**careful, "told_by": "client"}] * 2
    assert sockets.log.warned == ["careful"] * 2
    assert said == [("careful", careful)] * 2  # here, what matters alone


def test_what_is_checked_under_verify_alone(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        object.__setattr__(message, "note", message.note + 1)
        return None, None

    record = Trace.record

    def without_ends(trace: Trace, kind: RecordKind, *values: Any) -> None:
        if kind.name != "job_end":
            record(trace, kind, *values)

    def changing(verify: bool) -> None:
        play(world.make_parts(world.Scripted(local=local), verify=verify), [(1, 0, -1)], message=world.word())

    def endless(verify: bool) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Trace, "record", without_ends)
            play(world.make_parts(world.Scripted(), verify=verify), [(1, 0, -1)])

    for broken, said in (
        (changing, "hook local_talk changed its argument 1"),
        (endless, r"jobs began and never ended: \[\('job', 1, 0, "),
    ):
        broken(False)
        with pytest.raises(InvariantError, match=said):
            broken(True)


START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))


def reply(client: int, dispatch: int) -> Header:
    return Header(client, -1, 1, "talk", dispatch, dispatch)


@pytest.mark.parametrize(
    ("records", "spent_s"),
    [
        ([(1, "+", 0, 0), (3, "-", 0, 0), (10, "+", 0, 0), (11, "-", 0, 0)], {(0, 0): 3}),
        ([(1, "+", 0, 0), (2, "+", 0, 0), (3, "-", 0, 0), (5, "-", 0, 0)], {(0, 0): 4}),
        (
            [(1, "+", 0, 0), (1, "+", 1, 0), (2, "-", 0, 0), (2, "+", 0, 1), (4, "-", 1, 0), (7, "-", 0, 1)],
            {(0, 0): 1, (1, 0): 3, (0, 1): 5, (2, 0): 0},
        ),
        ([(1, "+", 0, 0), (2, "?", 0, 0), (3, "-", 0, 0)], {(0, 0): 0}),
    ],
    ids=["one after the other", "at the same time", "of several dispatches", "told before the end"],
)
def test_how_long_jobs_ran(records: Any, spent_s: dict[tuple[int, int], int]) -> None:
    """Each begins (+) or ends (-) at an instant in s, or its report is asked for (?)."""
    trace = Trace()
    reports = Reports(trace)

    async def main() -> None:
        for at_s, edge, client, dispatch in records:
            await clock.sleep_until(at_s)
            if edge == "+":
                trace.record(START, client, dispatch, "fit", 1.0, 1.0)
            elif edge == "-":
                trace.record(END, client, dispatch, "fit", "done")
            else:
                assert reports.take(reply(client, dispatch)).compute_ns == 0

    clock.run(main())
    for of, seconds in spent_s.items():
        told = reports.take(reply(*of))
        count = sum(edge == "+" and (client, dispatch) == of for _, edge, client, dispatch in records)
        if "?" not in [edge for _, edge, *_ in records]:
            assert (told.num_jobs, told.flops) == (count, float(count))
        assert told.compute_ns == seconds * 1_000_000_000
        assert reports.take(reply(*of)) == Report()  # it was told


def test_notes_go_with_the_next_reply_of_their_client_and_keep_nothing_alive() -> None:
    reports, chosen, array = Reports(Trace()), [1, 2], np.arange(3)
    gone = weakref.ref(array)
    reports.warn("careful", client=1, why="so", weights=array)
    reports.note("ordinary", client=2)
    reports.note("more", client=1, clients=chosen)
    chosen.append(3)
    del array
    assert gone() is None
    assert list(reports.take(reply(1, 4)).notes) == [
        Note("warning", "careful", {"why": "so", "weights": "[0 1 2]"}),
        Note("info", "more", {"clients": "[1, 2]"}),
    ]
    assert list(reports.take(reply(1, 5)).notes) == []
    assert list(reports.take(reply(2, 0)).notes) == [Note("info", "ordinary", {})]


def test_notes_without_end_are_bounded_and_counted() -> None:
    reports = Reports(Trace())
    for number in range(10_000):
        reports.note("again", client=0, number=number)
    reports.note("once", client=1)
    report = reports.take(reply(0, 0))
    assert [note.values["number"] for note in report.notes] == list(range(MAX_NOTES))
    assert report.left_out == 9_984
    last = json.loads(written(report.notes, report.left_out) or "")[-1]
    assert last == ["warning", "notes left out", {"count": 9_984}]
    assert reports.take(reply(1, 0)).left_out == 0  # each client has its own
    reports.note("again", client=0)
    assert reports.take(reply(0, 1)) == Report(notes=[Note("info", "again", {})])  # and it was told
