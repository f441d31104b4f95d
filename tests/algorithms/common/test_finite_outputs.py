"""One upload of huge weights is left out: it neither ends a run nor spoils it (specification 3.5, E9)."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.finite_outputs import logits_of_finite, unless_diverged
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.params import Model
from fedsim.runtime.run import run
from fedsim.task import Task

POISONER = 1
TRAINED: dict[str, Any] = {"candidates": ["mlp"], "start_trained": True}
"""FedMe's clients send models at its opening."""
DEEP = {"mlp": Architecture("mlp", MLP(MLP.Config(hidden=(16, 16))), Task((64,), 10))}


def _poisoning(world: Any, algorithm: Any, name: str) -> Any:
    """Have one client's first reply of a hook carry weights of some 1e15: sound, unlike its outputs."""
    poisoned = list[int]()

    def lie(client: Any, reply: Any) -> Any:
        if client.client != POISONER or poisoned:
            return reply
        poisoned.append(client.round)
        params = {key: (array * 1e15).astype(array.dtype) for key, array in reply.params.items()}
        return replace(reply, params=params)

    return world.lying(algorithm, name, lie)


def _sound(seen: dict[int, dict[str, Model]]) -> bool:
    return all(model.is_finite() for models in seen.values() for model in models.values())


@pytest.mark.parametrize(
    ("name", "params"),
    [("feddf", {"server_steps": 5}), ("feddf", {"server_steps": 5, "ensemble": "losses"}), ("fedet", {})],
)
def test_a_poisoned_upload_is_in_no_mean(name: str, params: dict[str, Any], world: Any) -> None:
    algorithm, notes = _poisoning(world, world.algorithm(name, **params), "train"), world.notes()
    seen = world.watched(algorithm)
    result = run(world.parts(algorithm, architectures=DEEP), log=notes)
    assert _sound(seen)
    assert result.by_client["rejected"].tolist() == [0] * 4
    assert notes.warnings == [("model left out", {"client": 1, "reason": "its outputs are not finite"})]


@pytest.mark.parametrize("name", ["feddf", "fedet"])
def test_a_round_of_poisoned_uploads_alone_changes_nothing(name: str, world: Any) -> None:
    algorithm, notes = _poisoning(world, world.algorithm(name), "train"), world.notes()
    seen = world.watched(algorithm)
    parts = world.parts(
        algorithm,
        architectures=DEEP,
        rounds=1,
        lost=lambda parcel, ordinal: parcel.sender in (0, 2, 3),
        client_timeout_s=9.0,
    )
    run(parts, log=notes)
    assert notes.of("model left out")
    start = parts.initial()("mlp").digest()
    assert {model.digest() for models in seen.values() for model in models.values()} == {start}


@pytest.mark.parametrize("name", ["feddf", "fedet"])
def test_training_that_diverges_at_the_server_is_given_up(name: str, world: Any) -> None:
    algorithm, notes = world.algorithm(name, server_steps=10), world.notes()
    algorithm.config = algorithm.config.model_copy(update={"server_lr": 1e30})  # beyond the setting's range
    seen = world.watched(algorithm)
    parts = world.parts(algorithm, architectures=DEEP)
    result = run(parts, log=notes)
    start = parts.initial()("mlp").digest()
    assert {model.digest() for models in seen.values() for model in models.values()} == {start}
    assert result.by_client["rejected"].tolist() == [0] * 4
    noted = {"architecture": "mlp", "instead": "former model"}
    assert notes.warnings == [("training at the server diverged", noted)] * 3


@pytest.mark.parametrize("literal", [False, True])
def test_fedme_neither_groups_nor_hands_on_a_poisoned_model(literal: bool, world: Any) -> None:
    sent: dict[str, Any] = {"literal_upload": True} if literal else TRAINED
    algorithm = world.algorithm("fedme", clusters=[2, 1], raise_at=[2], **sent)
    _poisoning(world, algorithm, "local_upload" if literal else "local_enrol")
    owners, instruct = [], algorithm.instruct_learn

    async def instruct_learn(*arguments: Any) -> Any:
        state, messages = await instruct(*arguments)
        owners.append({client: message.owner for client, message in messages.items()})
        return state, messages

    algorithm.instruct_learn = instruct_learn
    seen, notes = world.watched(algorithm), world.notes()
    result = run(world.parts(algorithm, architectures=DEEP, rounds=5), log=notes)
    assert _sound(seen)
    assert result.by_client["rejected"].tolist() == [0] * 4
    assert notes.warnings == [("model left out", {"client": 1, "reason": "its outputs are not finite"})]
    assert sorted(owners[0]) == [0, 1, 2, 3]  # who sent it takes part all the same
    assert POISONER not in owners[0].values()
    assert POISONER in [owner for later in owners[1:] for owner in later.values()]


@pytest.mark.parametrize("dml", [True, False])
def test_fedmes_clients_are_not_spoilt_by_what_nobody_has_looked_at(dml: bool, world: Any) -> None:
    # With one cluster the server asks no model anything.
    algorithm = _poisoning(world, world.algorithm("fedme", mc=False, dml=dml, **TRAINED), "local_enrol")
    seen, notes = world.watched(algorithm), world.notes()
    result = run(world.parts(algorithm, architectures=DEEP), log=notes)
    assert _sound(seen)
    assert result.by_client["rejected"].tolist() == [0] * 4
    diverged = notes.of("exchanged model diverged")
    assert diverged
    assert {note["owner"] for note in diverged} == {POISONER}


def test_models_are_asked_once_and_the_unsound_named() -> None:
    warned: list[Any] = []

    async def predict_each(models: Any, samples: Any) -> Any:
        assert samples.tolist() == [0, 1]
        return [np.full((2, 3), value, np.float32) for value in models]

    server: Any = SimpleNamespace(
        num_public=2,
        public=lambda positions: positions,
        predict_each=predict_each,
        warn=lambda event, **values: warned.append(values["client"]),
    )
    models: Any = [(4, 1.0), (5, np.nan), (6, 3e38), (7, -np.inf)]
    found = asyncio.run(logits_of_finite(server, models))
    assert list(found) == [0, 2]
    assert found[0].tolist() == [[1.0] * 3] * 2
    assert warned == [5, 7]


def test_what_has_diverged_is_given_up() -> None:
    warned: list[Any] = []
    server: Any = SimpleNamespace(warn=lambda event, **values: warned.append(values["architecture"]))
    sound = Model("a", {"w": np.zeros(2, np.float32)}, {"steps": np.array(3)})
    for params, buffers in (({"w": np.array([0, np.nan])}, {}), ({}, {"mean": np.array([np.inf])})):
        assert unless_diverged(server, Model("a", params, buffers), sound) is sound
    assert warned == ["a", "a"]
    assert unless_diverged(server, sound, Model("b", {})) is sound
    assert len(warned) == 2
