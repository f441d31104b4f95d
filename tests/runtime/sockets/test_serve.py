"""A run in real time, over a stand-in for sockets: the same as in memory, and robust where it has to be."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, Predictor
from fedsim.bus import Delivery, Header, Ledger, Outcome
from fedsim.clock import Trace
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.errors import RunError
from fedsim.fleet import Fleet
from fedsim.params import Model
from fedsim.runtime.clients.host import Held
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.run import kinds_of, run
from fedsim.runtime.sockets import join, state_encoding
from fedsim.runtime.sockets import serve as serving
from fedsim.runtime.sockets.serve import unused
from fedsim.wire import Packed, decode, pack

host: Any = join.host  # these tests have connections of their own
serve: Any = serving.serve


class Inbox:
    def __init__(self) -> None:
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

    def put(self, delivery: Delivery) -> None:
        self._deliveries.put_nowait(delivery)

    async def receive(self) -> Delivery:
        return await self._deliveries.get()


class Middle(Inbox):
    """The server's side of a bus on one loop; frames cross as bytes."""

    def __init__(self, parts: Any, ledger: Ledger) -> None:
        super().__init__()
        self.kinds = kinds_of(parts)
        self.ledger = ledger
        self.hosts: dict[int, Side] = {}
        self.sent: deque[tuple[Header, Any]] = deque()
        self.probed: list[int] = []
        self.finished = asyncio.Event()

    def cross(self, header: Header, message: Any, inbox: Inbox) -> None:
        if message is None:
            inbox.put(Delivery(header, None))
            return
        packed = message if isinstance(message, Packed) else pack(message)
        frame = packed.frame(
            sender=header.sender, receiver=header.receiver, round=header.round, exchange=header.exchange
        ).join()
        row = self.ledger.sent(0, header, packed.kind, len(frame), packed.num_parameters, packed.is_data)
        self.ledger.ended(0, row, Outcome.DELIVERED)
        inbox.put(Delivery(header, decode(frame, self.kinds)[1]))

    def send(self, header: Header, message: Any) -> Awaitable[None]:
        if header.receiver in self.hosts:
            self.cross(header, message, self.hosts[header.receiver])
        left = asyncio.get_running_loop().create_future()
        left.set_result(None)
        return left

    def seal(self) -> None:
        self.sealed = True

    def attended(self, client: int) -> bool:
        return client in self.hosts

    async def attendance(self, clients: Collection[int]) -> None:
        while not all(client in self.hosts for client in clients):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def probe(self, client: int, question: bytes, timeout_s: float) -> bytes:
        self.probed.append(client)
        return await self.hosts[client].handler(client, question)


class Side(Inbox):
    """A client process's side."""

    handler: Callable[[int, bytes], Awaitable[bytes]]

    def __init__(self, middle: Middle, clients: Collection[int]) -> None:
        super().__init__()
        self.middle = middle
        self.clients = clients
        self.lost: list[Header] = []

    def send(self, header: Header, message: Any) -> Awaitable[None]:
        self.middle.cross(header, message, self.middle)
        left = asyncio.get_running_loop().create_future()
        left.set_result(None)
        return left

    def on_probe(self, handler: Callable[[int, bytes], Awaitable[bytes]]) -> None:
        self.handler = handler
        self.middle.hosts |= dict.fromkeys(self.clients, self)

    def on_reply(self, reporter: Callable[[Header], Any]) -> None:
        self.reporter = reporter

    async def over(self) -> None:
        await self.middle.finished.wait()


@dataclass
class Notes:
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def info(self, event: str, **values: Any) -> None:
        self.said.append((event, values))

    warning = info

    def of(self, event: str) -> list[dict[str, Any]]:
        return [values for name, values in self.said if name == event]


def play(
    make: Callable[[], Any],
    shares: Collection[Collection[int]],
    *,
    side: Callable[[Middle, Collection[int]], Side] = Side,
    log: Any = None,
    trace: Trace | None = None,
    **options: Any,
) -> tuple[Any, Middle]:
    """Run with a process, which is a task here, for each share of the clients."""

    async def main() -> tuple[Any, Middle]:
        parts, ledger = make(), Ledger()
        middle = Middle(parts, ledger)
        hosts = [asyncio.create_task(host(make(), side(middle, clients))) for clients in shares]
        told = trace or Trace(keep=True)
        try:
            result = await serve(parts, middle, ledger=ledger, trace=told, log=log, **options)
            middle.finished.set()
            await asyncio.gather(*hosts)
        finally:
            for one in hosts:
                one.cancel()
        return result, middle

    return asyncio.run(asyncio.wait_for(main(), 120))


def test_a_merge_that_leaves_the_finite_range_is_refused_here_too(world: Any) -> None:
    def doubled() -> Any:
        return np.full(3, 3e38, np.float32) * np.float32(2)

    async def local(exchange: str, client: Any, state: Any, message: Any) -> Any:
        both = [doubled(), await client.call(doubled, flops=1.0)]
        return state, world.word(float(np.isinf(both).all()))

    async def merge(exchange: str, server: Any, state: Any, replies: Any) -> Any:
        # Nowhere a warning, which would be an error here.
        assert [reply.message.values[0] for reply in replies] == [1, 1, 1]
        return (doubled(),) if server.round == 1 else state

    def make() -> Any:
        algorithm = world.Scripted(local=local, merge=merge)
        executor = THREADS(ExecutorConfig(workers=2))
        return world.make_parts(algorithm, executor=executor, rounds=2, verify=False)

    result, _ = play(make, [[0, 2], [1]])
    assert [(row.merged, row.rejected) for row in result.rounds] == [(0, 3), (3, 0)]
    (reason,) = result.rejections
    assert reason == "the merge of exchange 'talk' leaves the finite range: tuple[0] holds NaN or an infinity"
    assert result.non_finite is None


def test_the_same_models_and_bytes_as_in_memory(world: Any) -> None:
    def make() -> Any:
        return world.make_parts(
            world.Scripted(models_of=_by_diary), executor=world.Oracle(), rounds=3, verify=False
        )

    here = run(make())
    there, middle = play(make, [[0, 2], [1]])
    assert there.model_hash == here.model_hash
    assert replace(there.totals) == replace(here.totals)
    assert [row.merged for row in there.rounds] == [3, 3, 3]
    assert there.rounds[0].began_at_s < 10  # not the host's uptime
    assert 0 < there.simulated_s < 10
    assert sorted(set(middle.probed)) == [0, 1, 2]
    assert len(there.ledger) == 18  # probes have no row


def _by_diary(observer: Any, server: Any, client: Any) -> Mapping[str, Predictor]:
    """A model whose values are what the client has in its diary."""
    model = observer.initial_model()
    value = float(sum(client.pages) + 100 * client.mirror)
    params = {name: np.full_like(array, value) for name, array in model.params.items()}
    return {"personal": Predictor(Model(model.architecture, params))}


def test_nobody_attends_one_client(world: Any) -> None:
    notes = Notes()

    def make() -> Any:
        return world.make_parts(
            world.Scripted(models_of=_by_diary), executor=world.Oracle(), client_timeout_s=0.5, verify=False
        )

    result, middle = play(make, [[0, 2]], log=notes, wait_s=0.02)
    assert result.by_client["merged"].tolist() == [1, 0, 1]
    assert dict(result.drops) == {"timeout": 1}
    assert notes.of("clients missing") == [{"count": 1, "first": [1]}]
    assert set(middle.probed) == {0, 2}


def test_nobody_attends_at_all(world: Any) -> None:
    with pytest.raises(RunError, match="fedsim join"):
        play(lambda: world.make_parts(world.Scripted()), [], wait_s=0.01)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"rubbish", "no state"),
        (state_encoding.encode((1, 2)), "tuple where"),
        (state_encoding.encode(Held(0, Model("odd", {}), None)), "'odd'"),
        (state_encoding.encode(Held(0, Model("linear", {"head.weight": np.zeros(3)}), None)), "'linear'"),
        (b"", ""),
        (TimeoutError(), "does not answer"),
        (RunError("it is not well"), "not well"),
    ],
)
def test_what_is_no_state_is_measured_as_it_joined(answer: Any, said: str, world: Any) -> None:
    class Odd(Side):
        def on_probe(self, handler: Any) -> None:
            async def lie(client: int, question: bytes) -> bytes:
                if isinstance(answer, Exception):
                    raise answer
                return bytes(answer)

            super().on_probe(lie)

    notes = Notes()
    algorithm = world.Scripted()
    parts = world.make_parts(algorithm, executor=world.Oracle(), verify=False)
    play(lambda: parts, [[0, 1, 2]], side=Odd, log=notes)
    warned = notes.of("evaluated as it joined")
    assert bool(warned) == bool(said)
    assert all(said in one["reason"] for one in warned)
    assert algorithm.observed == dict.fromkeys(range(3), world.Diary((), -1))


def test_a_client_never_asked_is_not_probed(world: Any) -> None:
    parts = world.make_parts(
        world.Scripted(models_of=_by_diary), executor=world.Oracle(), clients_per_round=1, verify=False
    )
    result, middle = play(lambda: parts, [[0, 1, 2]])
    (asked,) = np.flatnonzero(result.by_client["asked"]).tolist()
    assert set(middle.probed) == {asked}


def test_a_process_that_comes_back_is_waited_for(world: Any) -> None:
    class Flaky(Middle):
        gone = 3

        async def probe(self, client: int, question: bytes, timeout_s: float) -> bytes:
            if self.gone:
                self.gone -= 1
                raise ConnectionError
            return await super().probe(client, question, timeout_s)

    async def main() -> None:
        parts = world.make_parts(world.Scripted(models_of=_by_diary), executor=world.Oracle(), verify=False)
        ledger, notes = Ledger(), Notes()
        middle = Flaky(parts, ledger)
        hosting = asyncio.create_task(host(parts, Side(middle, [0, 1, 2])))
        await serve(parts, middle, ledger=ledger, trace=Trace(), log=notes)
        assert middle.gone == 0
        assert not notes.of("evaluated as it joined")
        middle.finished.set()
        await hosting

    asyncio.run(asyncio.wait_for(main(), 120))


class Never:
    """Nobody is ever there."""

    is_constant = False

    def available(self, clients: Any, at_s: float) -> Any:
        return np.zeros(len(clients), bool)

    def look(self, client: int, at_s: float) -> tuple[bool, float]:
        return False, np.inf


def test_presence_of_the_scenario_plays_no_part(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), verify=False)
    fleet, never = parts.fleet, cast(Any, Never())
    away = replace(parts, fleet=Fleet(fleet.groups, fleet.server, fleet.server_model, never))
    assert unused(parts) is None
    assert "availability" in str(unused(away))
    notes = Notes()
    result, _ = play(lambda: away, [[0, 1, 2]], log=notes)
    assert [row.merged for row in result.rounds] == [3]
    assert len(notes.of("real time")) == 1


@pytest.mark.slow
def test_leases_and_deadlines_are_real(world: Any) -> None:
    class Mute(Side):
        def send(self, header: Header, message: Any) -> Awaitable[None]:
            if header.sender == 1:
                return asyncio.sleep(0)
            return super().send(header, message)

    pacing = SYNCHRONOUS(SYNCHRONOUS.Config.model_validate({"deadline": "1 s", "interval": "1.1 s"}))
    exchanges = [Exchange("talk", reply=world.Word)]
    parts = world.make_parts(
        world.Scripted(exchanges), pacing=pacing, rounds=2, client_timeout_s=60.0, verify=False
    )
    result, _ = play(lambda: parts, [[0, 1, 2]], side=Mute)
    assert dict(result.drops) == {"too late": 2}
    first, second = result.rounds
    assert 1 <= first.ended_at_s - first.began_at_s < 60
    assert second.began_at_s - first.began_at_s >= 1.0999


def test_durations_play_no_part(world: Any) -> None:
    parts = world.make_parts(world.Scripted(work_s=lambda client, exchange: 1e6), verify=False)
    result, _ = play(lambda: parts, [[0, 1, 2]])
    assert [row.merged for row in result.rounds] == [3]
    assert result.simulated_s < 1e4
