"""A scripted world: an algorithm, links and an executor that do as they are told, on devices of 1 FLOP/s."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsim.algorithms.base import Algorithm, Exchange, Predictor, broadcast, mirrored
from fedsim.clock import Trace, call_after, now_s
from fedsim.config import Config
from fedsim.data import FederatedData
from fedsim.data.federated import Holdings
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.jobs import ClientSamples, Evaluate, Job, Score
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Availability, Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.network import Carrier, Links, Listener, NetworkPlugin, Parcel
from fedsim.rng import Key
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.random_draws import Uniform
from fedsim.runtime.run import run
from fedsim.task import Task
from fedsim.wire import Message, counted, message

UNIT = {"speed": "1 FLOP/s", "memory": "1 GB", "overhead": "0 s", "variation": 0.0}


@message("word")
class Word(Message):
    values: NDArray[np.float32] = counted()
    note: float = 0.0


@message("other")
class Other(Message):
    note: float = 0.0


@dataclass(frozen=True)
class Diary:
    """A client's state: every page is kept, the mirror only if the reply was merged."""

    pages: tuple[int, ...]
    mirror: int = mirrored()


@dataclass(frozen=True)
class Minutes:
    """The server's state: the clients of every merge."""

    merges: tuple[tuple[int, ...], ...] = ()


def word(value: float = 1.0, note: float = 0.0) -> Word:
    return Word(np.full(3, value, np.float32), note)


def nothing() -> None:
    return None


def _talks(server: Any, client: int) -> Message | None:
    return word()


def _answers(client: Any, exchange: str) -> Message | None:
    return word(float(client.client))


class Scripted(Algorithm[Config, Any, Any]):
    """Notes what happens in ``log``, as (hook, exchange, round, who, instant); ``hooks`` replace its own."""

    messages = (Word, Other)

    def __init__(
        self,
        exchanges: Sequence[Exchange] = (Exchange("talk", reply=Word),),
        say: Callable[[Any, int], Message | None] = _talks,
        answer: Callable[[Any, str], Message | None] = _answers,
        work_s: Callable[[Any, str], float] = lambda client, exchange: 3.0,
        **hooks: Callable[..., Any],
    ) -> None:
        super().__init__(Config())
        self._exchanges = tuple(exchanges)
        self.say = say
        self.answer = answer
        self.work_s = work_s
        self.log: list[tuple[Any, ...]] = []
        self.replies: list[Any] = []
        self.diaries: list[tuple[int, int, Diary]] = []
        self.collected: list[Any] = []
        self.observed: dict[int, Any] = {}
        self.hooks = hooks

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        return tuple(
            replace(
                exchange,
                instruct=partial(self.hooks.get("instruct", self.do_instruct), exchange.name),
                local=partial(self.hooks.get("local", self.do_local), exchange.name),
                merge=partial(self.hooks.get("merge", self.do_merge), exchange.name),
            )
            for exchange in self._exchanges
        )

    def start(self, server: Any) -> Any:
        return self.hooks["start"](server) if "start" in self.hooks else Minutes()

    def join(self, client: Any) -> Any:
        return self.hooks["join"](client) if "join" in self.hooks else Diary((), mirror=-1)

    def vet(self, server: Any, state: Any, reply: Any) -> str | None:
        return self.hooks["vet"](reply) if "vet" in self.hooks else None

    async def do_instruct(self, exchange: str, server: Any, state: Any, cohort: Sequence[int]) -> Any:
        self.log.append(("instruct", exchange, server.round, tuple(cohort), now_s()))
        return state, {client: self.say(server, client) for client in cohort}

    async def do_local(self, exchange: str, client: Any, state: Any, message: Any) -> Any:
        self.log.append(("local", exchange, client.round, client.client, now_s()))
        self.diaries.append((client.client, client.dispatch, state))
        if work_s := self.work_s(client, exchange):
            await client.call(nothing, flops=work_s)
        pages = (*state.pages, client.dispatch)
        return Diary(pages, mirror=client.dispatch), self.answer(client, exchange)

    async def do_merge(self, exchange: str, server: Any, state: Any, replies: Sequence[Any]) -> Any:
        who = tuple(reply.client for reply in replies)
        self.log.append(("merge", exchange, server.round, who, now_s()))
        self.replies.extend(replies)
        return Minutes((*state.merges, who))

    async def models_of(self, observer: Any, server_state: Any, client_state: Any) -> Mapping[str, Predictor]:
        self.observed[observer.client] = client_state
        if "models_of" in self.hooks:
            models: Mapping[str, Predictor] = self.hooks["models_of"](observer, server_state, client_state)
            return models
        return {"global": Predictor(observer.initial_model())}

    def noted(self, hook: str, exchange: str = "talk") -> list[tuple[Any, ...]]:
        """Return (round, who, instant) of each call of a hook."""
        return [entry[2:] for entry in self.log if entry[:2] == (hook, exchange)]


class Wires(NetworkPlugin[Config]):
    """Frames take one second; the nth (from 0) from a sender to a receiver may be lost or break off."""

    def __init__(
        self,
        lost: Iterable[tuple[int, int, int]] = (),
        broken: Iterable[tuple[int, int, int]] = (),
        delay_s: float = 1.0,
    ) -> None:
        super().__init__(Config())
        self.lost = frozenset(lost)
        self.broken = frozenset(broken)
        self.delay_s = delay_s

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        return WiresCarrier(self)


class WiresCarrier:
    def __init__(self, plan: Wires) -> None:
        self._plan = plan
        self._sent: dict[tuple[int, int], int] = {}

    def carry(self, parcel: Parcel, listener: Listener) -> Any:
        way = parcel.sender, parcel.receiver
        number = self._sent.get(way, 0)
        self._sent[way] = number + 1
        return call_after(self._plan.delay_s, self._end, (*way, number), parcel, listener)

    def _end(self, which: tuple[int, int, int], parcel: Parcel, listener: Listener) -> None:
        if which in self._plan.broken:
            listener.lost("broken")
            return
        listener.left()
        if which in self._plan.lost:
            listener.lost("test")
        else:
            listener.arrived(parcel)


def _ticks(at_s: float) -> float:
    return at_s if at_s == inf else int(1024 * at_s)


class Absences(Availability):
    """Clients are there but for given spans, in seconds, of which the last may have no end."""

    def __init__(self, num: int, away: Mapping[int, Sequence[tuple[float, float]]]) -> None:
        super().__init__(num)
        self._away = {client: [(_ticks(a), _ticks(b)) for a, b in spans] for client, spans in away.items()}

    def _states(self, clients: Any, tick: int) -> Any:
        gone = [any(a <= tick < b for a, b in self._away.get(int(client), ())) for client in clients]
        return ~np.array(gone, np.bool_)

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        later = [int(at) for span in self._away.get(client, ()) for at in span if tick < at < inf]
        return bool(self._states([client], tick)[0]), min(later, default=None)


class Oracle(NULL):
    """Learns nothing, but knows its accuracy: ``score(samples)`` says what an evaluation finds."""

    learns = True

    def __init__(self, score: Callable[[Any], Score] = lambda samples: Score(1, 2, 1.0)) -> None:
        super().__init__(ExecutorConfig())
        self._score = score
        self.jobs: list[Evaluate] = []

    def _result(self, job: Job) -> Any:
        if not isinstance(job, Evaluate):
            return super()._result(job)
        self.jobs.append(job)
        return [self._score(part) for part in job.parts]


def by_client(*scores: tuple[int, int], everything: tuple[int, int] = (0, 0)) -> Callable[[Any], Score]:
    """Return a score function: (correct, total) of each client, and on the global test set."""

    def score(samples: Any) -> Score:
        correct, total = scores[samples.client] if isinstance(samples, ClientSamples) else everything
        return Score(correct, total, float(total))

    return score


def make_data(train: Sequence[int], test: Sequence[int] | None = None) -> FederatedData:
    """Return data of two classes in the plane; client k holds ``train[k]`` and ``test[k]`` samples."""
    tested = [1] * len(train) if test is None else test
    total = sum(train) + sum(tested) + 4
    angles = np.arange(total, dtype=np.float32)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    y = (x[:, 0] > 0).astype(np.int64)
    ends = np.cumsum([0, *train]), np.cumsum([0, *tested])
    holdings = {
        "train": Holdings(ends[0], np.arange(sum(train))),
        "val": Holdings(np.zeros(len(train) + 1, np.int64), np.empty(0, np.int64)),
        "test": Holdings(ends[1], np.arange(sum(train), sum(train) + sum(tested))),
    }
    public = np.empty(0, np.int64)
    everything = np.arange(total - 4, total)
    return FederatedData(Task((2,), 2), x, y, public, everything, len(train), holdings)  # type: ignore[arg-type]


def make_parts(algorithm: Any, sizes: Sequence[int] = (2, 2, 2), **changes: Any) -> Parts:
    """Return parts with a null executor; ``changes`` replaces any of them."""
    data = changes.pop("data", None) or make_data(sizes)
    num = data.num_clients
    group = GroupConfig.model_validate({"count": num, "device": "high", **UNIT})
    server = ServerConfig.model_validate(UNIT)
    parts = Parts(
        algorithm=algorithm,
        data=data,
        fleet=build_fleet([group], server, Key.root(0), default_model="linear"),
        architectures={"linear": Architecture("linear", LINEAR(Config()), data.task)},
        network=Wires(),
        executor=NULL(ExecutorConfig()),
        selector=Uniform(Config()),
        pacing=SYNCHRONOUS(SYNCHRONOUS.Config()),
        training=TrainingConfig(),
        rounds=1,
        client_timeout_s=10.0,
        evaluation=EvaluationConfig(),
        verify=True,
    )
    return replace(parts, **changes)


def absent(fleet: Fleet, away: Mapping[int, Sequence[tuple[float, float]]]) -> Fleet:
    """Return a fleet whose clients are away in some spans."""
    return Fleet(fleet.groups, fleet.server, fleet.server_model, Absences(len(fleet), away))


def play(algorithm: Any, **changes: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    trace = Trace(keep=True)
    return run(make_parts(algorithm, **changes), trace=trace), trace.kept


@pytest.fixture
def world() -> SimpleNamespace:
    """Everything of this file, since test files cannot import from one another."""
    return SimpleNamespace(
        Diary=Diary,
        Minutes=Minutes,
        Oracle=Oracle,
        Other=Other,
        Scripted=Scripted,
        Wires=Wires,
        Word=Word,
        absent=absent,
        broadcast=broadcast,
        by_client=by_client,
        make_data=make_data,
        make_parts=make_parts,
        nothing=nothing,
        play=play,
        word=word,
    )
