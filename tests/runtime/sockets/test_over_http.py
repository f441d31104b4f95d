"""The same run over real sockets, on one loop: the models and the bytes of payload are those of memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.base import Exchange, Exchanges, Replies
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg
from fedsim.bus import Ledger
from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.server import HttpServer
from fedsim.bus.http.state_folder import StateFolder
from fedsim.clock import Trace
from fedsim.data import FederatedData, LoadContext, Spreading, federate
from fedsim.data.digits import PLUGIN as DIGITS
from fedsim.data.federated import Holdings
from fedsim.data.partitions.dirichlet_class import PLUGIN as DIRICHLET
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.losses import Batches, Extras, Models, empirical_loss, label_loss
from fedsim.engine.optimisers import Adam
from fedsim.engine.steps import Descent, Work
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.network.none import PLUGIN as NONE
from fedsim.params import Model, Tree, freeze, weighted_mean
from fedsim.plugins import available, load
from fedsim.report.logs import line_log
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.pacing.synchronous import PLUGIN as SYNCHRONOUS
from fedsim.runtime.policies.selectors.uniform import PLUGIN as UNIFORM
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.records.recorder import Log, silent
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of, run
from fedsim.runtime.sockets.join import host
from fedsim.runtime.sockets.serve import serve
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, counted, message

CLIENTS = 4
QUICKLY = ("fedavg", "fedmd", "ktpfl", "fedme", "scaffold")
"""One of each form of exchange; the others are slow tests."""
FEW = {"lambdas": [0.0, 0.5], "temperatures": [1.0, 5.0], "distill_epochs": 3}
QUICK: dict[str, dict[str, Any]] = {
    "persfl": FEW,
    "persfl_gd": FEW,
    "fedme": {"finetune_epochs": 1},
    "fedgkt": {"server_epochs": 2},
    "feddf": {"server_steps": 5},
    "pfeddf": {"server_steps": 5},
    "fedet": {"server_steps": 5},
}
"""Settings for what takes long by default and means the same with less."""


@cache
def data() -> FederatedData:
    key = Key.root(7)
    dataset = DIGITS(DIGITS.Config()).load(LoadContext(None, CLIENTS, key))
    return federate(
        dataset,
        DIRICHLET(DIRICHLET.Config(alpha=0.5)),
        Spreading(
            num_clients=CLIENTS, shares=(0.7, 0.1, 0.2), public_size=40, global_test_share=0.1, limit=400
        ),
        key,
    )


def parts(name: str, *, width: int = 8, **changes: Any) -> Parts:
    plugin: Any = load("fedsim.algorithms", name)
    made: dict[str, Any] = {
        "algorithm": plugin(plugin.Config(**QUICK.get(name, {}))),
        "data": data(),
        "fleet": build_fleet(
            [GroupConfig(count=CLIENTS, device="high")], ServerConfig(), Key.root(3), default_model="mlp"
        ),
        "architectures": {"mlp": Architecture("mlp", MLP(MLP.Config(hidden=(width,))), data().task)},
        "network": NONE(NONE.Config()),
        "executor": THREADS(ExecutorConfig()),
        "selector": UNIFORM(UNIFORM.Config()),
        "pacing": SYNCHRONOUS(SYNCHRONOUS.Config()),
        "training": TrainingConfig(lr=0.1, batch_size=16),
        "rounds": 2,
        "clients_per_round": 3,
        "client_timeout_s": 60.0,
    }
    return Parts(**{**made, **changes})


def over_http(
    name: str,
    shares: Sequence[str],
    *,
    folder: Path | None = None,
    log: Log | None = None,
    trace: Trace | None = None,
    **changes: Any,
) -> RunResult:
    """Run with a connection for each share of the clients, each with an engine of its own."""

    async def joins(url: str, share: str, token: str) -> None:
        mine = parts(name, **changes)
        state = None if folder is None else StateFolder(folder / share)
        client = HttpClient(url, clients=ClientRanges.parse(share), token=token, state=state)
        try:
            assert await client.connect() == b"hello"
            client.kinds = kinds_of(mine)
            await host(mine, client, folder=state)
        finally:
            await client.close()
            if state is not None:
                state.close()

    async def main() -> RunResult:
        mine = parts(name, **changes)
        ledger, told = Ledger(), trace or Trace(keep=mine.verify)
        secret, line = new_token(ClientRanges.parse(f"0-{CLIENTS - 1}"))
        server = HttpServer(
            kinds=kinds_of(mine),
            ledger=ledger,
            trace=told,
            access=Access.from_lines([line]),
            greeting=b"hello",
            num_clients=CLIENTS,
            log=log or silent(),
        )
        port = await server.start("127.0.0.1", 0)
        joining = [asyncio.create_task(joins(f"http://127.0.0.1:{port}", share, secret)) for share in shares]
        try:
            result = await serve(mine, server, ledger=ledger, trace=told)
            server.finish()
            await asyncio.gather(*joining)
        finally:
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
            await server.close()
        assert not server.rejected
        return result

    return asyncio.run(asyncio.wait_for(main(), 120))


def payload(result: RunResult) -> Counter[tuple[int, bool, str]]:
    """Return bytes by client, direction and kind."""
    columns, sums = result.ledger.columns(), Counter[tuple[int, bool, str]]()
    for client, up, kind, size in zip(
        columns["client"], columns["up"], columns["kind"], columns["bytes"], strict=True
    ):
        sums[int(client), bool(up), str(kind)] += int(size)
    return sums


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(found.name, marks=[] if found.name in QUICKLY else pytest.mark.slow)
        for found in available("fedsim.algorithms")
    ],
)
def test_models_and_bytes_are_those_of_memory(name: str) -> None:
    here, there = run(parts(name)), over_http(name, ["0,2", "1,3"])
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert there.totals.parameters_up == here.totals.parameters_up
    assert not there.drops
    assert not there.rejections
    assert there.best == here.best
    for row, its in zip(here.rounds, there.rounds, strict=True):
        assert (row.asked, row.merged) == (its.asked, its.merged)
        assert (row.accuracy is None) == (its.accuracy is None)
        if row.accuracy is not None and its.accuracy is not None:
            assert row.accuracy.personal.tolist() == its.accuracy.personal.tolist()


@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedme", marks=pytest.mark.slow)])
def test_kept_optimisers_are_those_of_memory(name: str, tmp_path: Path) -> None:
    training = TrainingConfig(lr=0.1, batch_size=16, momentum=0.9, keep_optimiser=True)
    anew = training.model_copy(update={"keep_optimiser": False})
    here = run(parts(name, training=training, rounds=3))
    assert here.model_hash != run(parts(name, training=anew, rounds=3)).model_hash
    there = over_http(name, ["0,2", "1,3"], folder=tmp_path, training=training, rounds=3)
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)


@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedme", marks=pytest.mark.slow)])
def test_frames_that_are_large_travel_apart_and_count_the_same(name: str, tmp_path: Path) -> None:
    # 64 x 400 + 400 x 10 parameters and more: over 100 kB a model.
    here = run(parts(name, width=400))
    there = over_http(name, ["0-1", "2-3"], width=400, folder=tmp_path, verify=True)
    assert max(there.ledger.columns()["bytes"]) > 100_000
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)


class Lines:
    """What ``log.jsonl`` would hold."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.log = line_log(self)

    def write(self, line: bytes) -> None:
        self.said.append(json.loads(line))

    def of_clients(self) -> list[str]:
        """Return what clients have noted, without when and how it came."""
        noted = [line for line in self.said if line["event"] in ("student chosen", "no validation samples")]
        return sorted(
            json.dumps({name: value for name, value in line.items() if name not in ("at_s", "told_by")})
            for line in noted
        )


def test_what_clients_note_is_in_the_servers_log_as_in_memory(tmp_path: Path) -> None:
    few = replace(data(), holdings={**data().holdings, "val": Holdings(*none_at(2))})
    here, there = Lines(), Lines()
    run(parts("persfl", data=few), log=here.log)
    over_http("persfl", ["0,2", "1,3"], folder=tmp_path, log=there.log, data=few)
    assert there.of_clients() == here.of_clients()
    levels = {json.loads(line)["level"] for line in here.of_clients()}
    assert levels == {"info", "warning"}


def none_at(client: int) -> tuple[Any, Any]:
    """Return validation samples of which a client has none."""
    one = data().holdings["val"]
    assert one.flat is not None
    first, end = one.offsets[client : client + 2]
    offsets = one.offsets.copy()
    offsets[client + 1 :] -= end - first
    return offsets, np.delete(one.flat, slice(first, end))


@pytest.mark.parametrize("width", [8, 400])
def test_phases_are_those_that_processes_have_seen(width: int) -> None:
    trace = Trace(keep=True)
    result = over_http("fedavg", ["0-1", "2-3"], width=width, verify=True, trace=trace)
    told = {(one[2], one[3]): one[4:] for one in trace.kept if one[1] == "spent"}
    columns = result.dispatches.columns()
    of = list(zip(columns["client"].tolist(), columns["dispatch"].tolist(), strict=True))
    assert sorted(told) == sorted(of)
    assert (columns["download_s"] > 0).all()
    assert (columns["compute_s"] > 0).all()
    for row, (download_ns, compute_ns, upload_ns) in zip(range(len(of)), map(told.get, of), strict=True):  # type: ignore[misc]
        assert columns["download_s"][row] == download_ns / 1e9
        assert columns["compute_s"][row] == compute_ns / 1e9
        assert columns["upload_s"][row] >= upload_ns / 1e9
        assert (upload_ns > 0) == (width == 400)  # a small frame is there at once
    passed = columns["ended_at_s"] - columns["asked_at_s"]
    np.testing.assert_allclose(sum(columns[f"{phase}_s"] for phase in PHASES), passed, atol=1e-6)


def test_work_without_frames_is_seen_too() -> None:
    result = over_http("local", ["0-1", "2-3"], verify=True)
    columns = result.dispatches.columns()
    assert (columns["compute_s"] > 0).all()
    assert (columns["download_s"] == 0).all()
    assert (columns["upload_s"] == 0).all()


@message("test_gradient")
class Gradient(Message):
    """The gradient of a client's loss, a tree like the model's parameters."""

    gradient: Tree = counted()


class ByGradients(FedAvg):
    """Clients send the gradient over all of their samples, and the server descends."""

    messages = (Gradient,)

    @property
    def exchanges(self) -> Exchanges[Model, Any]:
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=Gradient),)

    async def train(self, client: ClientContext, state: Any, message: ModelBroadcast) -> tuple[Any, Any]:
        return state, Gradient(await client.gradient(message.model))

    async def merge(self, server: ServerContext, state: Model, replies: Replies[Any]) -> Model:
        mean = weighted_mean([reply.message.gradient for reply in replies], [1 / len(replies)] * len(replies))
        return replace(state, params={name: state.params[name] - 0.5 * mean[name] for name in mean})


@dataclass(frozen=True)
class OneStepAhead:
    """Descent on the loss of the model one step of ``alpha`` ahead; notes how large that step was."""

    alpha: float = 0.1

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        model, batch = work.models["model"], batches["train"]
        params = dict(model.params)
        gradients = torch.autograd.grad(label_loss(model(batch.x), batch.labels), list(params.values()))
        steps = {name: self.alpha * one for name, one in zip(params, gradients, strict=True)}
        ahead = {name: (params[name] - steps[name]).detach().requires_grad_() for name in params}
        loss = label_loss(model.at(ahead)(batch.x), batch.labels)
        moves = list(torch.autograd.grad(loss, list(ahead.values())))
        work.move("model", moves)
        work.outputs["went"] += torch.stack([one.norm() for one in steps.values()]).sum()
        return loss.detach()


class Ahead(FedAvg):
    """Clients train for the model that comes one step later, and keep how far that was."""

    async def train(self, client: ClientContext, state: Any, message: ModelBroadcast) -> tuple[Any, Any]:
        outputs = freeze({"went": np.array(0, np.float32)})
        fitted = await client.fit(message.model, step=OneStepAhead(), outputs=outputs)
        assert np.isfinite(fitted.outputs["went"])
        went = Went(float(fitted.outputs["went"]))
        return went, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    def join(self, client: ClientContext) -> Any:
        return Went(0.0)


@dataclass(frozen=True)
class Went:
    """How far a client has looked ahead."""

    distance: float


def near_each_other(models: Models, batches: Batches, extras: Extras) -> dict[str, Tensor]:
    """Each model's loss, and how far it is from the other."""
    losses = {name: empirical_loss({"model": model}, batches, extras) for name, model in models.items()}
    for name, other in (("own", "shared"), ("shared", "own")):
        pairs = zip(models[name].params.values(), models[other].params.values(), strict=True)
        losses[name] = losses[name] + 0.1 * sum((mine - its.detach()).square().sum() for mine, its in pairs)
    return losses


class Apart(FedAvg):
    """Clients train a model of their own beside the global one, each with its own optimiser."""

    async def train(self, client: ClientContext, state: Any, message: ModelBroadcast) -> tuple[Any, Any]:
        models = {"own": state, "shared": message.model}
        fitted = await client.fit(models, step=Descent(near_each_other), optimiser={"own": Adam(0.01)})
        reply = ModelUpdate.of(fitted.models["shared"], num_samples=client.num_samples())
        return fitted.models["own"], reply

    def join(self, client: ClientContext) -> Any:
        return client.initial_model()


@pytest.mark.parametrize(
    "plugin", [ByGradients, *(pytest.param(one, marks=pytest.mark.slow) for one in (Ahead, Apart))]
)
@pytest.mark.parametrize("batching", ["auto", pytest.param("off", marks=pytest.mark.slow)])
def test_what_steps_can_do_they_can_do_over_sockets(plugin: type[FedAvg], batching: Any) -> None:
    def changes(workers: int = 1, batching: Any = batching) -> dict[str, Any]:
        executor = THREADS(ExecutorConfig(workers=workers, batching=batching))
        return {"algorithm": plugin(plugin.Config()), "executor": executor, "rounds": 3}

    here = run(parts("fedavg", **changes()))
    assert here.best
    assert here.model_hash != run(parts("fedavg", rounds=3)).model_hash
    for workers in (2, 4):
        assert run(parts("fedavg", **changes(workers, "auto"))).model_hash == here.model_hash
    there = over_http("fedavg", ["0,2", "1,3"], **changes())
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
