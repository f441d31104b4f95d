"""pFedMe: the specification's sanity checks (5.D.2)."""

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.fine_tuning import FineTuning
from fedsim.algorithms.pfedme import PFedMe
from fedsim.params import Array, Model
from fedsim.runtime.run import run
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Server, normed, nth

SCALARS = 64 * 16 + 16 + 16 * 10 + 10
X, Y = np.array([[1.0], [-2.0], [0.5]]), np.array([1.0, 3.0, -1.0])
INPUTS = np.concatenate([X, np.ones((3, 1))], 1)
HESSIAN, OFFSET = 2 * INPUTS.T @ INPUTS / 3, 2 * INPUTS.T @ Y / 3
"""The gradient of the mean squared error in weight and bias t is ``HESSIAN t - OFFSET``."""


def _flat(model: Model) -> Array:
    return np.concatenate([array.reshape(-1) for array in model.params.values()]).astype(np.float64)


def _nearest(w: Array, lam: float) -> Array:
    """Return the minimum of ``F(t) + lam / 2 ||t - w||^2``."""
    nearest: Array = np.linalg.solve(HESSIAN + lam * np.eye(2), OFFSET + lam * w)
    return nearest


def _quadratic(
    world: Any, *, steps: int = 1, lr: float = 0.1, training: dict[str, Any] | None = None, **params: Any
) -> tuple[Array, Array, Array]:
    """Return where one client starts, and its two models after steps over all of its samples."""
    training = {"batch_size": 3, "steps": steps, "lr": lr, **(training or {})}
    changes: dict[str, Any] = {**world.regression((X, Y)), "training": training, "rounds": 1}
    algorithm = world.algorithm("pfedme", **params)
    start = _flat(world.parts(algorithm, **changes).initial()("mlp"))
    models = world.run(algorithm, **changes).models[0]
    return start, _flat(models["personal"]), _flat(models["global"])


# On a quadratic


def test_inner_and_outer_steps_are_those_of_the_closed_form(world: Any) -> None:
    lam, eta, lr, inner = 4.0, 0.1, 0.05, 3
    start, personal, shared = _quadratic(world, steps=2, lr=lr, lam=lam, eta=eta, inner_steps=inner)
    shrink = np.linalg.matrix_power(np.eye(2) - lr * (HESSIAN + lam * np.eye(2)), inner)
    t = w = start
    for _ in range(2):
        nearest = _nearest(w, lam)
        t = nearest + shrink @ (t - nearest)
        w = w - eta * lam * (w - t)
    np.testing.assert_allclose(personal, t, rtol=1e-4)
    np.testing.assert_allclose(shared, w, rtol=1e-4)


def test_the_shared_model_moves_along_the_envelope_s_gradient(world: Any) -> None:
    lam, eta, small = 4.0, 0.01, 1e-4

    def envelope(w: Array) -> float:
        t = _nearest(w, lam)
        return float(((INPUTS @ t - Y) ** 2).mean() + lam / 2 * ((t - w) ** 2).sum())

    start, personal, shared = _quadratic(world, lam=lam, eta=eta, inner_steps=100)
    np.testing.assert_allclose(personal, _nearest(start, lam), rtol=1e-4)
    slope = [(envelope(start + at) - envelope(start - at)) / (2 * small) for at in small * np.eye(2)]
    np.testing.assert_allclose((start - shared) / eta, slope, rtol=1e-3)


def test_no_model_has_the_momentum_of_the_training(world: Any) -> None:
    plain = _quadratic(world, lam=4.0, eta=0.1, steps=3)
    with_momentum = _quadratic(world, lam=4.0, eta=0.1, steps=3, training={"momentum": 0.9})
    for array, its in zip(plain, with_momentum, strict=True):
        assert its.tolist() == array.tolist()


def test_weight_decay_is_part_of_the_personal_loss_alone(world: Any) -> None:
    # A whole step, to the personal model, is one only without decay.
    training = {"weight_decay": 0.1}
    start, personal, shared = _quadratic(world, lam=10.0, eta=0.1, inner_steps=100, training=training)
    nearest = np.linalg.solve(HESSIAN + 10.1 * np.eye(2), OFFSET + 10.0 * start)
    np.testing.assert_allclose(personal, nearest, rtol=1e-4)
    np.testing.assert_allclose(shared, personal, rtol=1e-5)


@pytest.mark.parametrize(("lam", "eta"), [(4.0, 0.1), (16.0, 0.0625), (0.0, 0.1)])
def test_by_default_the_shared_model_moves_at_the_rate_of_the_training_or_1_over_lam(
    lam: float, eta: float, world: Any
) -> None:
    usual, given = _quadratic(world, lam=lam, lr=0.1), _quadratic(world, lam=lam, lr=0.1, eta=eta)
    for array, its in zip(usual, given, strict=True):
        assert its.tolist() == array.tolist()


def test_running_statistics_are_those_of_the_personal_model(world: Any) -> None:
    nets = normed(world)
    algorithm = world.algorithm("pfedme")
    start = world.parts(algorithm, architectures=nets).initial()("mlp").buffers
    models = world.run(algorithm, num_clients=1, rounds=1, architectures=nets).models[0]
    assert start
    for name, array in models["personal"].buffers.items():
        assert (models["global"].buffers[name] == array).all()
        assert (start[name] != array).any()


def test_the_global_model_is_measured_on_the_clients_samples_as_gm(world: Any) -> None:
    result = world.run(world.algorithm("pfedme", lam=1.0, eta=0.5), training={"epochs": 3})
    for models in result.models.values():
        assert models["gm"].digest() == models["global"].digest() != models["personal"].digest()


# At the server


@pytest.mark.parametrize(("beta", "expected"), [(1.0, 3.0), (0.5, 2.0), (2.0, 5.0)])
def test_the_server_goes_towards_the_mean_or_beyond(beta: float, expected: float, world: Any) -> None:
    def model(value: float) -> Model:
        return Model("mlp", {"w": np.array([value], np.float32)}, {"mean": np.array([value], np.float32)})

    replies = [
        Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(model(value), samples))
        for client, (value, samples) in enumerate([(2.0, 30), (6.0, 10)])
    ]
    merged = asyncio.run(world.algorithm("pfedme", beta=beta).merge(Server(), model(1.0), replies))
    assert merged.params["w"].tolist() == [expected]
    assert merged.buffers["mean"].tolist() == [3.0]


def test_without_a_pull_the_global_model_never_changes(world: Any) -> None:
    algorithm = world.algorithm("pfedme", lam=0.0)
    result = world.run(algorithm)
    start = world.parts(algorithm).initial()("mlp")
    for models in result.models.values():
        assert models["global"].digest() == start.digest()
        assert models["personal"].digest() != start.digest()


# Who trains


@pytest.mark.parametrize("all_train", [False, True])
def test_who_has_not_trained_counts_with_the_global_model(all_train: bool, world: Any) -> None:
    algorithm = world.algorithm("pfedme", all_train=all_train)
    result = world.run(algorithm, rounds=1, clients_per_round=1)
    has_own = [models["personal"].digest() != models["global"].digest() for models in result.models.values()]
    assert sum(has_own) == (4 if all_train else 1)
    assert result.totals.parameters_down == (4 if all_train else 1) * SCALARS
    assert result.totals.parameters_up == SCALARS


def test_where_all_train_and_all_are_asked_it_is_the_same(world: Any) -> None:
    cohort, everyone = (world.run(world.algorithm("pfedme", all_train=all_)) for all_ in (False, True))
    assert everyone.model_hash == cohort.model_hash
    assert everyone.totals.parameters_up == cohort.totals.parameters_up


def test_a_client_that_the_model_has_not_reached_sends_nothing(world: Any) -> None:
    algorithm = world.algorithm("pfedme", all_train=True)
    result = world.run(algorithm, rounds=1, lost=lambda parcel, n: n == 0, client_timeout_s=50.0)
    assert result.rejections == {"no frame where one of kind 'update' belongs": 1}
    assert result.by_client["rejected"].sum() == 1


def test_a_client_that_the_model_reached_a_round_before_sends_nothing(world: Any) -> None:
    # Of four models that go down in a round, that of one client is lost in the second.
    algorithm, sent = world.algorithm("pfedme", all_train=True), list[tuple[int, int]]()
    upload = algorithm.upload

    async def watched(client: Any, state: Any, message: None) -> Any:
        if client.round == 1 and client.client == 2:
            return state, None  # so that it keeps its copy, as one that is not asked
        state, reply = await upload(client, state, message)
        if reply is not None:
            sent.append((client.round, client.client))
        return state, reply

    algorithm.upload = watched
    world.run(algorithm, rounds=2, lost=nth([2], receiver=2), client_timeout_s=50.0)
    assert sorted(sent) == [(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (2, 3)]


def test_personal_models_are_kept_when_an_upload_is_lost(world: Any) -> None:
    uploads = {"lost": lambda parcel, ordinal: parcel.receiver < 0, "client_timeout_s": 50.0}
    result = world.run(world.algorithm("pfedme"), rounds=1, **uploads)
    assert result.drops["timeout"] == 4
    assert len({models["personal"].digest() for models in result.models.values()}) == 4


def test_a_client_that_makes_no_step_keeps_its_model(world: Any) -> None:
    algorithm = world.algorithm("pfedme")
    learn, kept = algorithm.learn, list[Any]()

    async def watched(client: Any, state: Any, message: Any) -> Any:
        if client.round == 2:
            client.training = client.training.model_copy(update={"epochs": 0})
        state, _ = await learn(client, state, message)
        kept.append(state.personal)
        return state, None

    algorithm.learn = watched
    world.run(algorithm, num_clients=1, rounds=2)
    first, second = kept
    assert second is first


def test_a_client_goes_on_with_its_own_model(world: Any) -> None:
    class Tuned(FineTuning[Any, Any], PFedMe):
        _passes = 0

    result = world.run(Tuned(PFedMe.Config()), rounds=1, clients_per_round=1)
    for models in result.models.values():
        assert models["personal"].digest() == models["untuned"].digest()
    own = [models["untuned"].digest() != models["global"].digest() for models in result.models.values()]
    assert sum(own) == 1


# Settings


@pytest.mark.parametrize("lam", [15.0, 7.0, 3.0, 99.99955, 0.6])
def test_the_advice_on_eta_can_be_followed(lam: float, world: Any) -> None:
    with pytest.raises(ValueError, match="lower eta to") as caught:
        world.algorithm("pfedme", lam=lam, eta=2.0)
    advised = re.search(r"lower eta to (\S+)", str(caught.value))
    assert advised is not None
    world.algorithm("pfedme", lam=lam, eta=float(advised[1]))


@pytest.mark.parametrize(
    ("training", "fits"),
    [
        ({"lr": 0.1}, True),
        ({"lr": 0.15}, False),
        ({"lr": 0.15, "momentum": 0.5}, False),
        ({"lr": 0.13}, True),
        ({"lr": 0.13, "weight_decay": 0.5}, False),
    ],
)
def test_steps_that_diverge_by_the_pull_alone_are_refused(
    training: dict[str, Any], fits: bool, world: Any
) -> None:
    faults = list(world.parts(world.algorithm("pfedme"), training=training).misfits())
    assert [fault.path for fault in faults] == ([] if fits else ["training.lr"])


def test_adam_is_refused(world: Any) -> None:
    faults = list(world.parts(world.algorithm("pfedme"), training={"optimiser": "adam"}).misfits())
    assert [fault.path for fault in faults] == ["training.optimiser"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_that_has_no_effect_is_told(momentum: float, world: Any) -> None:
    notes = world.notes()
    run(world.parts(world.algorithm("pfedme"), rounds=1, training={"momentum": momentum}), log=notes)
    assert len(notes.of("pFedMe takes steps without momentum")) == (momentum > 0)
