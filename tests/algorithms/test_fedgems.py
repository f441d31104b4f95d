"""FedGEMS: the specification's sanity checks (5.C.6)."""

import asyncio
from dataclasses import replace
from math import exp, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.base import Setting
from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.fedgems import ClientState, Lesson, fused, guided
from fedsim.engine.jobs import InlineSamples
from fedsim.engine.losses import Batch
from fedsim.params import Array, Model

PUBLIC = 40


# Arithmetic


def test_clients_that_are_right_are_heavier_the_surer_they_are() -> None:
    z = np.array([[[3.0, 0.0]], [[1.0, 0.0]], [[0.0, 9.0]]], np.float32)
    found, known = fused(z, np.ones((3, 1), np.bool_), np.array([0]))

    def sureness(gap: float) -> float:
        p = 1 / (1 + exp(-gap))
        return exp(-1 / (p * log(p) + (1 - p) * log(1 - p)))

    first = sureness(3) / (sureness(3) + sureness(1))
    np.testing.assert_allclose(found, softmax(np.array([[3 * first + (1 - first), 0.0]])), rtol=1e-5)
    assert known.tolist() == [True]


def test_where_nobody_is_right_or_has_the_sample_nothing_is_taught() -> None:
    z = np.array([[[3.0, 0.0], [0.0, 3.0]], [[9.0, 0.0], [0.0, 0.0]]], np.float32)
    given = np.array([[True, True], [False, False]])
    found, known = fused(z, given, np.array([1, 1]))
    assert known.tolist() == [False, True]
    np.testing.assert_allclose(found, softmax(np.array([[0.0, 0.0], [0.0, 3.0]])))


def test_a_certain_client_does_not_overflow() -> None:
    z = np.array([[[1e4, 0.0]], [[1.0, 0.0]]], np.float32)
    found, _ = fused(z, np.ones((2, 1), np.bool_), np.array([0]))
    np.testing.assert_allclose(found, [[1.0, 0.0]])


def test_without_imitation_the_loss_is_that_of_supervised_training() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=generator)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    teacher = torch.softmax(torch.randn(6, 4, generator=generator), 1)
    models: Any = {"model": SimpleNamespace(public=lambda x: x)}
    losses = []
    for imitation in (0.0, 0.25, 1.0):
        extras = {"teacher": teacher, "labels": labels, "imitation": torch.full((6,), imitation)}
        losses.append(float(guided(models, {"public": Batch(x, None)}, extras)))
    assert losses[0] == pytest.approx(float(torch.nn.functional.cross_entropy(x, labels)))
    divergence = torch.nn.functional.kl_div(torch.log_softmax(x, 1), teacher, reduction="batchmean")
    assert losses[2] == pytest.approx(float(divergence), rel=1e-5)
    assert losses[1] == pytest.approx(0.75 * losses[0] + 0.25 * losses[2], rel=1e-5)


# One turn


def test_a_client_learns_from_the_server_then_from_its_own_samples_then_predicts(world: Any) -> None:
    trainings: list[tuple[Model, dict[str, Any]]] = []

    def model(value: int) -> Model:
        return Model("mlp", {"w": np.array([value], np.float32)})

    class Client:
        num_public, public_at_clients, training = 3, False, SimpleNamespace(batch_size=2)

        async def fit(self, start: Model, **work: Any) -> Any:
            trainings.append((start, work))
            return SimpleNamespace(model=model(len(trainings)))

        async def predict(self, trained: Model, samples: InlineSamples) -> Array:
            return samples.x + trained.params["w"]

    state = ClientState(model(0), np.array([[10], [20], [30]], np.float32), np.array([0, 1, 1]))
    logits = np.array([[0, 0], [2, 0], [0, 3]], np.float32)
    learn = world.algorithm("fedgems", epsilon=0.25).local_learn
    after, reply = asyncio.run(learn(Client(), state, Lesson(logits, np.array([2, 0]))))
    (start, distilling), (between, training) = trainings
    assert [float(one.params["w"][0]) for one in (start, between, after.model)] == [0, 1, 2]
    assert distilling["streams"]["public"].samples.x.tolist() == [[10], [20], [30]]
    extras = distilling["extras"]
    assert {name: extra.stream for name, extra in extras.items()} == dict.fromkeys(extras, "public")
    np.testing.assert_array_equal(extras["teacher"].value, softmax(logits))
    assert extras["labels"].value.tolist() == [0, 1, 1]
    assert extras["imitation"].value.tolist() == [0.75] * 3
    assert not training  # its own samples
    assert reply.values.tolist() == [[32], [12]]


# Runs


def test_only_logits_on_samples_that_the_server_never_had_right_go_up(world: Any) -> None:
    algorithm = world.algorithm("fedgems")
    calls = world.recorded(algorithm, "instruct_learn")
    totals = world.run(algorithm).totals
    wanted = [len(state.wanted) for _, (state, _) in calls]
    assert wanted[0] > wanted[-1] > 0
    assert totals.parameters_up == 4 * 10 * sum(wanted)
    assert totals.parameters_down == 3 * 4 * PUBLIC * 10
    assert 0 < totals.bytes_up - 4 * totals.parameters_up < 3 * 4 * 300
    assert 0 < totals.bytes_down - 4 * totals.parameters_down - 4 * 8 * sum(wanted) < 3 * 4 * 300
    for (_, before, _), (after, messages) in calls:
        assert (after.pooled >= before.pooled).all()
        assert after.wanted.tolist() == np.flatnonzero(~after.pooled).tolist()
        assert messages[0].wanted is after.wanted
        # The pool has what the server said when it was right.
        lesson = messages[0].values
        np.testing.assert_array_equal(after.pool[after.right], lesson[after.right])
        np.testing.assert_array_equal(after.pool[~after.right], before.pool[~after.right])


def _predicted(model: Any, x: Array) -> Array:
    weight, bias, head, head_bias = model.params.values()
    found: Array = (np.maximum(x @ weight.T + bias, 0) @ head.T + head_bias).argmax(axis=1)
    return found


def test_where_the_server_is_right_everywhere_nothing_goes_up(world: Any) -> None:
    algorithm, data = world.algorithm("fedgems"), world.data()
    y = data.y.copy()
    y[data.public] = _predicted(world.parts(algorithm).initial()("mlp"), data.x[data.public])
    totals = world.run(algorithm, data=replace(data, y=y), rounds=1).totals
    assert totals.parameters_up == 0
    assert totals.bytes_up < 4 * 300


def _taught(world: Any, **params: Any) -> list[Any]:
    """Return the states before each training of the server, and what it learned from."""
    algorithm = world.algorithm("fedgems", **params)
    seen: list[Any] = []
    merge = algorithm.merge_learn

    async def watched(server: Any, state: Any, replies: Any) -> Any:
        fit = server.fit

        async def watching(model: Any, **work: Any) -> Any:
            seen.append((state, replies, {name: extra.value for name, extra in work["extras"].items()}))
            return await fit(model, **work)

        server.fit = watching
        return await merge(server, state, replies)

    algorithm.merge_learn = watched
    world.run(algorithm, rounds=4)
    return seen


def test_the_server_learns_from_labels_where_it_is_right_and_else_from_who_was(world: Any) -> None:
    data, cases = world.data(), np.zeros(4, np.int64)
    for state, replies, extras in _taught(world):
        labels = data.y[data.public]
        np.testing.assert_array_equal(extras["labels"], labels)
        for x in range(PUBLIC):
            rows = [reply.message.values for reply in replies] if x in state.wanted else []
            heard = [row[state.wanted.tolist().index(x)] for row in rows]
            if state.right[x]:
                case, weight = 0, 0.0
            elif state.pooled[x]:
                case, weight = 1, 0.5
                np.testing.assert_allclose(extras["teacher"][x], softmax(state.pool[x]), rtol=1e-5)
            elif any(one.argmax() == labels[x] for one in heard):
                case, weight = 2, 0.5
                assert extras["teacher"][x].argmax() == labels[x]
            else:
                case, weight = 3, 0.0
            assert extras["imitation"][x] == weight
            cases[case] += 1
    assert (cases > 0).all()


def test_with_epsilon_one_the_server_learns_from_labels_alone(world: Any) -> None:
    assert all((extras["imitation"] == 0).all() for _, _, extras in _taught(world, epsilon=1.0))


def test_a_public_set_that_is_delivered_brings_its_labels(world: Any) -> None:
    sent = replace(world.data(), public_at_clients=False)
    usual, delivered = (
        world.run(world.algorithm("fedgems"), data=data, rounds=1) for data in (world.data(), sent)
    )
    # The server's generators are named by its version, so its own model is another.
    for one, other in zip(usual.models.values(), delivered.models.values(), strict=True):
        assert one["personal"].digest() == other["personal"].digest()
    assert delivered.totals.data_down > 4 * PUBLIC * (64 + 2 * 8)
    assert delivered.totals.parameters_down == usual.totals.parameters_down


def test_who_has_no_public_samples_trains_alone(world: Any) -> None:
    data = replace(world.data(), public_at_clients=False)
    algorithm = world.algorithm("fedgems")
    calls = world.recorded(algorithm, "local_learn")
    result = world.run(
        algorithm, data=data, lost=lambda parcel, n: n < 4 and parcel.receiver == 1, client_timeout_s=9.0
    )
    assert not result.rejections
    replies = {(client.client, client.round): reply for (client, *_), (_, reply) in calls}
    assert all((len(reply.values) == 0) == (client == 1) for (client, _), reply in replies.items())


def test_a_public_set_without_labels_is_refused(world: Any) -> None:
    architecture = world.parts(world.algorithm("fedgems")).architectures["mlp"]
    setting = Setting(world.data().task, {"mlp": architecture}, architecture, PUBLIC, False)
    assert "data.public.source" in world.misfits(world.algorithm("fedgems"), setting)
    assert not world.misfits(world.algorithm("fedgems"), replace(setting, public_labelled=True))


def test_architectures_may_differ(world: Any) -> None:
    models = world.run(world.algorithm("fedgems"), models=("mlp", "linear"), rounds=1).models
    assert {one["personal"].architecture for one in models.values()} == {"mlp", "linear"}
