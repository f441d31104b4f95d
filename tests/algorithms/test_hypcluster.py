"""HypCluster: the specification's sanity checks (5.D.8)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.model_clusters import ClusterUpdate
from fedsim.algorithms.hypcluster import ChoosingState, ModelLoss
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.runtime.run import RunResult, run
from tests.algorithms.stand_ins import Server, nth

SCALARS = 64 * 16 + 16 + 16 * 10 + 10


def _model(value: float) -> Model:
    return Model("mlp", {"w": np.full((2,), value, np.float32)})


def _reply(client: int, value: float, num_samples: int, cluster: int) -> Reply:
    model = _model(value)
    message = ClusterUpdate(model.architecture, model.params, model.buffers, num_samples, cluster)
    return Reply(client, 0, "train", 0, 0, 1.0, message)


@pytest.mark.parametrize(("weighting", "mean"), [("samples", 3.0), ("uniform", 2.5)])
def test_each_cluster_has_its_own_mean_and_an_empty_one_keeps_its_model(
    weighting: str, mean: float, world: Any
) -> None:
    noted: dict[str, Any] = {}
    server = Server(note=lambda event, **values: noted.update({event: values}))
    state = (_model(7.0), _model(8.0), _model(9.0))
    replies = [_reply(0, 1.0, 10, 2), _reply(1, 6.0, 5, 0), _reply(2, 4.0, 20, 2)]
    algorithm = world.algorithm("hypcluster", clusters=3, weighting=weighting)
    merged = asyncio.run(algorithm.merge(server, state, replies))
    assert [model.params["w"].tolist() for model in merged] == [[6.0] * 2, [8.0] * 2, [mean] * 2]
    assert merged[1] is state[1]
    assert noted == {"cluster sizes": {"sizes": [1, 0, 2]}}


def _starting_with(world: Any, variants: tuple[int, ...], **params: Any) -> tuple[Any, list[Any]]:
    """Return an algorithm whose models start with these variants, and what will hold the server's states."""
    algorithm = world.algorithm("hypcluster", **params)
    algorithm.start = lambda server: tuple(server.initial_model(variant=number) for number in variants)
    return algorithm, world.results(algorithm, "merge")


def test_permuting_the_start_models_permutes_the_result(world: Any) -> None:
    ends = []
    for variants in ((0, 1, 2), (2, 0, 1)):
        algorithm, states = _starting_with(world, variants, clusters=3)
        result = world.run(algorithm, num_clients=8)
        ends.append(([model.digest() for model in states[-1]], result.model_hash))
    (first, hash_of_first), (second, hash_of_second) = ends
    assert second == [first[2], first[0], first[1]]
    assert hash_of_first == hash_of_second


def test_of_equal_models_the_first_is_taken_and_the_others_never_move(world: Any) -> None:
    algorithm, states = _starting_with(world, (0, 0))
    world.run(algorithm, rounds=1)
    first, second = states[0]
    assert first.digest() != second.digest()
    assert second.digest() == world.parts(world.algorithm("fedavg")).initial()("mlp").digest()


def test_clients_without_validation_samples_compare_on_what_they_train_on(world: Any) -> None:
    data = world.holding(world.data(), "val", [[]] * 4)
    results = [world.run(world.algorithm("hypcluster", choose_on=on), data=data) for on in ("train", "val")]
    assert results[0].model_hash == results[1].model_hash


def test_a_cluster_that_there_is_not_is_rejected(world: Any) -> None:
    algorithm = world.lying(
        world.algorithm("hypcluster"),
        "train",
        lambda client, reply: replace(reply, cluster=client.client - 1),
    )
    result = world.run(algorithm, rounds=2)
    assert result.by_client["rejected"].tolist() == [2, 0, 0, 2]
    assert result.rejections == {
        "cluster -1, and there are 2 from 0 on": 2,
        "cluster 2, and there are 2 from 0 on": 2,
    }


def test_fine_tuning_goes_on_from_the_chosen_model(world: Any) -> None:
    seen, tuned = (world.algorithm("hypcluster", finetune_epochs=epochs) for epochs in (0, 1))
    models = world.watched(seen)
    world.run(seen)
    assert all(one["personal"].digest() == one["untuned"].digest() for one in models.values())
    models = world.watched(tuned)
    totals = world.run(tuned).totals
    assert all(one["personal"].digest() != one["untuned"].digest() for one in models.values())
    assert totals.parameters_down == (3 + 1) * 4 * 2 * SCALARS  # all models once more at the end


def _values(models: Any) -> list[float]:
    return [float(model.params["w"][0]) for model in models]


def _server(notes: Any, key: Key) -> Any:
    return SimpleNamespace(key=key, note=notes.info, warn=notes.warning)


def _choose(algorithm: Any, server: Any, clients: Any, answers: list[dict[int, float]]) -> Any:
    """Return the state after the choice, where clients answer so each time, and whom the server asked."""
    random = tuple(_model(-1.0 - number) for number in range(algorithm.config.clusters))
    state: Any = ChoosingState(random, (), {one: _model(one) for one in clients}, dict.fromkeys(clients, ()))
    asked = []
    for losses in (*answers, {}):
        state, messages = asyncio.run(algorithm.instruct_compare(server, state, range(9)))
        asked.append(list(messages))
        replies = [Reply(one, 0, "compare", 0, 0, 1.0, ModelLoss(loss)) for one, loss in losses.items()]
        if replies:
            state = asyncio.run(algorithm.merge_compare(server, state, replies))
    return state, asked


def _first(key: Key) -> int:
    """Return which of six clients is chosen first."""
    draw = key.child("first").numpy()
    return int(draw.choice([0, 1, 2, 3, 4, 5]))


KEY = next(key for key in (Key.root(seed) for seed in range(99)) if _first(key) == 3)
"""With which client 3 is the first."""


def test_the_next_model_is_that_of_the_client_whose_least_loss_is_the_largest(world: Any) -> None:
    algorithm, notes = world.algorithm("hypcluster", clusters=4, start="kmeans"), world.notes()
    answers = [
        {0: 0.5, 1: 2.0, 2: 3.0, 4: 1.0, 5: 2.5},  # of client 3's model: client 2 is the farthest
        {0: 9.0, 1: 1.5, 4: 7.0, 5: 0.1},  # least now 0.5, 1.5, 1.0, 0.1: client 1
        {0: 0.7, 4: 0.5, 5: 0.4},  # least now 0.5, 0.5, 0.1: of equals client 0
    ]
    state, asked = _choose(algorithm, _server(notes, KEY), range(6), answers)
    assert _values(state) == [3.0, 2.0, 1.0, 0.0]
    assert asked == [[0, 1, 2, 4, 5], [0, 1, 4, 5], [0, 4, 5], []]
    assert [note["client"] for note in notes.of("start model")] == [3, 2, 1, 0]


def test_who_does_not_answer_is_asked_and_chosen_no_more(world: Any) -> None:
    algorithm, notes = world.algorithm("hypcluster", clusters=4, start="kmeans"), world.notes()
    answers: list[dict[int, float]] = [{0: 0.5, 1: 9.0, 2: 1.0}, {0: 0.1}, {}]
    state, asked = _choose(algorithm, _server(notes, KEY), range(6), answers)
    assert _values(state) == [3.0, 1.0, 0.0, -4.0]  # the last has the random values of the fourth model
    assert asked == [[0, 1, 2, 4, 5], [0, 2], [], []]
    assert notes.of("no candidate left") == [{"model": 3, "instead": "random values"}]


def test_the_seed_draws_the_first_model(world: Any) -> None:
    algorithm = world.algorithm("hypcluster", start="kmeans")
    firsts = [
        _choose(algorithm, _server(world.notes(), Key.root(seed)), range(6), [{}])[0] for seed in range(40)
    ]
    assert {_values(models)[0] for models in firsts} == set(range(6))
    assert [_values(models)[0] for models in firsts] == [_first(Key.root(seed)) for seed in range(40)]


def _run(world: Any, params: dict[str, Any], **changes: Any) -> tuple[RunResult, Any]:
    notes = world.notes()
    return run(world.parts(world.algorithm("hypcluster", **params), **changes), log=notes), notes


def test_two_groups_of_clients_get_a_model_each(world: Any) -> None:
    up, down = ([[1.0], [2.0]], [2.0, 4.0]), ([[1.0], [2.0]], [-2.0, -4.0])
    algorithm = world.algorithm("hypcluster", start="kmeans")
    choices, seen = world.recorded(algorithm, "instruct_compare"), world.watched(algorithm)
    training = {"batch_size": 2, "epochs": 20}
    world.run(algorithm, **world.regression(up, down, up, down), training=training)
    starts = choices[-1][1][0]
    assert sorted(np.sign(model.params["head.weight"]).item() for model in starts) == [-1.0, 1.0]
    digests = [seen[client]["personal"].digest() for client in range(4)]
    assert digests[0] == digests[2] != digests[1] == digests[3]


def test_the_choice_costs_what_its_formula_says(world: Any) -> None:
    for clients, m in ((None, 6), (4, 4)):
        result, notes = _run(
            world, {"clusters": 3, "start": "kmeans", "start_clients": clients}, num_clients=6, rounds=1
        )
        opening, first = result.rounds[0], result.rounds[1]
        compared = (m - 1) + (m - 2)
        assert (opening.round, first.round) == (0, 1)
        assert opening.traffic.parameters_down == (m + compared) * SCALARS
        assert opening.traffic.parameters_up == m * SCALARS
        assert opening.traffic.frames_down == opening.traffic.frames_up == m + compared
        assert 0 < opening.traffic.bytes_down - 4 * opening.traffic.parameters_down < 600 * (m + compared)
        assert 0 < opening.traffic.bytes_up - 4 * opening.traffic.parameters_up < 600 * m + 150 * compared
        assert opening.ended_at_s > 0
        assert len({note["client"] for note in notes.of("start model")}) == 3
        assert result.totals == opening.traffic + first.traffic


def test_a_single_model_begins_at_random_and_nobody_is_asked(world: Any) -> None:
    one, plain = (_run(world, {"clusters": 1, "start": start}, rounds=1)[0] for start in ("kmeans", "random"))
    assert (one.model_hash, one.trace_hash, one.totals) == (plain.model_hash, plain.trace_hash, plain.totals)


@pytest.mark.parametrize("arriving", [0, 1])
def test_a_client_whose_replies_are_lost_is_not_chosen(arriving: int, world: Any) -> None:
    # Its model is lost, or its model arrives and its losses do not.
    lost = nth(range(arriving + 1, 99), sender=2)
    params = {"clusters": 4, "start": "kmeans"}  # as many as there are clients
    _, notes = _run(world, params, lost=lost, client_timeout_s=9.0, rounds=1)
    assert sorted(note["client"] for note in notes.of("start model")) == [0, 1, 3]
    assert [note["model"] for note in notes.of("no candidate left")] == [3]


def test_models_begin_at_random_if_nobody_answers(world: Any) -> None:
    lost = {"lost": lambda parcel, ordinal: parcel.sender >= 0 and ordinal < 8, "client_timeout_s": 9.0}
    silent, notes = _run(world, {"start": "kmeans"}, **lost)
    plain, _ = _run(world, {"start": "random"})
    assert silent.model_hash == plain.model_hash
    assert len(notes.of("no candidate left")) == 2


def test_a_loss_that_is_no_number_is_the_largest(world: Any) -> None:
    # As in a rehearsal, where nothing is computed: all exchanges take place.
    executor = NULL(ExecutorConfig())
    result, notes = _run(world, {"clusters": 3, "start": "kmeans"}, executor=executor, rounds=1)
    assert result.rounds[0].traffic.frames_up == 4 + 3 + 2
    first, *others = (note["client"] for note in notes.of("start model"))
    assert others == [client for client in range(4) if client != first][:2]
    assert not result.rejections
