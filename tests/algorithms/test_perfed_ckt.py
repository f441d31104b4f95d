"""PerFed-CKT: the specification's sanity checks (5.E.5)."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.contexts import ignored
from fedsim.algorithms.perfed_ckt import Centroids, ClientState, CloseToTeacher, nearest
from fedsim.engine.losses import Batch
from fedsim.errors import UserError
from fedsim.params import Array, Model
from fedsim.runtime.run import run
from fedsim.task import Task
from fedsim.wire import LogitsUp, indices_digest, num_parameters
from tests.algorithms.stand_ins import nth
from tests.engine.conftest import Table

P, CLASSES = 40, 10


def _recorded(world: Any, algorithm: Any) -> tuple[list[Any], list[Any]]:
    """Return lists that will hold clients' turns, and the server's states."""

    def turn(client: Any, state: Any, message: Any, result: Any) -> Any:
        return client.client, client.round, state, message, result[0]

    return world.recorded(algorithm, "train", turn), world.results(algorithm, "merge")


def _logits(model: Model, x: Array) -> Array:
    """The linear architecture by hand."""
    weight, bias = model.params.values()
    result: Array = x @ weight.T + bias
    return result


def test_nearest_by_hand() -> None:
    centroids = np.array([[[1, 0]], [[0, 1]], [[1, 0]]], np.float32)
    assert nearest(centroids, np.array([[0.4, 0.6]], np.float32)) == 1
    assert nearest(centroids, np.array([[0.6, 0.4]], np.float32)) == 0  # of equals the first
    assert nearest(centroids, np.array([[0.5, 0.5]], np.float32)) == 0


def test_hardly_any_weight_is_local_but_for_rounding(world: Any) -> None:
    # With the public batches in every step: the private ones come in the same order as Local's.
    algorithm, local = world.algorithm("perfed_ckt", lam=1e-12), world.algorithm("local")
    seen, its = world.watched(algorithm), world.watched(local)
    world.run(algorithm)
    world.run(local)
    for client in range(4):
        for name, array in its[client]["personal"].params.items():
            np.testing.assert_allclose(seen[client]["personal"].params[name], array, rtol=1e-4, atol=1e-5)


def test_one_cluster_is_co_distillation_with_the_mean(world: Any) -> None:
    # One step on everything, computed by hand from the states before it.
    data, lam, lr = world.data(), 0.7, 0.1
    algorithm = world.algorithm("perfed_ckt", clusters=1, lam=lam, public_batch_size=P)
    turns, states = _recorded(world, algorithm)
    training = {"steps": 1, "batch_size": 500, "lr": lr}
    world.run(algorithm, models=("linear", "linear"), rounds=2, training=training)
    first = [turn for turn in turns if turn[1] == 1]
    public = data.x[data.public]
    assert all(message is None for _, _, _, message, _ in first)
    predictions = np.stack(
        [softmax(_logits(after.model, public)) for *_, after in sorted(first, key=_client)]
    )
    np.testing.assert_allclose(states[0].centroids[0], predictions.mean(axis=0), atol=1e-6)
    assert states[0].counts.tolist() == [4]
    for client, _, before, message, after in (turn for turn in turns if turn[1] == 2):
        assert np.array_equal(message.values, states[0].centroids)
        weight, bias = (torch.tensor(array, requires_grad=True) for array in before.model.params.values())
        own = data.indices(client, "train")
        logits = torch.tensor(data.x[own]) @ weight.T + bias
        label_loss = torch.nn.functional.cross_entropy(logits, torch.tensor(data.y[own]))
        given = torch.softmax(torch.tensor(public) @ weight.T + bias, 1)
        distance = (given - torch.tensor(message.values[0])).pow(2).sum() / P
        (label_loss + lam * distance).backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        assert bias.grad is not None
        expected = [weight.detach() - lr * weight.grad, bias.detach() - lr * bias.grad]
        for found, wanted in zip(after.model.params.values(), expected, strict=True):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


def _client(turn: Any) -> int:
    client: int = turn[0]
    return client


@pytest.mark.parametrize("wanted", [4, 9])
def test_with_a_cluster_for_each_all_are_pulled_to_their_own_last_predictions(
    wanted: int, world: Any
) -> None:
    algorithm = world.algorithm("perfed_ckt", clusters=wanted)
    turns, states = _recorded(world, algorithm)
    world.run(algorithm)
    assert [state.counts.tolist() for state in states] == [[1, 1, 1, 1]] * 3
    for _, number, before, message, _ in turns:
        if number > 1:
            own = message.values[nearest(message.values, before.predictions)]
            assert np.array_equal(own, before.predictions)


def test_two_groups_with_disjoint_labels_separate(world: Any) -> None:
    data = world.data()
    everything = np.concatenate([data.indices(client, "train") for client in range(4)])
    low, high = everything[data.y[everything] < 5], everything[data.y[everything] >= 5]
    data = world.holding(data, "train", [low[::2], high[::2], low[1::2], high[1::2]])
    algorithm = world.algorithm("perfed_ckt", clusters=2)
    turns, states = _recorded(world, algorithm)
    world.run(algorithm, data=data, rounds=3, training={"epochs": 8})
    assert [state.labels.tolist() for state in states] == [[0, 1, 0, 1]] * 3
    for client, number, before, message, _ in turns:
        if number > 1:
            assert nearest(message.values, before.predictions) == client % 2


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_numbers_communicated_follow_the_formula(wanted: int, world: Any) -> None:
    for p in (P, 25):
        settings = {"clusters": wanted} | ({} if p == P else {"public_size": p})
        result = world.run(world.algorithm("perfed_ckt", **settings), clients_per_round=3)
        assert [row.round for row in result.rounds] == [0, 1, 2, 3]
        assert result.rounds[0].traffic.frames_down == 0
        first, *others = [row.traffic for row in result.rounds[1:]]
        assert (first.parameters_down, first.frames_down) == (0, 0)
        for one in others:
            assert one.parameters_up + one.parameters_down == 3 * p * CLASSES * (wanted + 1)
            payload = 4 * wanted * p * CLASSES + 4 * wanted
            assert 3 * payload < one.bytes_down < 3 * (payload + 250)
        assert result.totals.parameters_up == 3 * 3 * p * CLASSES


class _Lone:
    """A client whose models predict one thing each, and that remembers what it has learned from."""

    client, num_public, public_at_clients = 0, 3, True
    warn = staticmethod(ignored)
    task = SimpleNamespace(kind="classification")
    training = SimpleNamespace(batch_size=8)

    def __init__(self, logits: Mapping[str, list[float]]) -> None:
        self.logits, self.fits = logits, list[dict[str, Any]]()

    def own(self, split: str) -> str:
        return split

    def public(self, positions: Array) -> list[int]:
        samples: list[int] = positions.tolist()
        return samples

    async def predict(self, model: Model, samples: list[int]) -> Array:
        rows = [self.logits[model.architecture]] * len(getattr(samples, "x", samples))
        return np.array(rows, np.float32).reshape(-1, 2)

    async def fit(self, model: Model, **how: Any) -> Any:
        self.fits.append({"model": model.architecture, **how})
        return SimpleNamespace(model=Model("trained", {}))


@pytest.mark.parametrize(("said", "wanted"), [(None, 1), ([0.9, 0.1], 0), ([0.2, 0.8], 1), ([0.55, 0.45], 2)])
def test_a_client_learns_from_the_centroid_nearest_to_its_last_predictions_or_its_first(
    said: list[float] | None, wanted: int, world: Any
) -> None:
    client = _Lone({"first": [0.0, log(4)], "trained": [0.0, 0.0]})  # (0.2, 0.8), and (0.5, 0.5)
    centroids = np.array([[[1, 0]] * 3, [[0, 1]] * 3, [[0.5, 0.5]] * 3], np.float32)
    message = Centroids(centroids, np.ones(3, np.int32))
    predictions = None if said is None else np.array([said] * 3, np.float32)
    algorithm = world.algorithm("perfed_ckt", public_batch_size=2, lam=0.3)
    before = ClientState(Model("first", {}), None, predictions)
    state, reply = asyncio.run(algorithm.train(client, before, message))
    (fit,) = client.fits
    assert fit["model"] == "first"
    assert fit["extras"]["teacher"].value.tolist() == centroids[wanted].tolist()
    assert fit["step"].loss == CloseToTeacher(0.3)
    assert (fit["streams"]["public"].samples, fit["streams"]["public"].batch_size) == ([0, 1, 2], 2)
    assert (fit["streams"]["train"].samples, fit["streams"]["train"].batch_size) == ("train", 8)
    assert state.model.architecture == "trained"
    assert reply.values.tolist() == state.predictions.tolist() == [[0.5, 0.5]] * 3


def test_a_client_that_gets_the_public_set_after_its_first_training_learns_from_centroids(world: Any) -> None:
    client = _Lone({"first": [0.0, log(4)], "trained": [log(4), 0.0]})
    client.public_at_clients = False
    message = Centroids(np.array([[[1, 0]] * 3, [[0, 1]] * 3], np.float32), np.ones(2, np.int32))
    algorithm = world.algorithm("perfed_ckt")
    state, reply = asyncio.run(algorithm.train(client, ClientState(Model("first", {})), message))
    assert len(reply.values) == 0
    state = replace(state, received=np.zeros((3, 4), np.float32))
    state, reply = asyncio.run(algorithm.train(client, state, message))
    alone, near = client.fits
    assert "extras" not in alone
    assert near["extras"]["teacher"].value.tolist() == [[1, 0]] * 3
    assert len(reply.values) == 3


def test_newcomers_learn_from_centroids_in_a_run(world: Any) -> None:
    algorithm = world.algorithm("perfed_ckt", clusters=2)
    turns, _ = _recorded(world, algorithm)
    result = world.run(algorithm, clients_per_round=2, rounds=6)
    newcomers = [turn for turn in turns if turn[2].predictions is None and turn[3] is not None]
    assert newcomers
    assert all(len(message.values) == 2 for _, _, _, message, _ in newcomers)
    assert all(after.predictions.shape == (P, CLASSES) for *_, after in turns)
    assert result.rejections.total() == 0


def test_a_lost_upload_keeps_the_model_and_is_not_clustered(world: Any) -> None:
    algorithm = world.algorithm("perfed_ckt", clusters=4)
    turns, states = _recorded(world, algorithm)
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 2, client_timeout_s=60.0)
    assert [state.counts.tolist() for state in states] == [[1, 1, 1]] * 3
    mine = sorted((turn for turn in turns if turn[0] == 2), key=lambda turn: int(turn[1]))
    for earlier, later in pairwise(mine):
        assert later[2] is earlier[4]  # it resumes from its own last model
        own = earlier[4].predictions
        assert all(not np.array_equal(centroid, own) for centroid in later[3].values)


def test_a_silent_round_keeps_the_centroids(world: Any) -> None:
    algorithm = world.algorithm("perfed_ckt")
    turns, states = _recorded(world, algorithm)
    of_round_2 = nth(range(5, 9), receiver=-1)
    world.run(algorithm, lost=of_round_2, client_timeout_s=60.0)
    assert len(states) == 2
    of_round = {number: message for _, number, _, message, _ in turns}
    assert np.array_equal(of_round[2].values, of_round[3].values)


def _reply(values: Array, named: Array, temperature: float = 1.0) -> Reply:
    message = LogitsUp(values.astype(np.float32), "probs", temperature, indices_digest(named))
    return Reply(0, 0, "train", 0, 0, 1.0, message)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (_reply(np.full((3, 2), 0.5), np.arange(3)), ""),
        (_reply(np.full((2, 2), 0.5), np.arange(2)), "other public samples"),
        (_reply(np.full((3, 3), 1 / 3), np.arange(3)), "shape (3, 3), not (3, 2)"),
        (_reply(np.full((3, 2), 0.6), np.arange(3)), "no probabilities"),
        (_reply(np.full((3, 2), 0.5), np.arange(3), temperature=2.0), "probs of temperature 2.0, not probs"),
    ],
)
def test_what_cannot_be_clustered_is_rejected(reply: Reply, reason: str, world: Any) -> None:
    server = SimpleNamespace(num_public=9, task=SimpleNamespace(num_outputs=2, kind="classification"))
    found = world.algorithm("perfed_ckt", public_size=3).vet(server, None, reply)
    assert (found is None) if not reason else (reason in found)


def test_centroids_that_contradict_themselves_are_refused() -> None:
    counts = np.array([1, 2], np.int32)
    assert num_parameters(Centroids(np.zeros((2, 3, 4), np.float32), counts)) == 24
    for values in (np.zeros((2, 3), np.float32), np.zeros((3, 3, 4), np.float32)):
        with pytest.raises(ValueError, match=r"shape \[C, p, N\]"):
            Centroids(values, counts)
    with pytest.raises(ValueError, match=r"shape \[C, p, N\]"):
        Centroids(np.zeros((0, 3, 4), np.float32), counts[:0])


def test_settings_that_cannot_be(world: Any) -> None:
    with pytest.raises(UserError, match="public_size: 41 samples, and the public set has 40"):
        world.run(world.algorithm("perfed_ckt", public_size=41))


def test_a_regressions_outputs_are_held_near_a_centroid_as_they_are(world: Any) -> None:
    # One batch of one sample: the outputs are 2 and 4; the target is 3, the centroid says 5.
    batches = {
        "train": Batch(torch.tensor([[2.0]]), torch.tensor([3.0])),
        "public": Batch(torch.tensor([[4.0]]), None),
    }
    loss = CloseToTeacher(0.5, classes=False)({"model": Table()}, batches, {"teacher": torch.tensor([[5.0]])})
    assert float(loss) == (2 - 3) ** 2 + 0.5 * (4 - 5) ** 2
    setting = Setting(Task((1,), 1, kind="regression"), {}, None, 5, True)  # type: ignore[arg-type]
    assert not world.misfits(world.algorithm("perfed_ckt"), setting)


def test_clustering_takes_the_servers_time(world: Any) -> None:
    parts = world.parts(world.algorithm("perfed_ckt"), rounds=1)
    parts.fleet.server = parts.fleet.server._replace(speed_flops=1e4)

    assert run(parts).simulated_s > 3 * 10 * 20 * 4 * 400 * 3 / 1e4
