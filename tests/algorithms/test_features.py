"""Features in an exchange, proven on an algorithm that needs them and nothing else.

*Splits*, after FedGKT: a client trains a small model and sends the features of its samples at the cut, with
its logits and labels. The server trains the upper layers of a large model on them, and answers with the
logits of these. What is measured are the client's lower layers with the server's upper ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

import fedsim
from fedsim.algorithms.base import (
    Algorithm,
    Exchange,
    Exchanges,
    Predictor,
    Predictors,
    Replies,
    Reply,
    Setting,
)
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.engine.jobs import InlineSamples, Stream, per_sample
from fedsim.engine.losses import MODEL, TEACHER, TRAIN, Batches, Extras, Models, empirical_loss
from fedsim.engine.memory_need import needed_bytes
from fedsim.engine.steps import Descent
from fedsim.errors import Fault, ScenarioError
from fedsim.models import composed
from fedsim.models.flops import forward
from fedsim.params import Model
from fedsim.planning.rehearsal import rehearse
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build
from fedsim.wire import Message, counted, message


@message("feature_maps")
class FeatureMaps(Message):
    """A client's samples as its lower layers see them, and their labels, which so leave the client."""

    features: NDArray[np.float32] = counted()
    logits: NDArray[np.float32] = counted()
    labels: NDArray[np.int64]


@message("server_logits")
class ServerLogits(Message):
    """What the server's layers say of a client's samples, in the order in which it sent them."""

    values: NDArray[np.float32] = counted()


@dataclass(frozen=True)
class AtServer:
    upper: Model
    maps: Mapping[int, FeatureMaps] = field(default_factory=dict)


@dataclass(frozen=True)
class AtClient:
    model: Model


def taught(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Cross-entropy, and KL towards the teacher's logits."""
    batch = batches[TRAIN]
    logits, teacher = models[MODEL](batch.x), F.log_softmax(extras[TEACHER], 1)
    divergence = F.kl_div(F.log_softmax(logits, 1), teacher, reduction="batchmean", log_target=True)
    return F.cross_entropy(logits, batch.labels) + divergence


class Splits(Algorithm[Config, AtServer, AtClient]):
    """See the module."""

    messages = (FeatureMaps, ServerLogits)
    mixed_architectures = True

    @property
    def exchanges(self) -> Exchanges:
        return (Exchange("split", instruct=self.send, local=self.train, merge=self.merge, reply=FeatureMaps),)

    def start(self, server: ServerContext) -> AtServer:
        large = server.architectures[server.architecture]
        return AtServer(large.above(2).part_of(server.initial_model()))

    def join(self, client: ClientContext) -> AtClient:
        return AtClient(client.initial_model())

    async def send(
        self, server: ServerContext, state: AtServer, cohort: Sequence[int]
    ) -> tuple[AtServer, Mapping[int, ServerLogits | None]]:
        said: dict[int, ServerLogits | None] = dict.fromkeys(cohort)
        for client in cohort:
            if client in state.maps:
                features = InlineSamples(state.maps[client].features)
                said[client] = ServerLogits(await server.predict(state.upper, features))
        return state, said

    async def train(
        self, client: ClientContext, state: AtClient, message: ServerLogits | None
    ) -> tuple[AtClient, FeatureMaps]:
        extras = {} if message is None else {TEACHER: per_sample(message.values, TRAIN)}
        step = Descent(loss=empirical_loss if message is None else taught)
        model = (await client.fit(state.model, step=step, extras=extras)).model
        small, own = client.architectures[client.architecture], client.own("train")
        features = await client.predict(small.below(2).part_of(model), own)
        logits = await client.predict(small.above(2).part_of(model), InlineSamples(features))
        return AtClient(model), FeatureMaps(features, logits, client.labels(own))

    def vet(self, server: ServerContext, state: AtServer, reply: Reply) -> str | None:
        maps = reply.message
        shape = server.architectures[state.upper.architecture].task.input_shape
        if maps.features.shape != (len(maps.labels), *shape):
            return f"features of shape {maps.features.shape}"
        return None

    async def merge(self, server: ServerContext, state: AtServer, replies: Replies[FeatureMaps]) -> AtServer:
        came = [reply.message for reply in replies]
        samples = InlineSamples(
            np.concatenate([maps.features for maps in came]), np.concatenate([maps.labels for maps in came])
        )
        fitted = await server.fit(
            state.upper,
            step=Descent(loss=taught),
            streams={TRAIN: Stream(samples, server.training.batch_size)},
            extras={TEACHER: per_sample(np.concatenate([maps.logits for maps in came]), TRAIN)},
        )
        maps = {reply.client: reply.message for reply in replies}
        return AtServer(fitted.model, {**state.maps, **maps})

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        models = {**setting.clients, setting.server.label: setting.server}
        if faults := [fault for one in models.values() if (fault := one.cut_fault(2)) is not None]:
            yield from faults
            return
        wanted = setting.server.above(2).task.input_shape
        for label, architecture in setting.clients.items():
            if (shape := architecture.below(2).output_shape) != wanted:
                yield Fault(
                    f"models.{label}", f"its features are of shape {shape}, the server takes {wanted}"
                )

    async def models_of(
        self, observer: ClientContext, server_state: AtServer, client_state: AtClient
    ) -> Predictors:
        lower = observer.architectures[observer.architecture].below(2).part_of(client_state.model)
        both = Predictor(composed(lower, server_state.upper))
        return {"personal": both, "small": Predictor(client_state.model)}


CLIENTS = 4
SCENARIO: dict[str, Any] = {
    "run": {"name": "features", "rounds": 3},
    "data": {"name": "digits", "limit": 160, "partition": "iid", "split": [0.8, 0.0, 0.2]},
    "models": {
        "small": {"name": "mlp", "params": {"hidden": [12]}},
        "large": {"name": "mlp", "params": {"hidden": [12, 20]}},
    },
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8, "momentum": 0.9},
    "fleet": [{"count": CLIENTS, "device": "high", "model": "small"}],
    "server": {"model": "large"},
    "network": {"model": "naive"},
}
"""Features of 12 numbers; above them the small model has 10 outputs, the large one 20 more units."""
IMAGES: dict[str, Any] = {
    "data.params": {"shape": "image"},
    "models.small": {"name": "cnn_femnist", "params": {"layers": 2}},
    "models.large": {"name": "cnn_femnist", "params": {"layers": 3}},
}
"""Features of 64 x 4 x 4 numbers."""
SAMPLES = 32
"""Training samples of each client."""


def made(overrides: Mapping[str, Any] | None = None, **changes: Any) -> Parts:
    """Return the parts of the scenario, with other settings and other parts."""
    scenario = fedsim.load(SCENARIO, overrides or {}, algorithm=Splits)
    return replace(build(scenario), **changes)


def fingerprint(result: RunResult) -> tuple[Any, ...]:
    accuracy = None if result.final is None else result.final.mean
    return result.trace_hash, result.model_hash, result.simulated_s, result.totals, accuracy


EVERY_WAY = list(product((1, 2, 4), ("auto", "off")))


@pytest.mark.parametrize(
    ("task", "ways"),
    [
        pytest.param({}, [(2, "off")], id="flat, one way"),
        pytest.param({}, EVERY_WAY, id="flat, every way", marks=pytest.mark.slow),
        pytest.param(IMAGES, EVERY_WAY, id="images, every way", marks=pytest.mark.slow),
    ],
)
def test_nothing_changes_a_bit(task: dict[str, Any], ways: Sequence[tuple[int, str]]) -> None:
    first = run(made(task))
    assert [row.merged for row in first.rounds] == [CLIENTS] * 3
    assert first.final is not None
    assert first.final.mean is not None
    for workers, batching in ways:
        engine = {"engine.workers": workers, "engine.batching": batching}
        assert fingerprint(run(made(task | engine))) == fingerprint(first)
    assert fingerprint(run(made(task, verify=True))) == fingerprint(first)


def test_the_composed_models_learn() -> None:
    # Of ten classes, from 32 samples a client.
    means = [row.accuracy.mean for row in run(made({"run.rounds": 12})).rounds if row.accuracy is not None]
    assert max(mean for mean in means if mean is not None) > 0.4


@pytest.mark.parametrize(
    ("task", "batching"),
    [
        pytest.param({}, "auto", id="flat"),
        pytest.param({}, "off", id="flat, one by one", marks=pytest.mark.slow),
        pytest.param(IMAGES, "auto", id="images", marks=pytest.mark.slow),
        pytest.param(IMAGES, "off", id="images, one by one", marks=pytest.mark.slow),
    ],
)
def test_sockets_change_nothing(task: dict[str, Any], batching: str, world: Any) -> None:
    here = run(made(task))
    there = world.over_sockets(partial(made, task | {"engine.batching": batching}))
    assert there.model_hash == here.model_hash
    assert there.totals == replace(here.totals, overhead_up=0, overhead_down=0)
    assert there.best == here.best
    assert not there.rejections


@pytest.mark.parametrize(
    ("task", "f"),
    [pytest.param({}, 12, id="flat"), pytest.param(IMAGES, 64 * 4 * 4, id="images", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("executor", ["threads", "null"])
def test_the_ledger_counts_features_and_logits_and_the_frames_hold_labels(
    task: dict[str, Any], f: int, executor: str
) -> None:
    result, n = run(made(task | {"engine.executor": executor})), CLIENTS * SAMPLES
    assert result.totals.parameters_up == 3 * n * (f + 10)
    assert result.totals.parameters_down == 2 * n * 10  # nothing yet in round 1
    columns = result.ledger.columns()
    ups = columns["bytes"][columns["up"]]
    assert len(ups) == 3 * CLIENTS
    # Features and logits of four bytes, labels of eight.
    assert (ups - SAMPLES * (4 * (f + 10) + 8) < 500).all()
    assert (ups - SAMPLES * (4 * (f + 10) + 8) > 0).all()


def test_features_cost_their_layers_and_logits_the_rest() -> None:
    trace = Trace(keep=True)
    parts = made(IMAGES)
    run(parts, trace=trace)
    jobs = [record[4:6] for record in trace.kept if record[1] == "job_start" and record[2] == 0]
    assert [name for name, _ in jobs] == ["fit", "predict", "predict"] * 3
    small = parts.architectures["small"]
    lower, upper, whole = (forward(one, SAMPLES).flops for one in (small.below(2), small.above(2), small))
    assert jobs[1][1] == lower
    assert jobs[2][1] == upper
    assert lower + upper == whole
    # The server's fit is that of its upper layers alone.
    fit = next(record for record in trace.kept if record[1] == "job_start" and record[2] == -1)
    samples = forward(parts.architectures["large"].above(2), CLIENTS * SAMPLES).flops
    assert 2 * samples <= fit[5] <= 3 * samples


def test_parts_need_the_memory_of_their_own_layers() -> None:
    parts = made(IMAGES)
    large, training = parts.architectures["large"], parts.training
    whole, upper = (needed_bytes(one, 8, training) for one in (large, large.above(2)))
    lower = needed_bytes(large.below(2), 8, training)
    assert max(lower, upper) < whole
    # Both hold the features and the labels of a batch.
    assert lower + upper == whole + 8 * (4 * 64 * 4 * 4 + 8)


class Watched(Splits):
    """Keeps what each client has made and sent, and what the server had said before."""

    def __init__(self) -> None:
        super().__init__(Config())
        self.seen: list[tuple[int, Any, FeatureMaps, ServerLogits | None]] = []

    async def train(self, client: Any, state: Any, message: Any) -> Any:
        after, maps = await super().train(client, state, message)
        logits = await client.predict(after.model, client.own("train"))
        self.seen.append((client.client, logits, maps, message))
        return after, maps


def test_upper_layers_say_of_features_what_the_model_says_of_samples() -> None:
    algorithm = Watched()
    parts = made(IMAGES, algorithm=algorithm)
    run(parts)
    assert len(algorithm.seen) == 3 * CLIENTS
    for number, (client, logits, maps, said) in enumerate(algorithm.seen):
        np.testing.assert_allclose(maps.logits, logits, rtol=1e-4, atol=1e-5)
        labels = parts.data.y[parts.data.indices(client, "train")]
        np.testing.assert_array_equal(maps.labels, labels)
        assert maps.labels.dtype == np.int64
        assert (said is None) == (number < CLIENTS)


def test_features_of_another_shape_are_rejected_and_other_models_refused() -> None:
    class Lying(Splits):
        async def train(self, client: Any, state: Any, message: Any) -> Any:
            after, maps = await super().train(client, state, message)
            return after, replace(maps, features=maps.features[:, :-1]) if client.client == 1 else maps

    result = run(made({}, algorithm=Lying(Config())))
    assert result.rejections == {"features of shape (32, 11)": 3}
    with pytest.raises(ScenarioError, match=r"features are of shape \(7,\), the server takes \(12,\)"):
        made({"models.small.params.hidden": [7]})


def test_what_is_measured_is_a_model_of_the_result(tmp_path: Path) -> None:
    result = fedsim.run(SCENARIO, algorithm=Splits, overrides={"run.save_models": True}, out=tmp_path / "run")
    again = fedsim.open(tmp_path / "run")
    assert isinstance(again, fedsim.Result)
    x = torch.rand(5, 64, generator=Key.root(0).torch())
    nets = [one.model(2) for one in (result, again)]
    assert list(dict(nets[0].named_children())) == ["body", "head"]
    with torch.no_grad():
        assert nets[0](x).shape == (5, 10)
        assert torch.equal(nets[0](x), nets[1](x))
        assert not torch.equal(nets[0](x), result.model(2, name="small")(x))


def test_a_check_rehearses_it() -> None:
    rehearsal = rehearse(made(IMAGES))
    assert rehearsal.totals.parameters_up == 3 * CLIENTS * SAMPLES * (64 * 4 * 4 + 10)
