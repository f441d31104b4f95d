"""SCAFFOLD: the specification's sanity checks (5.B.2)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.fine_tuning import FineTuning
from fedsim.algorithms.common.tree_arithmetic import combination, difference, zeros
from fedsim.algorithms.fedavg import FedAvg
from fedsim.algorithms.scaffold import ControlledChange, DriftCorrection, Scaffold, ServerState
from fedsim.params import Model, Tree
from fedsim.wire import ModelUpdate, counted, message
from tests.algorithms.stand_ins import Server, nth

SCALARS = 64 * 16 + 16 + 16 * 10 + 10
SAMPLES = ((1.0, 3.0), (2.0, 0.0), (-1.0, 6.0))
"""One of each of three clients, x and y, of curvatures that differ by more than a factor of two."""


def _tree(*values: float) -> Tree:
    return {"w": np.array(values, np.float32)}


def _flat(tree: Tree) -> np.ndarray[Any, Any]:
    return np.concatenate([array.reshape(-1) for array in tree.values()])


class AtZero(Scaffold):
    """Holds all controls at zero."""

    async def train(self, client: Any, state: Any, message: Any) -> Any:
        _, change = await super().train(client, state, message)
        return state, replace(change, control=zeros(change.params))


class ByChanges(FedAvg):
    """FedAvg that adds the mean of the clients' changes, all weighing the same."""

    async def train(self, client: Any, state: Any, message: Any) -> Any:
        state, update = await super().train(client, state, message)
        return state, replace(update, params=difference(update.params, message.params))

    async def merge(self, server: Any, state: Model, replies: Any) -> Model:
        changes = [reply.message.params for reply in replies]
        share = [1 / len(changes)] * len(changes)
        return replace(state, params=combination([state.params, *changes], [1.0, *share]))


# Arithmetic


def test_steps_are_corrected_by_the_difference_of_the_controls() -> None:
    model: Any = SimpleNamespace(params={"w": torch.zeros(2), "b": torch.zeros(1)})
    shift = {"w": torch.tensor([0.5, -1.0]), "b": torch.tensor([2.0])}
    gradients = [torch.tensor([1.0, 1.0]), torch.tensor([0.0])]
    corrected = DriftCorrection()(model, gradients, {"shift": shift})
    assert [one.tolist() for one in corrected] == [[1.5, 0.0], [2.0]]


def test_the_server_takes_the_mean_change_and_every_client_s_share_of_the_controls(world: Any) -> None:
    state = ServerState(Model("mlp", _tree(1.0), _tree(9.0)), _tree(0.5))
    changes = [
        ControlledChange("mlp", _tree(change), _tree(mean), samples, _tree(control))
        for change, mean, samples, control in ((2.0, 1.0, 10, 8.0), (4.0, 3.0, 99, -2.0))
    ]
    replies = [Reply(client, 0, "train", 0, 0, 1.0, one) for client, one in enumerate(changes)]
    server: Any = Server(num_eligible=4)
    after = asyncio.run(world.algorithm("scaffold", server_lr=0.5).merge(server, state, replies))
    assert after.model.params["w"].tolist() == [1 + 0.5 * 3]
    assert after.model.buffers["w"].tolist() == [2.0]
    assert after.control["w"].tolist() == [0.5 + 6 / 4]


@pytest.mark.parametrize(("option", "estimate"), [("I", 1), ("II", 3)])
def test_controls_are_gradients(option: str, estimate: int, world: Any) -> None:
    # A sample x = 1, y = 3 has the gradient 2 (w + b - 3) for w and b: option I takes that at the model that
    # came, option II the mean over the steps.
    algorithm = world.algorithm("scaffold", option=option)
    problem = world.regression(([[1.0]], [3.0]))
    start = world.parts(algorithm, **problem).initial()("mlp").params
    states = _states(algorithm)
    world.run(algorithm, rounds=1, training={"steps": 3, "lr": 0.1, "batch_size": 1}, **problem)
    gap, gradients = float(_flat(start).sum()) - 3, list[float]()
    for _ in range(3):
        gradients.append(2 * gap)
        gap *= 1 - 2 * 2 * 0.1  # both w and b move
    _, control = states[-1][0]
    np.testing.assert_allclose(_flat(control), np.mean(gradients[:estimate]), rtol=1e-4)


def test_with_rates_that_change_a_control_is_the_mean_of_gradients_by_their_rates(world: Any) -> None:
    algorithm, rates = world.algorithm("scaffold"), (0.1, 0.05, 0.025)
    problem = world.regression(([[1.0]], [3.0]))
    start = world.parts(algorithm, **problem).initial()("mlp").params
    states = _states(algorithm)
    halved = {"name": "exponential", "by": "step", "params": {"gamma": 0.5}}
    training = {"steps": 3, "lr": 0.1, "batch_size": 1, "schedule": halved}
    world.run(algorithm, rounds=1, training=training, **problem)
    gap, way = float(_flat(start).sum()) - 3, 0.0
    for rate in rates:
        way += rate * 2 * gap
        gap *= 1 - 2 * 2 * rate
    _, control = states[-1][0]
    np.testing.assert_allclose(_flat(control), way / sum(rates), rtol=1e-4)


def test_where_rates_are_zero_controls_stay(world: Any) -> None:
    algorithm = world.algorithm("scaffold")
    states = _states(algorithm)
    nothing = {"name": "linear", "params": {"start_factor": 0.0, "end_factor": 0.0}}
    world.run(algorithm, rounds=1, training={"schedule": nothing})
    assert not any(_flat(own).any() for _, own in states[-1].values())


@pytest.mark.parametrize("option", ["I", "II"])
def test_without_a_step_nothing_changes(option: str, world: Any) -> None:
    algorithm = world.algorithm("scaffold", option=option)
    states = _states(algorithm)
    result = world.run(algorithm, rounds=1, training={"epochs": 0})
    assert result.models[0]["global"].digest() == world.parts(algorithm).initial()("mlp").digest()
    for shared, own in states[-1].values():
        assert not _flat(shared).any()
        assert not _flat(own).any()


# Equalities


def test_with_controls_of_zero_it_is_fedavg_by_changes_bit_for_bit(world: Any) -> None:
    at_zero = world.run(AtZero(AtZero.Config()), clients_per_round=3)
    by_changes = world.run(ByChanges(ByChanges.Config()), clients_per_round=3)
    assert at_zero.model_hash == by_changes.model_hash


@pytest.mark.parametrize("changes", [{"rounds": 1}, {"num_clients": 1}])
def test_the_first_round_and_one_client_are_uniform_fedavg(changes: dict[str, Any], world: Any) -> None:
    ours, plain = (
        world.run(world.algorithm(name, **params), **changes).models[0]["global"].params
        for name, params in (("scaffold", {}), ("fedavg", {"weighting": "uniform"}))
    )
    np.testing.assert_allclose(_flat(ours), _flat(plain), atol=1e-5)


def _states(algorithm: Any) -> list[dict[int, tuple[Tree, Tree]]]:
    """Return what will hold, for each evaluation, the server's control and each client's, by client."""
    seen: list[dict[int, tuple[Tree, Tree]]] = []
    models_of = algorithm.models_of

    async def watching(observer: Any, server_state: Any, client_state: Any) -> Any:
        if not seen or observer.client in seen[-1]:
            seen.append({})
        seen[-1][observer.client] = server_state.control, client_state.control
        return await models_of(observer, server_state, client_state)

    algorithm.models_of = watching
    return seen


@pytest.mark.parametrize("option", ["I", "II"])
def test_the_server_s_control_is_the_mean_of_the_clients_also_when_uploads_are_lost(
    option: str, world: Any
) -> None:
    every_third_upload = nth(range(3, 99, 3), receiver=-1)
    algorithm = world.algorithm("scaffold", option=option)
    states = _states(algorithm)
    result = world.run(algorithm, clients_per_round=3, lost=every_third_upload, client_timeout_s=50.0)
    assert sum(row.dropped for row in result.rounds) == 3
    for state in states:
        shared = _flat(state[0][0])
        np.testing.assert_allclose(shared, np.mean([_flat(own) for _, own in state.values()], 0), atol=1e-6)
    assert np.abs(shared).max() > 0.01


def test_clients_without_samples_count_for_nothing(world: Any) -> None:
    data = world.data()
    held = [data.indices(client, "train") for client in range(3)]
    changes = {"data": world.holding(data, "train", [*held, []]), "rounds": 2}
    algorithm = world.algorithm("scaffold")
    states = _states(algorithm)
    result = world.run(algorithm, **changes)
    shared, own = _flat(states[-1][0][0]), [_flat(states[-1][client][1]) for client in range(3)]
    np.testing.assert_allclose(shared, np.mean(own, 0), atol=1e-6)
    assert np.abs(shared).max() > 0.01
    over_sockets = world.run_over_sockets(world.algorithm("scaffold"), **changes)
    assert over_sockets.model_hash == result.model_hash


# Drift


def test_it_reaches_the_optimum_from_which_fedavg_drifts_away(world: Any) -> None:
    problem = world.regression(*(([[x]], [y]) for x, y in SAMPLES))

    def slope(name: str, **params: Any) -> float:
        """Return the length of the gradient of the mean loss where an algorithm ends."""
        training = {"steps": 4, "lr": 0.1, "batch_size": 1}
        result = world.run(world.algorithm(name, **params), rounds=20, training=training, **problem)
        found = result.models[0]["global"].params
        w, b = found["head.weight"].item(), found["head.bias"].item()
        slopes = [2 * (w * x + b - y) * np.array([x, 1]) for x, y in SAMPLES]
        return float(np.linalg.norm(np.mean(slopes, 0)))

    assert slope("fedavg", weighting="uniform") > 0.5
    assert slope("scaffold") < 1e-3


# What travels


def test_the_model_alone_is_sent_for_fine_tuning(world: Any) -> None:
    class Tuned(FineTuning[Any, Any], Scaffold):
        _passes = 0

    result = world.run(Tuned(Scaffold.Config()), rounds=1)
    assert result.totals.parameters_down == 4 * 2 * SCALARS + 4 * SCALARS
    for models in result.models.values():
        assert models["personal"].digest() == models["global"].digest()


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"w": np.zeros(3, np.float32)}, "other names than architecture 'mlp' has"),
        ({}, "other names than architecture 'mlp' has"),
        ({"head.bias": np.zeros(3, np.float32)}, "head.bias: float32(3,), not float32(10,)"),
        ({"head.bias": np.zeros(10, np.float64)}, "head.bias: float64(10,), not float32(10,)"),
    ],
)
def test_a_control_of_another_form_is_rejected(lie: Any, reason: str, world: Any) -> None:
    def lying(client: Any, change: ControlledChange) -> ControlledChange:
        control = {**change.control, **lie} if "head.bias" in lie else lie
        return replace(change, control=control) if client.client else change

    result = world.run(world.lying(world.algorithm("scaffold"), "train", lying), rounds=1)
    assert result.rejections == {f"control: {reason}": 3}


@message("optional_tree")
class OptionalTree(ModelUpdate):
    control: Tree | None = counted()


@pytest.mark.parametrize(
    ("control", "is_sound"), [(None, True), (_tree(1.0), True), (_tree(1.0, 2.0), False)]
)
def test_a_tree_may_be_left_out_where_its_kind_allows_it(control: Any, is_sound: bool, world: Any) -> None:
    server: Any = SimpleNamespace(
        architecture_of=lambda client: "mlp", initial_model=lambda label: Model("mlp", _tree(0.0))
    )
    reply = Reply(0, 0, "train", 0, 0, 1.0, OptionalTree("mlp", _tree(2.0), {}, 5, control))
    assert (world.algorithm("fedavg").vet(server, None, reply) is None) == is_sound


def test_a_plain_update_is_refused(world: Any) -> None:
    def plain(client: Any, change: ControlledChange) -> ModelUpdate:
        return ModelUpdate(change.architecture, change.params, change.buffers, change.num_samples)

    (reason,) = world.run(world.lying(world.algorithm("scaffold"), "train", plain), rounds=1).rejections
    assert "'scaffold_change'" in reason


# Settings


@pytest.mark.parametrize(
    "training",
    [{"momentum": 0.9}, {"weight_decay": 0.1}, {"optimiser": "adam"}, {"clip_norm": 1.0}],
    ids=lambda one: next(iter(one)),
)
def test_option_ii_needs_plain_descent(training: dict[str, Any], world: Any) -> None:
    def paths(option: str) -> list[str]:
        parts = world.parts(world.algorithm("scaffold", option=option), training=training)
        return [fault.path for fault in parts.misfits()]

    assert paths("II") == [f"training.{name}" for name in training]
    assert paths("I") == []
