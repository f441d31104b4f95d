"""The same run over real sockets, on one loop: the models and the bytes of payload are those of memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.base import Exchange, Exchanges, Replies
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg
from fedsim.data.federated import Holdings
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.losses import Batches, Extras, Models, empirical_loss, label_loss
from fedsim.engine.optimisers import Adam
from fedsim.engine.steps import Descent, Work
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model, Tree, freeze, weighted_mean
from fedsim.plugins import available
from fedsim.runtime.clients.host import ClientHost, Held
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import fingerprint
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import run
from fedsim.runtime.sockets.state_encoding import classes_of, decode, encode
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, counted, message
from tests.bus.http.conftest import Log
from tests.runtime.sockets.conftest import CLIENTS, SOON, data, over_http, parts


def payload(result: RunResult) -> Counter[tuple[int, bool, str]]:
    """Return bytes by client, direction and kind."""
    columns, sums = result.ledger.columns(), Counter[tuple[int, bool, str]]()
    for *key, size in zip(*(columns[name] for name in ("client", "up", "kind", "bytes")), strict=True):
        sums[int(key[0]), bool(key[1]), str(key[2])] += int(size)
    return sums


def in_memory_and_over_http(
    name: str, *, folder: Path | None = None, **changes: Any
) -> tuple[RunResult, RunResult, Any]:
    """Return both results, which have the same models and bytes, and the server's side of the second."""
    here = run(parts(name, **changes))
    there, world = over_http(lambda: parts(name, **changes), ["0,2", "1,3"], folder=folder)
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert not there.drops
    assert not there.rejections
    assert not world.server.rejected
    assert there.rounds[0].began_at_s < 10  # since the run began, not the host's uptime
    return here, there, world


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(found.name, marks=[] if found.name in SOON else pytest.mark.slow)
        for found in available("fedsim.algorithms")
    ],
)
def test_models_and_bytes_are_those_of_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, hosts, joined = type(parts(name).algorithm), list[ClientHost](), list[Any]()
    begin, join = ClientHost.__init__, plugin.join

    def noted(self: ClientHost, *arguments: Any) -> None:
        hosts.append(self)
        begin(self, *arguments)

    def joining(self: Any, client: ClientContext) -> Any:
        joined.append(join(self, client))
        return joined[-1]

    monkeypatch.setattr(ClientHost, "__init__", noted)
    monkeypatch.setattr(plugin, "join", joining)
    here, there, world = in_memory_and_over_http(name, folder=tmp_path)
    assert there.totals.parameters_up == here.totals.parameters_up
    assert there.best == here.best
    for row, its in zip(here.rounds, there.rounds, strict=True):
        assert (row.asked, row.merged) == (its.asked, its.merged)
        assert (row.accuracy is None) == (its.accuracy is None)
        if row.accuracy is not None and its.accuracy is not None:
            assert row.accuracy.personal.tolist() == its.accuracy.personal.tolist()
    assert not world.log.of("evaluated as it joined")
    # And states come back from bytes as they were.
    classes = (Held, *classes_of(parts(name).algorithm))
    kept = [held for client in range(CLIENTS) if (held := hosts[0].held(client)) is not None]
    assert joined
    for held in [*(Held(0, one, one) for one in joined), *kept]:
        assert fingerprint(decode(encode(held), classes)) == fingerprint(held)


@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedme", marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [8, 400], ids=["small frames", "frames that travel apart"])
def test_kept_optimisers_and_phases(name: str, width: int, tmp_path: Path) -> None:
    """Optimisers are those of memory, and the dispatch table says what the processes have seen."""
    training = TrainingConfig(lr=0.1, batch_size=16, momentum=0.9, keep_optimiser=True)
    anew = training.model_copy(update={"keep_optimiser": False})
    changes: dict[str, Any] = {"width": width, "rounds": 3, "verify": True}
    here, there, world = in_memory_and_over_http(name, folder=tmp_path, training=training, **changes)
    if width == 8:
        assert here.model_hash != run(parts(name, training=anew, **changes)).model_hash
    assert (max(there.ledger.columns()["bytes"]) > 100_000) == (width == 400)
    if name == "fedme":
        return  # some of its dispatches take no time that is told
    told = {(one[2], one[3]): one[4:] for one in world.trace.kept if one[1] == "spent"}
    columns = there.dispatches.columns()
    of = list(zip(columns["client"].tolist(), columns["dispatch"].tolist(), strict=True))
    assert sorted(told) == sorted(of)
    assert (columns["download_s"] > 0).all()
    assert (columns["compute_s"] > 0).all()
    for row, key in enumerate(of):
        download_ns, compute_ns, upload_ns = told[key]
        assert columns["download_s"][row] == download_ns / 1e9
        assert columns["compute_s"][row] == compute_ns / 1e9
        assert columns["upload_s"][row] >= upload_ns / 1e9
        assert (upload_ns > 0) == (width == 400)  # a small frame is there at once
    passed = columns["ended_at_s"] - columns["asked_at_s"]
    np.testing.assert_allclose(sum(columns[f"{phase}_s"] for phase in PHASES), passed, atol=1e-6)


FAULTS: dict[str, dict[str, Any]] = {
    "resets": {"slice_bytes": 1 << 13, "reset_after": 200_000, "reset_again": 200_000},
    "one reset": {"reset_after": 500_000},
    "latency": {"latency_s": 0.1},
    "bandwidth": {"bytes_per_s": 1e6},
    "slicing": {"slice_bytes": 700},
    "a stall": {"stall_after": 600_000},
    "a stall downwards": {"stall_down_after": 600_000},
    "repeats": {"repeat_up": 100, "repeat_down": 100},
}
"""Of which all but the first are slow tests: tests/bus/http/test_faults.py has each for single replies."""


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[] if one == "resets" else pytest.mark.slow) for one in FAULTS]
)
def test_each_reply_is_merged_once_under(fault: str) -> None:
    def make() -> Parts:
        return parts("fedavg", width=400, rounds=4, clients_per_round=CLIENTS)

    here, (there, _) = run(make()), over_http(make, ["0-3"], harm=FAULTS[fault])
    assert there.model_hash == here.model_hash
    assert payload(there) == payload(here)
    assert [(row.asked, row.merged) for row in there.rounds] == [(CLIENTS, CLIENTS)] * 4
    assert there.by_client["merged"].tolist() == [4] * CLIENTS
    assert not there.drops
    assert not there.rejections
    # One row for each dispatch and reply, however often it travelled.
    assert there.ledger.outcomes()["delivered"] == len(there.ledger) == 2 * CLIENTS * 4


def test_work_without_frames_is_seen_too() -> None:
    _, there, _ = in_memory_and_over_http("local", verify=True)
    columns = there.dispatches.columns()
    assert (columns["compute_s"] > 0).all()
    assert (columns["download_s"] == 0).all()
    assert (columns["upload_s"] == 0).all()


def test_what_clients_note_is_in_the_servers_log_as_in_memory() -> None:
    def of_clients(log: Log) -> list[str]:
        noted = [(event, values) for event, values in log.lines if event in ("student chosen", WARNED)]
        for _, values in noted:
            values.pop("told_by", None)
        return sorted(map(str, noted))

    few = replace(data(), holdings={**data().holdings, "val": Holdings(*none_at(2))})
    here = Log()
    run(parts("persfl", data=few), log=here)
    _, world = over_http(lambda: parts("persfl", data=few), ["0,2", "1,3"])
    assert of_clients(world.log) == of_clients(here)
    assert set(world.log.warned) == set(here.warned) == {WARNED}
    assert here.of("student chosen")


WARNED = "no validation samples"


def none_at(client: int) -> tuple[Any, Any]:
    """Return validation samples of which a client has none."""
    one = data().holdings["val"]
    assert one.flat is not None
    first, end = one.offsets[client : client + 2]
    offsets = one.offsets.copy()
    offsets[client + 1 :] -= end - first
    return offsets, np.delete(one.flat, slice(first, end))


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

    here, _, _ = in_memory_and_over_http("fedavg", **changes())
    assert here.best
    assert here.model_hash != run(parts("fedavg", rounds=3)).model_hash
    for workers in (2, 4):
        assert run(parts("fedavg", **changes(workers, "auto"))).model_hash == here.model_hash
