"""FedGKT: the specification's sanity checks (5.C.5)."""

import asyncio
from dataclasses import replace
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedsim
from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.fedgkt import FeatureMaps, ServerLogits, ServerState, Transfer, unusable
from fedsim.clock import Trace
from fedsim.engine.losses import Batch
from fedsim.engine.memory_need import needed_bytes
from fedsim.engine.training_config import TrainingConfig
from fedsim.models import Architecture
from fedsim.models.flops import forward
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Array, Model
from fedsim.planning.rehearsal import rehearse
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import run
from fedsim.scenario import build

QUICK = {"server_epochs": 2}


def _small_models(
    world: Any, name: str, params: dict[str, Any], **changes: Any
) -> dict[tuple[int, int], bytes]:
    """Return what each client has trained, by round and client."""
    algorithm = world.algorithm(name, **params)
    calls = world.recorded(algorithm, "train")
    world.run(algorithm, **changes)
    found = {}
    for (client, *_), (after, _) in calls:
        found[client.round, client.client] = after.digest()
    return found


# Arithmetic


def test_the_loss_has_both_terms() -> None:
    logits, teacher = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 4.0]])
    models: Any = {"model": lambda x: logits}
    batches = {"train": Batch(torch.zeros(1, 1), torch.tensor([0]))}
    found = float(Transfer(0.5, 3.0, 2.0)(models, batches, {"teacher": teacher}))
    hard = log(1 + exp(-2))
    own, other = 1 / (1 + exp(-1)), 1 / (1 + exp(2))
    divergence = other * log(other / own) + (1 - other) * log((1 - other) / (1 - own))
    assert found == pytest.approx(0.5 * hard + 3 * 4 * divergence, rel=1e-5)


MAPS = FeatureMaps(
    np.array([1, 0]), np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32), np.array([3, 0])
)


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        ({}, None),
        ({"labels": np.array([4, 0])}, "labels"),
        ({"labels": np.array([-1, 0])}, "labels"),
        ({"labels": np.zeros(0, np.int64)}, "labels"),
        ({"features": np.zeros((2, 2), np.float32)}, "features of shape"),
        ({"logits": np.zeros((2, 3), np.float32)}, "features of shape"),
        ({"sample_ids": np.array([1, 1])}, "samples that are not"),
        ({"sample_ids": np.array([1, 2])}, "samples that are not"),
    ],
)
def test_what_cannot_be_is_refused(lie: dict[str, Any], fault: str | None) -> None:
    found = unusable(replace(MAPS, **lie), (3,), 4)
    assert (found is None) if fault is None else (found or "").startswith(fault)


# One turn


def _party(met: dict[str, Any], **attributes: Any) -> Any:
    """Return a client or a server that trains nothing, and writes down how it was asked to."""

    async def fit(model: Model, **work: Any) -> Any:
        met.update(work)
        return SimpleNamespace(model=model)

    return SimpleNamespace(fit=fit, **attributes)


def test_a_client_learns_from_the_logits_on_each_of_its_samples(world: Any) -> None:
    algorithm = world.algorithm("fedgkt", alpha=0.5, temperature=2.0)
    parts, met = world.parts(algorithm), dict[str, Any]()

    async def predict(model: Model, samples: Any) -> Array:
        return np.zeros((3, 2), np.float32)

    client = _party(
        met,
        architecture="mlp",
        architectures=parts.architectures,
        own=lambda split: split,
        num_samples=lambda: 3,
        predict=predict,
        labels=lambda samples: np.zeros(3, np.int64),
    )
    message = ServerLogits(np.array([2, 0, 1]), np.array([[2, -2], [0, 0], [1, -1]], np.float32))
    asyncio.run(algorithm.train(client, parts.initial()("mlp"), message))
    assert sorted(met) == ["extras", "step"]  # its own samples, in their order
    assert met["extras"]["teacher"].stream == "train"
    assert met["extras"]["teacher"].value.tolist() == [[0, 0], [1, -1], [2, -2]]
    assert met["step"].loss == Transfer(1.0, 0.5, 2.0)


def test_the_server_learns_from_the_logits_of_each_client_on_its_features(world: Any) -> None:
    met = dict[str, Any]()
    server = _party(met, round=1, training=TrainingConfig())
    one, other = (
        FeatureMaps(
            np.arange(2),
            np.array([[first], [first + 1]], np.float32),
            np.array([[first, 0], [first + 1, 0]], np.float32),
            np.array([first, first + 1]),
        )
        for first in (0, 2)
    )
    replies = [Reply(client, 0, "train", 0, 0, 1.0, maps) for client, maps in enumerate((one, other))]
    algorithm = world.algorithm("fedgkt", alpha=0.5, temperature=2.0)
    asyncio.run(algorithm.merge(server, ServerState(Model("mlp[2:]", {})), replies))
    met_samples = met["streams"]["train"].samples
    assert met_samples.x.tolist() == [[0], [1], [2], [3]]
    assert met_samples.y.tolist() == [0, 1, 2, 3]
    assert met["extras"]["teacher"].stream == "train"
    assert met["extras"]["teacher"].value.tolist() == [[0, 0], [1, 0], [2, 0], [3, 0]]
    assert met["step"].loss == Transfer(0.5, 1.0, 2.0)


# Runs


def test_clients_train_alone_first_and_with_alpha_zero_always(world: Any) -> None:
    local = _small_models(world, "local", {})
    usual = _small_models(world, "fedgkt", QUICK)
    apart = _small_models(world, "fedgkt", {**QUICK, "alpha": 0.0})
    assert apart == local
    assert all((usual[place] == local[place]) == (place[0] == 1) for place in local)


def test_features_logits_and_labels_are_those_of_the_samples(world: Any) -> None:
    algorithm, data = world.algorithm("fedgkt", **QUICK), world.data()
    calls = world.recorded(algorithm, "train")
    world.run(algorithm, rounds=1)
    for (client, *_), (model, maps) in calls:
        own = data.indices(client.client, "train")
        np.testing.assert_array_equal(maps.labels, data.y[own])
        weight, bias, head, head_bias = model.params.values()
        hidden = np.maximum(data.x[own] @ weight.T + bias, 0)
        np.testing.assert_allclose(maps.features, hidden, atol=1e-5)
        np.testing.assert_allclose(maps.logits, hidden @ head.T + head_bias, atol=1e-4)


def test_a_client_that_has_lied_about_its_samples_ends_no_run(world: Any) -> None:
    def lying(fewer: int) -> Any:
        def lie(client: Any, maps: FeatureMaps) -> FeatureMaps:
            if client.client:
                return maps
            n = len(maps.labels) - fewer
            rows = np.arange(n) % len(maps.labels)
            return FeatureMaps(np.arange(n), maps.features[rows], maps.logits[rows], maps.labels[rows])

        return world.run(world.lying(world.algorithm("fedgkt", server_epochs=1), "train", lie), rounds=3)

    assert lying(5).by_client["rejected"].tolist() == [0, 0, 0, 0]
    assert lying(-5).by_client["rejected"].tolist() == [3, 0, 0, 0]


def test_the_servers_optimiser_goes_on_from_round_to_round(world: Any) -> None:
    def upper(forgets: bool) -> list[bytes]:
        algorithm, models = world.algorithm("fedgkt", **QUICK), list[bytes]()
        merge = algorithm.merge

        async def watching(server: Any, state: ServerState, replies: Any) -> ServerState:
            after = await merge(server, replace(state, optimisers={}) if forgets else state, replies)
            models.append(after.upper.digest())
            return after  # type: ignore[no-any-return]

        algorithm.merge = watching
        world.run(algorithm, rounds=2, training={"momentum": 0.9})
        return models

    (first, goes_on), (same, begins_anew) = upper(False), upper(True)
    assert first == same
    assert goes_on != begins_anew


def test_the_ledger_counts_features_and_logits(world: Any) -> None:
    totals = world.run(world.algorithm("fedgkt", **QUICK)).totals
    n = [world.data().num_samples(client, "train") for client in range(4)]
    assert totals.parameters_up == 3 * sum(n) * (16 + 10)
    assert totals.parameters_down == 2 * sum(n) * 10  # nothing in round 1
    assert totals.frames_down == 2 * 4
    ups = 3 * sum(4 * one * (16 + 10) + 16 * one for one in n)
    downs = 2 * sum(4 * one * 10 + 8 * one for one in n)
    assert 0 < totals.bytes_up - ups < 3 * 4 * 400
    assert 0 < totals.bytes_down - downs < 2 * 4 * 300


def test_who_was_never_heard_of_learns_from_labels_and_counts_in_no_global_mean(world: Any) -> None:
    algorithm = world.algorithm("fedgkt", **QUICK)
    calls, models = world.recorded(algorithm, "send"), world.watched(algorithm)
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 1, client_timeout_s=9.0)
    for _, (_, sent) in calls[1:]:
        assert [client for client, message in sent.items() if message is None] == [1]
    assert [sorted(models[client]) for client in range(4)] == [
        ["global", "personal"],
        ["personal"],
        ["global", "personal"],
        ["global", "personal"],
    ]


def test_the_server_makes_fewer_passes_later(world: Any) -> None:
    passes = []

    for at in (1, 20, 21, 31, 41, 101, 151):
        server = _party(met := dict[str, Any](), round=at, training=TrainingConfig())
        replies = [Reply(0, 0, "train", 0, 0, 1.0, MAPS)]
        after = asyncio.run(
            world.algorithm("fedgkt").merge(server, ServerState(Model("mlp[2:]", {})), replies)
        )
        assert list(after.maps) == [0]
        passes.append(met["epochs"])
    assert passes == [20, 20, 15, 10, 5, 3, 2]


def test_models_that_do_not_fit_are_refused(world: Any) -> None:
    task = world.data().task

    def setting(label: str, small: tuple[int, ...], large: tuple[int, ...]) -> Setting:
        made = [Architecture(label, MLP(MLP.Config(hidden=hidden)), task) for hidden in (small, large)]
        return Setting(task, {label: made[0]}, made[1], 0, True)

    algorithm = world.algorithm("fedgkt")
    assert not list(algorithm.misfits(setting("a", (8,), (8, 9))))
    (fault,) = algorithm.misfits(setting("b", (8,), (9,)))
    assert fault.path == "models.b"
    assert "features are of shape (8,), and the server's layers take (9,)" in str(fault)
    (fault,) = world.algorithm("fedgkt", cut=3, server_cut=-1).misfits(setting("c", (8,), (8,)))
    assert fault.path == "algorithm.params.cut"
    assert not list(world.algorithm("fedgkt", cut=2, server_cut=3).misfits(setting("d", (8,), (9, 8))))


@pytest.mark.parametrize(
    ("plugin", "cut", "mend"),
    [
        (MLP(MLP.Config(hidden=(8,))), 1, "cut it at 2 to 2"),
        (MLP(MLP.Config(hidden=(8, 8))), -3, "cut it at 2 to 3"),
        (LINEAR(LINEAR.Config()), -1, "take a model with hidden layers"),
    ],
)
def test_a_cut_that_would_send_samples_is_refused(plugin: Any, cut: int, mend: str, world: Any) -> None:
    # The first layer of these is `flatten`.
    task = world.data().task
    net = Architecture("net", plugin, task)
    (fault,) = world.algorithm("fedgkt", cut=cut).misfits(Setting(task, {"net": net}, net, 0, True))
    assert fault.path == "algorithm.params.cut"
    assert f"no parameters below a cut at {cut}, so the samples would leave the clients" in str(fault)
    assert mend in str(fault)


# Cut models


CLIENTS = 4
SCENARIO: dict[str, Any] = {
    "run": {"name": "features", "rounds": 3},
    "data": {"name": "digits", "limit": 160, "partition": "iid", "split": [0.8, 0.0, 0.2]},
    "models": {
        "small": {"name": "mlp", "params": {"hidden": [12]}},
        "large": {"name": "mlp", "params": {"hidden": [12, 20]}},
    },
    "algorithm": {"name": "fedgkt", "params": {"server_epochs": 1}},
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


def _made() -> Parts:
    return build(fedsim.load(SCENARIO, IMAGES))


def test_features_cost_their_layers_and_logits_the_rest() -> None:
    trace = Trace(keep=True)
    parts = _made()
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
    parts = _made()
    large, training = parts.architectures["large"], parts.training
    whole, upper = (needed_bytes(one, 8, training) for one in (large, large.above(2)))
    lower = needed_bytes(large.below(2), 8, training)
    assert max(lower, upper) < whole
    # Both hold the features and the labels of a batch.
    assert lower + upper == whole + 8 * (4 * 64 * 4 * 4 + 8)


def test_what_is_measured_is_a_model_of_the_result(tmp_path: Path) -> None:
    result = fedsim.run(SCENARIO, overrides={"run.save_models": True}, out=tmp_path / "run")
    again = fedsim.open(tmp_path / "run")
    assert isinstance(again, fedsim.Result)
    x = torch.rand(5, 64, generator=Key.root(0).torch())
    nets = [one.model(2) for one in (result, again)]
    assert list(dict(nets[0].named_children())) == ["body", "head"]
    with torch.no_grad():
        assert nets[0](x).shape == (5, 10)
        assert torch.equal(nets[0](x), nets[1](x))


def test_a_check_rehearses_it() -> None:
    rehearsal = rehearse(_made())
    assert rehearsal.totals.parameters_up == 3 * CLIENTS * SAMPLES * (64 * 4 * 4 + 10)
