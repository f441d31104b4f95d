"""L2SGD: the specification's sanity checks (5.D.6)."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.l2sgd import Moves
from fedsim.params import Array, Model
from fedsim.runtime.run import RunResult

PLAIN: dict[str, Any] = {"verify": False}


def _personal(result: RunResult) -> dict[int, bytes]:
    return {client: models["personal"].digest() for client, models in result.models.items()}


def _turn(client: Any, state: Any, message: Any, result: Any) -> tuple[int, Any, Any]:
    return client.client, message, result[0]


def test_without_a_pull_it_is_local_with_as_many_steps(world: Any) -> None:
    algorithm = world.algorithm("l2sgd", probability=0.3, pull=0.0)
    turns = world.recorded(algorithm, "train", _turn)
    result = world.run(algorithm, rounds=2, **PLAIN)
    steps = {turn: message.num_steps for turn, (client, message, _) in enumerate(turns[::4], 1)}
    assert len(set(steps.values())) == 2

    local = world.local()

    async def train(client: Any, state: Model, message: None) -> tuple[Model, None]:
        return (await client.fit(state, steps=steps[client.round])).model, None

    local.train = train
    assert result.model_hash == world.run(local, rounds=2, **PLAIN).model_hash


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_a_whole_pull_makes_all_who_take_part_identical(clients_per_round: int | None, world: Any) -> None:
    changes = {"clients_per_round": clients_per_round, "rounds": 1, **PLAIN}
    digests = list(_personal(world.run(world.algorithm("l2sgd", pull=1.0), **changes)).values())
    start = world.parts(world.algorithm("l2sgd")).initial()("mlp").digest()
    moved = [digest for digest in digests if digest != start]
    assert len(moved) == (clients_per_round or 4)
    assert len(set(moved)) == 1


def test_moves_keep_the_mean(world: Any) -> None:
    algorithm = world.algorithm("l2sgd", pull=0.3)
    trained, moved = world.recorded(algorithm, "train", _turn), world.recorded(algorithm, "move", _turn)
    world.run(algorithm, rounds=1, **PLAIN)
    assert len(moved) == 4
    for name in moved[0][2].params:
        before, after = (
            np.mean([state.params[name] for *_, state in turns], 0) for turns in (trained, moved)
        )
        np.testing.assert_allclose(after, before, atol=1e-6)
        np.testing.assert_allclose(moved[0][1].params[name], before, atol=1e-6)


@pytest.mark.parametrize(
    ("hook", "count", "probability"), [("train", "num_steps", 0.25), ("move", "num_moves", 0.75)]
)
def test_steps_and_moves_in_a_row_are_geometrically_many_and_the_same_for_all(
    hook: str, count: str, probability: float, world: Any
) -> None:
    algorithm = world.algorithm("l2sgd", probability=probability)
    turns = world.recorded(algorithm, hook, _turn)
    world.run(algorithm, num_clients=2, rounds=30, num_samples=80, **PLAIN)
    counts = [getattr(message, count) for _, message, _ in turns]
    assert counts[::2] == counts[1::2]
    assert min(counts) == 1
    assert 2.5 < np.mean(counts) < 5.5  # 4, give or take a deviation of 0.6


def _values(model: Model) -> Array:
    return np.array([float(array.item()) for array in model.params.values()])


def test_on_parabolas_models_go_as_by_the_paper_s_iterations(world: Any) -> None:
    # A step brings a client half of the way to its centre, a move 0.3 of the way to the mean.
    centres = np.array([[1.0, 0.0], [3.0, -2.0], [-1.0, 5.0], [5.0, 1.0]])
    # The squared error of a line is the squared distance to its centre (slope, offset).
    lines = [([[-1.0], [1.0]], [offset - slope, offset + slope]) for slope, offset in centres]
    algorithm = world.algorithm("l2sgd", probability=0.5, pull=0.3)
    trained, moved = world.recorded(algorithm, "train", _turn), world.recorded(algorithm, "move", _turn)
    changes = world.regression(*lines) | {"rounds": 12, "training": {"lr": 0.25, "batch_size": 2}}
    result = world.run(algorithm, **changes, **PLAIN)
    wanted = np.stack([_values(world.parts(algorithm, **changes).initial()("mlp"))] * 4)
    rounds = [
        (steps.num_steps, moves.num_moves)
        for (_, steps, _), (_, moves, _) in zip(trained[::4], moved[::4], strict=True)
    ]
    assert len(rounds) == 12
    assert max(num_moves for _, num_moves in rounds) > 1
    for num_steps, num_moves in rounds:
        for _ in range(num_steps):
            wanted += 0.5 * (centres - wanted)
        for _ in range(num_moves):
            wanted += 0.3 * (wanted.mean(0) - wanted)
    found = [_values(result.models[client]["personal"]) for client in range(4)]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_moves_in_a_row_by_hand(world: Any) -> None:
    # Three moves of a half leave an eighth of the way: 8 - 7 / 8 * (8 - 0).
    def model(value: float) -> Model:
        return Model("mlp", {"w": np.array([value], np.float32)})

    message = Moves("mlp", model(0.0).params, {}, 3)
    after, _ = asyncio.run(world.algorithm("l2sgd", pull=0.5).move(None, model(8.0), message))
    assert after.params["w"].tolist() == [1.0]


def test_who_does_not_get_the_mean_keeps_its_model(world: Any) -> None:
    algorithm = world.algorithm("l2sgd", pull=1.0)
    trained = world.recorded(algorithm, "train", _turn)
    # The first four frames down say how many steps, and four come up; the next four carry the mean.
    lost = {"lost": lambda parcel, n: n >= 8 and parcel.receiver == 2, "client_timeout_s": 30.0}
    result = world.run(algorithm, rounds=1, **PLAIN, **lost)
    (own,) = (state for client, _, state in trained if client == 2)
    digests = _personal(result)
    assert digests[2] == own.digest()
    assert len({digests[0], digests[1], digests[3]}) == 1


def test_only_those_who_answered_are_in_the_mean(world: Any) -> None:
    algorithm = world.algorithm("l2sgd", pull=1.0)
    trained, moved = world.recorded(algorithm, "train", _turn), world.recorded(algorithm, "move", _turn)
    lost = {"lost": lambda parcel, n: parcel.sender == 2, "client_timeout_s": 30.0}
    world.run(algorithm, rounds=1, **PLAIN, **lost)
    assert sorted(client for client, *_ in moved) == [0, 1, 3]
    for name, array in moved[0][1].params.items():
        mean = np.mean([state.params[name] for client, _, state in trained if client != 2], 0)
        np.testing.assert_allclose(array, mean, atol=1e-6)
