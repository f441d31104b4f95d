"""A small world for algorithms: digits over unequal clients, in memory or over sockets, with lost frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

from fedsim.algorithms.base import Algorithm, Setting
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.local import Local, LocalConfig
from fedsim.bus import Ledger
from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.data import FederatedData, LoadContext, Spreading, federate
from fedsim.data.client_split import Split
from fedsim.data.digits import PLUGIN as DIGITS
from fedsim.data.federated import Holdings
from fedsim.data.partitions.dirichlet import DirichletClass
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.network import Carrier, Links, Listener, NetworkPlugin, Parcel
from fedsim.network.base import Passage
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.params import Model
from fedsim.plugins import load
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.random_draws import Uniform
from fedsim.runtime.records.recorder import silent
from fedsim.runtime.run import RunResult, kinds_of, run
from fedsim.runtime.sockets.join import host
from fedsim.runtime.sockets.serve import serve
from fedsim.task import Task
from tests.algorithms.stand_ins import QUICK

FEW = 200
"""Samples of all clients and of the public set; whether anything is learned takes twice as many."""


@cache
def _data(num_clients: int, public_size: int, num_samples: int) -> FederatedData:
    key = Key.root(7)
    dataset = DIGITS(DIGITS.Config()).load(LoadContext(None, num_clients, key))
    return federate(
        dataset,
        DirichletClass(DirichletClass.Config(alpha=0.5)),
        Spreading(
            num_clients=num_clients,
            shares=(0.7, 0.1, 0.2),
            public_size=public_size,
            global_test_share=0.1,
            limit=num_samples,
        ),
        key,
    )


@cache  # so that what fedsim remembers of an architecture serves many runs
def _architectures(task: Task) -> Mapping[str, Architecture]:
    return {
        "mlp": Architecture("mlp", MLP(MLP.Config(hidden=(16,))), task),
        "linear": Architecture("linear", LINEAR(LINEAR.Config()), task),
    }


@cache
def _fleet(num_clients: int, models: tuple[str, str]) -> Fleet:
    few = num_clients // 2
    groups = [GroupConfig(count=num_clients - few, device="low", model=models[0])]
    if few:
        groups.append(GroupConfig(count=few, device="high", model=models[1]))
    return build_fleet(groups, ServerConfig(model=models[0]), Key.root(3))


@dataclass(frozen=True)
class Loss:
    """Loses frames for which ``doomed(parcel, ordinal)`` holds; ordinals count all frames of the run."""

    inner: Carrier
    doomed: Callable[[Parcel, int], bool]
    seen: list[Parcel]

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        self.seen.append(parcel)
        if self.doomed(parcel, len(self.seen) - 1):
            listener = _Lost(listener)
        return self.inner.carry(parcel, listener)


class _Lost:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def left(self) -> None:
        self._listener.left()

    def arrived(self, parcel: Parcel) -> None:
        self._listener.lost("test")

    def lost(self, cause: str) -> None:
        self._listener.lost(cause)


class LossyNetwork(NetworkPlugin[Config]):
    def __init__(self, doomed: Callable[[Parcel, int], bool]) -> None:
        super().__init__(Config())
        self.doomed = doomed

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        return Loss(NAIVE(Config()).carrier(links), self.doomed, [])


@dataclass(frozen=True)
class World:
    def algorithm(self, name: str, **params: Any) -> Algorithm[Any, Any, Any]:
        plugin = load("fedsim.algorithms", name)
        made = plugin(plugin.Config(**params))
        assert isinstance(made, Algorithm)
        return made

    def quick(self, name: str) -> Algorithm[Any, Any, Any]:
        """Return an algorithm with parameters for a short run."""
        return self.algorithm(name, **QUICK.get(name, {}))

    def parts(
        self,
        algorithm: Algorithm[Any, Any, Any],
        *,
        num_clients: int = 4,
        workers: int = 1,
        batching: Literal["auto", "off"] = "auto",
        training: Mapping[str, Any] | None = None,
        lost: Callable[[Parcel, int], bool] | None = None,
        models: tuple[str, str] = ("mlp", "mlp"),
        public_size: int = 40,
        num_samples: int = FEW,
        **changes: Any,
    ) -> Parts:
        data = _data(num_clients, public_size, num_samples)
        parts = Parts(
            algorithm=algorithm,
            data=data,
            fleet=_fleet(num_clients, models),
            architectures=_architectures(data.task),
            network=NAIVE(Config()) if lost is None else LossyNetwork(lost),
            executor=THREADS(ExecutorConfig(workers=workers, batching=batching)),
            selector=Uniform(Config()),
            pacing=SYNCHRONOUS(SYNCHRONOUS.Config()),
            training=TrainingConfig(**{"lr": 0.1, "batch_size": 8, **(training or {})}),
            rounds=3,
        )
        return replace(parts, **changes)

    def misfits(self, algorithm: Algorithm[Any, Any, Any], setting: Setting) -> str:
        """Return what an algorithm has against a setting, a line for each fault."""
        return "\n".join(map(str, algorithm.misfits(setting)))

    def run(self, algorithm: Algorithm[Any, Any, Any], **changes: Any) -> RunResult:
        return run(self.parts(algorithm, **changes))

    def local(self, name: str = "train", **work: Any) -> Algorithm[Any, Any, Any]:
        """Return Local in the rounds of a cohort, with the streams of trainings of another name."""

        class Named(Local):
            async def train(self, client: ClientContext, state: Model, message: None) -> tuple[Model, None]:
                return (await client.fit(state, name=name, **work)).model, None

        return Named(LocalConfig(follow_selection=True))

    def run_over_sockets(self, algorithm: Algorithm[Any, Any, Any], **changes: Any) -> RunResult:
        """Run over sockets on one loop, with a connection for client 0 and one for the others."""
        return self.over_sockets(partial(self.parts, algorithm, **changes))

    def over_sockets(self, make: Callable[[], Parts]) -> RunResult:
        """Run what a function makes in the same way, for parts of another world."""
        return asyncio.run(asyncio.wait_for(_over_sockets(make), 60))

    def check_every_way(
        self, make: Callable[[], Algorithm[Any, Any, Any]], *, workers: Sequence[int] = (), **changes: Any
    ) -> RunResult:
        """Check that sockets, batching and workers change neither models nor traffic; return a result."""
        ways: list[tuple[Callable[..., RunResult], dict[str, Any]]] = [
            *product((self.run, self.run_over_sockets), [{"batching": "auto"}, {"batching": "off"}]),
            *((self.run, {"workers": number}) for number in workers),
        ]
        first, *others = (way(make(), **{"verify": True, **changes, **more}) for way, more in ways)
        for other in others:
            assert other.model_hash == first.model_hash
            for sums in ("frames", "bytes", "parameters", "data"):
                for name in (f"{sums}_up", f"{sums}_down"):
                    assert getattr(other.totals, name) == getattr(first.totals, name)
            assert not other.rejections
        return first

    def recorded(
        self,
        algorithm: Algorithm[Any, Any, Any],
        hook: str,
        keep: Callable[..., Any] = lambda *arguments: (arguments[:-1], arguments[-1]),
    ) -> list[Any]:
        """Return what will hold arguments and result of each call of a hook, or what ``keep`` makes of it."""
        calls: list[Any] = []
        original = getattr(algorithm, hook)

        async def recorder(*arguments: Any) -> Any:
            result = await original(*arguments)
            calls.append(keep(*arguments, result))
            return result

        setattr(algorithm, hook, recorder)
        return calls

    def results(self, algorithm: Algorithm[Any, Any, Any], hook: str) -> list[Any]:
        """Return what will hold the result of each call of a hook."""
        return self.recorded(algorithm, hook, lambda *arguments: arguments[-1])

    def lying(
        self, algorithm: Algorithm[Any, Any, Any], hook: str, lie: Callable[[ClientContext, Any], Any]
    ) -> Algorithm[Any, Any, Any]:
        """Let clients send something else than what a hook of theirs replies."""
        honest = getattr(algorithm, hook)

        async def local(client: ClientContext, state: Any, message: Any) -> Any:
            after, reply = await honest(client, state, message)
            return after, lie(client, reply)

        setattr(algorithm, hook, local)
        return algorithm

    def personal(self, algorithm: Algorithm[Any, Any, Any], **changes: Any) -> dict[int, Model]:
        """Run, and return each client's own model at the end."""
        result = self.run(algorithm, **changes)
        return {client: models["personal"] for client, models in result.models.items()}

    def watched(self, algorithm: Algorithm[Any, Any, Any]) -> dict[int, dict[str, Model]]:
        """Return what will hold each client's evaluated models, by name, as they were measured last."""
        seen: dict[int, dict[str, Model]] = {}
        models_of = algorithm.models_of

        async def watching(observer: ClientContext, server_state: Any, client_state: Any) -> Any:
            models = await models_of(observer, server_state, client_state)
            seen[observer.client] = {name: one.model for name, one in models.items()}
            return models

        algorithm.models_of = watching  # type: ignore[method-assign]
        return seen

    def notes(self) -> Notes:
        return Notes()

    def data(self, num_clients: int = 4, public_size: int = 40) -> FederatedData:
        return _data(num_clients, public_size, FEW)

    def regression(self, *samples: tuple[Sequence[Sequence[float]], Sequence[float]]) -> dict[str, Any]:
        """Return changes to a run: each client fits a line to its ``x`` and ``y``, its test set too."""
        task = Task((len(samples[0][0][0]),), 1, "regression")
        offsets = np.cumsum([0, *(len(y) for _, y in samples)])
        flat, none = np.arange(offsets[-1]), np.arange(0)
        held = Holdings(offsets, flat)
        data = FederatedData(
            task,
            np.concatenate([np.asarray(x, np.float32) for x, _ in samples]),
            np.concatenate([np.asarray(y, np.float32) for _, y in samples]),
            public=none,
            global_test=flat,
            num_clients=len(samples),
            holdings={"train": held, "val": Holdings(np.zeros_like(offsets), none), "test": held},
        )
        architectures = {"mlp": Architecture("mlp", LINEAR(LINEAR.Config()), task)}
        return {"data": data, "num_clients": len(samples), "architectures": architectures}

    def holding(self, data: FederatedData, split: Split, held: Sequence[Any]) -> FederatedData:
        """Return the data with other samples of a split: one sequence of positions for each client."""
        offsets = np.cumsum([0, *map(len, held)])
        flat = np.concatenate([np.sort(np.asarray(one, np.int64)) for one in held])
        return replace(data, holdings={**data.holdings, split: Holdings(offsets, flat)})


async def _over_sockets(make: Callable[[], Parts]) -> RunResult:
    async def join(url: str, clients: ClientRanges, token: str) -> None:
        parts, client = make(), HttpClient(url, clients=clients, token=token)
        try:
            await client.connect()
            await host(parts, client)
        finally:
            await client.close()

    parts, ledger, trace = make(), Ledger(), Trace(keep=True)
    count = parts.data.num_clients
    token, line = new_token(ClientRanges.parse(f"0-{count - 1}"))
    server = HttpServer(
        kinds=kinds_of(parts),
        ledger=ledger,
        trace=trace,
        access=Access.from_lines([line]),
        greeting=b"hello",
        num_clients=count,
        log=silent(),
    )
    port = await server.start("127.0.0.1", 0)
    shares = [ClientRanges.parse(some) for some in ("0", f"1-{count - 1}")[:count]]
    joining = [asyncio.create_task(join(f"http://127.0.0.1:{port}", share, token)) for share in shares]
    try:
        result = await serve(parts, server, ledger=ledger, trace=trace)
        server.finish()
        await asyncio.gather(*joining)
    finally:
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)
        await server.close()
    return result


class Notes:
    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, Any]]] = []
        self.infos: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.infos.append((event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.warnings.append((event, values))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [values for name, values in (*self.warnings, *self.infos) if name == event]


@pytest.fixture(scope="session")
def world() -> World:
    return World()
