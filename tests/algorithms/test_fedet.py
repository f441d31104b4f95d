"""Fed-ET: the specification's sanity checks (5.E.8)."""

import asyncio
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

from fedsim.algorithms.base import Reply, Setting
from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.fedet import EnsembleLoss, ServerState, certainty, consensus, head_of
from fedsim.engine.losses import Batch
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.models import Architecture
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.models.output_head import Representation
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.task import Task
from fedsim.wire import ModelUpdate

TASK = Task((1, 8, 8), 10)
SHAPE = Representation(width=12, hidden=(10, 8))
NETS = {
    "large": Architecture("large", MLP(MLP.Config(hidden=(24, 16), representation=SHAPE)), TASK),
    "small": Architecture("small", MLP(MLP.Config(hidden=(12,), representation=SHAPE)), TASK),
}
MIXED: dict[str, Any] = {"models": ("large", "small"), "architectures": NETS}
SIZES = {"large": 24 * 65 + 16 * 25 + 12 * 17, "small": 12 * 65}
HEAD = 10 * 13 + 8 * 11 + 10 * 9


def _logits(probabilities: Any) -> Any:
    return np.log(np.array(probabilities, np.float64)).astype(np.float32)


# The consensus


def _probabilities(logits: Any) -> Any:
    return softmax(logits).astype(np.float64)


def test_consensus_by_hand() -> None:
    # One sample, three classes. Variances: (0.7, 0.2, 0.1) has 0.0689, (0.1, 0.5, 0.4) has 0.0289.
    probabilities = [[[0.7, 0.2, 0.1]], [[0.1, 0.5, 0.4]]]
    first, second = (sum((p - 1 / 3) ** 2 for p in row[0]) / 3 for row in probabilities)
    logits = _logits(probabilities)
    agreed, weights = consensus(logits), certainty(_probabilities(logits))
    weight = second / (first + second)
    assert weights[:, 0] == pytest.approx([1 - weight, weight], abs=1e-6)
    assert agreed["label"].tolist() == [0]
    assert agreed["label"].dtype == np.int64
    assert agreed["share"] == pytest.approx([weight], abs=1e-6)
    assert agreed["dissent"][0] == pytest.approx([weight * p for p in (0.1, 0.5, 0.4)], abs=1e-6)
    assert agreed["dissent"].dtype == agreed["share"].dtype == np.dtype(np.float32)


def test_models_that_are_sure_of_nothing_weigh_the_same() -> None:
    logits = np.zeros((3, 2, 10), np.float32)
    agreed, weights = consensus(logits), certainty(_probabilities(logits))
    assert weights.tolist() == [[1 / 3] * 2] * 3
    assert agreed["label"].tolist() == [0, 0]  # of equal classes the lowest
    assert not agreed["share"].any()


def test_a_model_that_is_sure_of_nothing_has_no_say() -> None:
    logits = _logits([[[1 / 3] * 3], [[0.2, 0.5, 0.3]]])
    agreed, weights = consensus(logits), certainty(_probabilities(logits))
    assert weights[:, 0].tolist() == [0.0, 1.0]
    assert agreed["label"].tolist() == [1]
    assert agreed["share"].tolist() == [0.0]  # it dissents, and weighs nothing


def test_one_model_agrees_with_itself() -> None:
    logits = _logits([[[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]]])
    agreed, weights = consensus(logits), certainty(_probabilities(logits))
    assert weights.tolist() == [[1.0, 1.0]]
    assert agreed["label"].tolist() == [1, 0]
    assert not agreed["dissent"].any()


LOGITS = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(2, 6), st.integers(0, 10**6))


def _drawn(shape: tuple[int, int, int, int]) -> Any:
    generator = np.random.Generator(np.random.Philox(shape[3]))
    return (generator.normal(size=shape[:3]) * generator.choice([0, 1, 30], (shape[0], 1, 1))).astype(
        np.float32
    )


@given(LOGITS)
def test_laws_of_the_consensus(shape: tuple[int, int, int, int]) -> None:
    logits = _drawn(shape)
    agreed, weights = consensus(logits), certainty(_probabilities(logits))
    assert (weights >= 0).all()
    assert weights.sum(axis=0) == pytest.approx(np.ones(shape[1]))
    assert ((agreed["share"] >= 0) & (agreed["share"] <= 1 + 1e-6)).all()
    assert agreed["dissent"].sum(axis=1) == pytest.approx(agreed["share"], abs=1e-6)
    assert (agreed["dissent"] >= 0).all()


@given(LOGITS)
def test_the_order_of_models_makes_no_difference(shape: tuple[int, int, int, int]) -> None:
    logits = _drawn(shape)
    forward, backward = consensus(logits), consensus(logits[::-1])
    weights = certainty(_probabilities(logits))
    assert weights == pytest.approx(certainty(_probabilities(logits[::-1]))[::-1])
    same = forward["label"] == backward["label"]  # where two classes are all but equal, rounding decides
    assert forward["share"][same] == pytest.approx(backward["share"][same], abs=1e-6)


# The loss


def _loss(ensemble: EnsembleLoss, logits: Any, label: Any, dissent: Any, share: Any) -> torch.Tensor:
    batches = {"public": Batch(torch.zeros(len(label), 1), None)}
    extras = {
        "label": torch.as_tensor(label),
        "dissent": torch.as_tensor(dissent, dtype=torch.float32),
        "share": torch.as_tensor(share, dtype=torch.float32),
    }
    return ensemble({"model": lambda x: logits}, batches, extras)  # type: ignore[dict-item]


def test_loss_by_hand() -> None:
    # The model says (1/2, 1/2); the second of two samples has a dissenter of weight 0.4, (1/4, 3/4).
    logits = torch.zeros(2, 2)
    dissent, share = [[0.0, 0.0], [0.1, 0.3]], [0.0, 0.4]
    divergence = 0.25 * log(0.5) + 0.75 * log(1.5)
    loss = _loss(EnsembleLoss(0.5), logits, [0, 0], dissent, share)
    assert float(loss) == pytest.approx(log(2) + 0.5 * 0.4 * divergence / 2, abs=1e-6)
    full = _loss(EnsembleLoss(0.5, normalised=True), logits, [0, 0], dissent, share)
    assert float(full) == pytest.approx(log(2) + 0.5 * divergence / 2, abs=1e-6)


def test_gradient_is_that_of_the_divergence_that_is_not_normalised() -> None:
    # Equation 9 as printed: sum_j d_j log(d_j / s_j), where d sums to the dissenters' weight.
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(6, 4, generator=generator, requires_grad=True)
    share = torch.tensor([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
    dissent = torch.softmax(torch.randn(6, 4, generator=generator), 1) * share[:, None]
    label = torch.arange(6) % 4
    (mine,) = torch.autograd.grad(_loss(EnsembleLoss(0.7), logits, label, dissent, share), logits)
    printed = torch.special.xlogy(dissent, dissent) - dissent * F.log_softmax(logits, 1)
    loss = F.cross_entropy(logits, label) + 0.7 * printed.sum(1).mean()
    (theirs,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(mine, theirs, atol=1e-6)


def test_without_dissent_or_weight_it_is_training_on_labels() -> None:
    logits, label = torch.tensor([[0.3, -1.0], [2.0, 0.5]], requires_grad=True), torch.tensor([1, 0])
    pure = F.cross_entropy(logits, label)
    dissent, share = [[0.1, 0.2], [0.0, 0.0]], [0.3, 0.0]
    nobody = _loss(EnsembleLoss(0.5), logits, label, np.zeros((2, 2)), [0.0, 0.0])
    nothing = _loss(EnsembleLoss(0.0), logits, label, dissent, share)
    assert torch.equal(nobody, pure)
    assert torch.equal(nothing, pure)
    assert _loss(EnsembleLoss(0.5), logits, label, dissent, share) != pure


# Heads


def test_all_models_share_one_head_after_a_round(world: Any) -> None:
    algorithm = world.algorithm("fedet")
    states = world.results(algorithm, "merge")
    world.run(algorithm, **MIXED)
    assert len(states) == 3
    for state in states:
        head = head_of(NETS, state.large)
        assert list(head.params) == [name for name in state.large.params if name.startswith("head.")]
        for label, small in state.small.items():
            assert list(small.params) == [name for name, _ in NETS[label].skeleton().named_parameters()]
            for name, array in head.params.items():
                assert small.params[name].tobytes() == array.tobytes()


def test_the_head_is_the_plain_mean_over_clients_of_all_architectures(world: Any) -> None:
    # Of three clients with the one net and one with the other, each has a quarter.
    algorithm = world.algorithm("fedet", server_steps=0)
    states = world.results(algorithm, "merge")
    updates = world.recorded(algorithm, "merge", lambda *call: [reply.message for reply in call[2]])
    groups = [GroupConfig(count=3, device="low", model="large"), GroupConfig(count=1, model="small")]
    fleet = build_fleet(groups, ServerConfig(model="large"), Key.root(3))
    world.run(algorithm, rounds=2, fleet=fleet, **MIXED)
    assert len(states) == 2
    for state, messages in zip(states, updates, strict=True):
        assert [update.architecture for update in messages] == ["large"] * 3 + ["small"]
        heads = [head_of(NETS, update.model).params for update in messages]
        for name, array in head_of(NETS, state.large).params.items():
            mean = np.mean([head[name] for head in heads], axis=0, dtype=np.float64)
            np.testing.assert_allclose(array, mean, atol=1e-7)
            assert not np.allclose(array, np.mean([head[name] for head in heads[:3]], axis=0), atol=1e-5)


def test_an_architecture_without_updates_keeps_its_body(world: Any) -> None:
    # Clients 2 and 3 have the small architecture, and nothing comes back from them.
    algorithm = world.algorithm("fedet")
    states = world.results(algorithm, "merge")
    parts = world.parts(algorithm, **MIXED)
    start = parts.initial()("small").params
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender in (2, 3), client_timeout_s=9.0, **MIXED)
    assert len(states) == 3
    for name, array in states[-1].small["small"].params.items():
        same = array.tobytes() == start[name].tobytes()
        assert same == name.startswith("body.")
        if name.startswith("head."):
            assert array.tobytes() == states[-1].large.params[name].tobytes()


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_without_server_steps_the_small_model_is_uniform_fedavg(
    clients_per_round: int | None, world: Any
) -> None:
    algorithm = world.algorithm("fedet", server_steps=0)
    states = world.results(algorithm, "merge")
    fedavg = world.algorithm("fedavg", weighting="uniform")
    others = world.results(fedavg, "merge")
    result = world.run(algorithm, clients_per_round=clients_per_round)
    world.run(fedavg, clients_per_round=clients_per_round)
    assert len(states) == 3
    models: list[Any] = list(others)
    nets = world.parts(algorithm).architectures
    for state, model in zip(states, models, strict=True):
        assert state.small["mlp"].digest() == model.digest()
        assert head_of(nets, state.large).digest() == head_of(nets, model).digest()
    assert result.totals.parameters_up == (clients_per_round or 4) * 3 * (64 * 16 + 16 + 16 * 10 + 10)


def test_one_step_without_dissent_is_a_step_on_the_consensus(world: Any) -> None:
    # The large model of round one is the start values with the mean head: take the step by hand.
    algorithm = world.algorithm("fedet", lam=0.0, server_steps=1, server_batch_size=40, server_lr=0.1)
    states = world.results(algorithm, "merge")
    seen: list[Any] = []
    merge = algorithm.merge

    async def watched_merge(server: Any, state: Any, replies: Any) -> Any:
        models = [reply.message.model for reply in replies]
        public = server.public(np.arange(server.num_public))
        agreed = consensus(np.stack(await server.predict_each(models, public)))
        heads = [head_of(server.architectures, model).params for model in models]
        mean = {name: np.mean([head[name] for head in heads], axis=0, dtype=np.float64) for name in heads[0]}
        x = server.public_values(np.arange(server.num_public)).reshape(40, 64)
        seen.append(({**state.large.params, **mean}, x, agreed["label"]))
        return await merge(server, state, replies)

    algorithm.merge = watched_merge
    world.run(algorithm, rounds=1)
    start, x, labels = seen[0]
    params = {name: torch.tensor(np.asarray(array, np.float32)) for name, array in start.items()}
    for param in params.values():
        param.requires_grad_(True)
    names = [name for name in params if name.startswith("body.")]
    weight, bias = (params[name] for name in names)
    features = torch.relu(torch.tensor(x) @ weight.T + bias)
    logits = features @ params["head.weight"].T + params["head.bias"]
    gradients = torch.autograd.grad(F.cross_entropy(logits, torch.tensor(labels)), list(params.values()))
    for (name, param), gradient in zip(params.items(), gradients, strict=True):
        stepped = (param - 0.1 * gradient).detach().numpy()
        assert np.allclose(states[0].large.params[name], stepped, atol=1e-6)
        assert not np.array_equal(stepped, param.detach().numpy())


# Whole runs


def test_clients_train_the_architecture_they_have(world: Any) -> None:
    result = world.run(world.algorithm("fedet"), **MIXED)
    each = {label: size + HEAD for label, size in SIZES.items()}
    assert each == {label: net.num_params for label, net in NETS.items()}
    expected = 3 * 2 * sum(each.values())
    assert result.totals.parameters_up == result.totals.parameters_down == expected
    arrays = 4 * expected
    assert 0 < result.totals.bytes_down - arrays < 12 * 1200
    assert 0 < result.totals.bytes_up - arrays < 12 * 1200


def test_the_large_model_is_measured_and_the_small_ones_beside(world: Any) -> None:
    result = world.run(world.algorithm("fedet"), **MIXED)
    assert list(result.final.others) == ["small"]
    assert result.final.global_ is not None


def test_the_server_is_charged_for_the_ensemble(world: Any) -> None:
    without = world.run(world.algorithm("fedet", server_steps=0))
    usual = world.run(world.algorithm("fedet"))
    assert usual.simulated_s > without.simulated_s
    assert usual.totals == without.totals


# What it refuses


def _setting(clients: dict[str, Architecture], server: Architecture, task: Task = TASK) -> Setting:
    return Setting(task, clients, server, 40, True)


def test_heads_must_have_one_shape(world: Any) -> None:
    algorithm = world.algorithm("fedet")
    plain = Architecture("plain", MLP(MLP.Config(hidden=(12,))), TASK)
    wide = Architecture("wide", MLP(MLP.Config(hidden=(16,))), TASK)
    linear = Architecture("linear", LINEAR(LINEAR.Config()), TASK)
    assert not world.misfits(algorithm, _setting(NETS, NETS["large"]))
    assert not world.misfits(algorithm, _setting({"plain": plain}, plain))
    for clients, server, odd in (
        ({"large": NETS["large"], "plain": plain}, NETS["large"], ["models.plain"]),
        ({"wide": wide, "plain": plain, "linear": linear}, plain, ["models.wide", "models.linear"]),
    ):
        faults = list(algorithm.misfits(_setting(clients, server)))
        assert [fault.path for fault in faults] == odd
        assert all("the same `representation`" in fault.mend for fault in faults)


def test_a_model_of_another_architecture_is_rejected(world: Any) -> None:
    model, other = Model("a", {"w": np.zeros(2, np.float32)}), Model("b", {"w": np.zeros(2, np.float32)})
    state = ServerState({"a": model, "b": other}, model)
    server = SimpleNamespace(
        architecture_of=lambda client: "ab"[client], initial_model=state.small.__getitem__
    )
    algorithm = world.algorithm("fedet")
    replies = [Reply(k, 0, "train", 0, 0, 1.0, ModelUpdate.of(model, num_samples=1)) for k in (0, 1)]
    assert algorithm.vet(server, state, replies[0]) is None
    assert algorithm.vet(server, state, replies[1]) == "architecture 'a', not 'b'"


def test_start_has_a_small_model_for_each_architecture(world: Any) -> None:
    made = {label: Model(label, {}) for label in ("a", "b")}
    server = SimpleNamespace(
        num_clients=3,
        architecture="b",
        architecture_of=lambda client: "aab"[client],
        initial_model=lambda label="b": made[label],
    )
    state = world.algorithm("fedet").start(server)
    assert list(state.small) == ["a", "b"]
    assert state.large is made["b"]
    assert asyncio.run(world.algorithm("fedet").send(server, state, [0, 1, 2]))[1].keys() == {0, 1, 2}
