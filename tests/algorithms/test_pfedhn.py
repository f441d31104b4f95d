"""pFedHN: the specification's sanity checks (5.D.5)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Setting
from fedsim.algorithms.pfedhn import Hypernetwork, Shape, generated, initial_hypernetwork, stepped
from fedsim.engine.optimisers import Clipped, Sgd
from fedsim.params import Array
from fedsim.rng import Key
from tests.algorithms.stand_ins import normed

TINY = Shape(2, 4, 1, (("w", (2, 3)), ("b", (3,))))


def _tiny(seed: int = 0) -> Hypernetwork:
    return initial_hypernetwork(TINY, 3, Key.root(seed))


def _changes(seed: int) -> dict[str, Array]:
    draw = Key.root(seed).numpy()
    return {name: draw.standard_normal(size, np.float32) for name, size in TINY.targets}


def _sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0, most: float = 1e6) -> Clipped:
    return Clipped(Sgd(lr, momentum, weight_decay), most)


def _same(one: Hypernetwork, other: Hypernetwork) -> bool:
    return all(array.tobytes() == other.weights[name].tobytes() for name, array in one.weights.items()) and (
        one.embeddings.tobytes() == other.embeddings.tobytes()
    )


# Arithmetic


def test_what_is_made_has_the_targets_shapes() -> None:
    net = _tiny()
    made = generated(net, [0, 2])
    assert [{name: array.shape for name, array in tree.items()} for tree in made] == [dict(TINY.targets)] * 2
    assert made[0]["w"].tobytes() != made[1]["w"].tobytes()
    assert sum(array.size for array in net.weights.values()) == TINY.num_weights
    assert {array.dtype for array in (*net.weights.values(), *made[0].values())} == {np.dtype(np.float32)}


def test_start_values_follow_from_the_key_and_lie_where_pytorchs_do() -> None:
    assert _same(_tiny(), _tiny())
    assert not _same(_tiny(), _tiny(1))
    net = initial_hypernetwork(Shape(9, 100, 2, (("w", (50,)),)), 1000, Key.root(0))
    for name, array in net.weights.items():
        bound = 1 / 3 if name.startswith("layer 0") else 1 / 10
        assert 0.9 * bound < np.abs(array).max() <= bound * (1 + 1e-6)
    assert net.embeddings.std() == pytest.approx(1, abs=0.05)


def test_a_step_is_the_product_with_the_jacobian() -> None:
    # Of <what is made for client 1, its change>, by differences.
    net, change, lr = _tiny(), _changes(5), 0.5
    after = stepped(net, [{1: change}], _sgd(lr))

    def objective(net: Hypernetwork) -> float:
        (made,) = generated(net, [1])
        return float(sum(np.vdot(made[name], array.astype(np.float64)) for name, array in change.items()))

    for name, array in net.weights.items():
        for place in np.ndindex(array.shape):
            moved = []
            for width in (1e-2, -1e-2):
                other = array.copy()
                other[place] += width
                moved.append(objective(replace(net, weights={**net.weights, name: other})))
            slope = (moved[0] - moved[1]) / 2e-2
            assert (array[place] - after.weights[name][place]) / lr == pytest.approx(slope, abs=2e-3)
    for number in range(TINY.embedding):
        other = net.embeddings.copy()
        other[1, number] += 1e-2
        slope = (objective(replace(net, embeddings=other)) - objective(net)) / 1e-2
        step = (net.embeddings[1, number] - after.embeddings[1, number]) / lr
        assert step == pytest.approx(slope, abs=2e-3)
    # Embeddings of others stay.
    assert after.embeddings[[0, 2]].tobytes() == net.embeddings[[0, 2]].tobytes()


def test_groups_step_one_after_the_other_and_a_group_by_its_mean() -> None:
    net, first, second = _tiny(), _changes(5), _changes(6)
    optimiser = _sgd(0.1, 0.9, 0.01)
    both = stepped(net, [{0: first}, {2: second}], optimiser)
    assert _same(both, stepped(stepped(net, [{0: first}], optimiser), [{2: second}], optimiser))
    together = stepped(net, [{0: first, 2: second}], _sgd(0.1))
    alone = [stepped(net, [{client: one}], _sgd(0.1)) for client, one in ((0, first), (2, second))]
    for name, array in together.weights.items():
        np.testing.assert_allclose(array, (alone[0].weights[name] + alone[1].weights[name]) / 2, atol=1e-6)


def test_momentum_goes_on_where_a_client_is_and_gradients_are_clipped() -> None:
    net, change = _tiny(), _changes(5)
    usual, clipped = (stepped(net, [{0: change}], _sgd(1.0, 0.9, 0.0, most)) for most in (1e6, 0.5))
    moves = [
        np.concatenate(
            [
                *((net.weights[name] - array).ravel() for name, array in one.weights.items()),
                *(net.embeddings - one.embeddings),
            ]
        )
        for one in (usual, clipped)
    ]
    assert np.linalg.norm(moves[0]) > 0.5
    assert np.linalg.norm(moves[1]) == pytest.approx(0.5, rel=1e-4)
    assert (usual.embedding_momentum != 0).any(axis=1).tolist() == [True, False, False]
    nothing = {name: np.zeros_like(array) for name, array in change.items()}
    later = stepped(usual, [{1: nothing}], _sgd(1.0, 0.9))
    assert not _same(later, usual)
    assert later.embeddings.tobytes() == usual.embeddings.tobytes()


def test_no_change_is_no_gradient() -> None:
    nothing = {name: np.zeros(size, np.float32) for name, size in TINY.targets}
    assert _same(stepped(_tiny(), [{0: nothing}, {1: nothing}], _sgd(0.1)), _tiny())


# Runs


def test_without_local_steps_nothing_changes(world: Any) -> None:
    algorithm = world.algorithm("pfedhn", momentum=0.0, weight_decay=0.0)
    trained, merged = world.recorded(algorithm, "train"), world.recorded(algorithm, "merge")
    world.run(algorithm, training={"steps": 0}, rounds=2)
    for _, (_, reply) in trained:
        assert not any(array.any() for array in reply.params.values())
    for (_, before, _), after in merged:
        assert _same(before, after)


def test_a_client_is_measured_with_what_is_made_for_it(world: Any) -> None:
    algorithm = world.algorithm("pfedhn")
    merged, models = world.recorded(algorithm, "merge"), world.watched(algorithm)
    world.run(algorithm, clients_per_round=2)
    net = merged[-1][1]
    for client, made in enumerate(generated(net, range(4))):
        own = models[client]["personal"].params
        assert all(np.allclose(array, own[name], atol=1e-6) for name, array in made.items())


def test_embeddings_of_clients_that_were_not_selected_stay(world: Any) -> None:
    algorithm = world.algorithm("pfedhn")
    merged = world.recorded(algorithm, "merge")
    world.run(algorithm, clients_per_round=2)
    for (_, before, replies), after in merged:
        moved = (before.embeddings != after.embeddings).any(axis=1)
        assert np.flatnonzero(moved).tolist() == [reply.client for reply in replies]
        assert before.weights["layer 0 bias"].tobytes() != after.weights["layer 0 bias"].tobytes()


def test_statistics_stay_at_the_client(world: Any) -> None:
    algorithm = world.algorithm("pfedhn")
    trained, models = world.recorded(algorithm, "train"), world.watched(algorithm)
    nets = normed(world)
    world.run(algorithm, architectures=nets)
    assert all(not message.buffers and not reply.buffers for (_, _, message), (_, reply) in trained)
    held = {client.client: after for (client, *_), (after, _) in trained}
    for client, buffers in held.items():
        assert buffers["body.norm.num_batches_tracked"] > 0
        its = models[client]["personal"].buffers
        assert all(array.tobytes() == its[name].tobytes() for name, array in buffers.items())


def test_a_hypernetwork_that_is_too_large_is_refused(world: Any) -> None:
    one = world.parts(world.algorithm("pfedhn")).architectures["mlp"]
    setting = Setting(world.data().task, {"mlp": one}, one, 0, True)
    assert not world.misfits(world.algorithm("pfedhn"), setting)
    assert "algorithm.params.hidden" in world.misfits(world.algorithm("pfedhn", hidden=10**6), setting)
    wide = world.algorithm("pfedhn", hidden=10**4, embedding=10**5)  # its first layer alone
    assert "algorithm.params.hidden" in world.misfits(wide, setting)
