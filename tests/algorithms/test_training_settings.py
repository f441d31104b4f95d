"""Schedules, clipping and augmentation in whole runs: what changes nothing, and what is known by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg
from fedsim.data.federated import Holdings
from fedsim.engine import fit_job_cache
from fedsim.engine.cost import Costs
from fedsim.engine.executors import threads
from fedsim.engine.executors.threads import PLUGIN as THREADS
from fedsim.engine.fit_job_cache import FitJobCache
from fedsim.engine.jobs import ClientSamples, Fit, Stream
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.runtime.policies.pacing.asynchronous import Buffered
from fedsim.scenario.schema import DataConfig
from fedsim.task import Task

LR = 0.1
HALVED: dict[str, Any] = {"name": "exponential", "params": {"gamma": 0.5}}
CONSTANT: dict[str, Any] = {"name": "step", "params": {"step_size": 1, "gamma": 1.0}}
FALLING = [HALVED, {"name": "cosine", "by": "step"}, {"name": "linear", "by": "step"}]


def by_step(schedule: dict[str, Any]) -> dict[str, Any]:
    return {**schedule, "by": "step"}


SOON = ("fedavg", "scaffold", "pfedme")
LATER = ("fedavg_ft", "fedamp", "apfl", "fml", "perfedavg")
ALGORITHMS = [*SOON, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_constant_schedule_is_none_bit_for_bit(name: str, world: Any) -> None:
    plain, constant = (
        world.run(world.algorithm(name), rounds=2, training={"schedule": schedule})
        for schedule in ([], [CONSTANT, by_step(CONSTANT)])
    )
    assert constant.model_hash == plain.model_hash
    assert constant.trace_hash == plain.trace_hash


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_schedule_changes_models_and_no_time(name: str, world: Any) -> None:
    plain, falling = (
        world.run(world.algorithm(name), rounds=2, training={"schedule": schedule})
        for schedule in ([], FALLING)
    )
    assert falling.model_hash != plain.model_hash
    assert falling.simulated_s == plain.simulated_s


def test_what_is_remembered_of_fits_does_not_grow_with_rounds(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At a rate of its own in each round, every round has kinds of fits of its own.
    settings: dict[str, Any] = {"rounds": 3, "training": {"schedule": [HALVED]}}
    usual = world.run(world.algorithm("fedavg"), **settings)
    for module in (fit_job_cache, threads):
        monkeypatch.setattr(module, "MAX_KINDS", 1)
    kinds, keys = list[dict[Any, Any]](), list[dict[Any, Any]]()
    like, batch_key = FitJobCache.like, THREADS._batch_key

    def noting(self: Any, *arguments: Any, **options: Any) -> Any:
        kinds.append(self._kinds)
        return like(self, *arguments, **options)

    def noting_key(self: Any, job: Any) -> Any:
        keys.append(self._batch_keys)
        return batch_key(self, job)

    monkeypatch.setattr(FitJobCache, "like", noting)
    monkeypatch.setattr(THREADS, "_batch_key", noting_key)
    bounded = world.run(world.algorithm("fedavg"), **settings)
    assert (len(kinds[-1]), len(keys[-1])) == (1, 1)
    assert (bounded.trace_hash, bounded.model_hash) == (usual.trace_hash, usual.model_hash)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "fedamp"])
def test_batching_workers_and_sockets_change_nothing(name: str, world: Any) -> None:
    training = {"schedule": FALLING, "clip_norm": 0.2}
    world.check_every_way(lambda: world.algorithm(name), workers=(2, 4), training=training)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (HALVED, (0.1, 0.1, 0.05, 0.05, 0.025, 0.025)),
        (by_step(HALVED), (0.1, 0.05) * 3),
        ([HALVED, by_step(HALVED)], (0.1, 0.05, 0.05, 0.025, 0.025, 0.0125)),
        ({"name": "polynomial"}, (0.1, 0.1, 0.2 / 3, 0.2 / 3, 0.1 / 3, 0.1 / 3)),
        (by_step({"name": "polynomial"}), (0.1, 0.05) * 3),
    ],
)
def test_steps_by_hand(schedule: Any, rates: tuple[float, ...], world: Any) -> None:
    # A sample x = 1, y = 3 has the gradient 2 (w + b - 3) for w and b.
    problem = world.regression(([[1.0]], [3.0]))
    algorithm = world.algorithm("fedavg")
    start = world.parts(algorithm, **problem).initial()("mlp").params
    training = {"steps": 2, "batch_size": 1, "schedule": schedule}
    result = world.run(algorithm, rounds=3, training=training, **problem)
    gap = sum(float(array.sum()) for array in start.values()) - 3
    for rate in rates:
        gap *= 1 - 2 * 2 * rate
    params = result.models[0]["global"].params
    np.testing.assert_allclose(sum(float(array.sum()) for array in params.values()) - 3, gap, rtol=1e-4)


class Noting(FedAvg):
    """Notes the round and the rate of all that trains."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.rates = dict[tuple[str, int], float]()
        self.stalest = 0

    async def train(self, client: ClientContext, state: Any, message: Any) -> Any:
        self.rates["client", client.round] = client.training.lr
        return await super().train(client, state, message)

    async def merge(self, server: ServerContext, state: Any, replies: Any) -> Any:
        self.rates["server", server.round] = server.training.lr
        self.stalest = max(self.stalest, *(reply.staleness for reply in replies))
        return await super().merge(server, state, replies)

    async def models_of(self, observer: ClientContext, server_state: Any, client_state: Any) -> Any:
        self.rates["observer", observer.round] = observer.training.lr
        return await super().models_of(observer, server_state, client_state)


def test_a_stale_reply_was_trained_at_the_rate_of_its_dispatch(world: Any) -> None:
    algorithm = Noting(Noting.Config())
    pacing = Buffered(Buffered.Config(concurrency=3, buffer=2))
    world.run(algorithm, rounds=6, training={"schedule": HALVED}, pacing=pacing)
    assert algorithm.stalest > 0
    assert {who for who, _ in algorithm.rates} == {"client", "server", "observer"}
    assert algorithm.rates == {(who, number): LR * 0.5 ** (number - 1) for who, number in algorithm.rates}


def test_a_schedule_that_lasts_as_long_as_the_run_needs_its_rounds(world: Any) -> None:
    algorithm = world.algorithm("fedavg")
    schedules = [
        HALVED,
        {"name": "cosine", "params": {"total_iters": 5}},
        "cosine",
        by_step({"name": "cosine"}),
    ]
    (fault,) = world.parts(algorithm, rounds=None, training={"schedule": schedules}).misfits()
    assert str(fault) == (
        "training.schedule: 'cosine' ends with the last round, and run.rounds does not say which that is — "
        "give it params.total_iters = 100, say, or write run.rounds"
    )
    assert list(world.parts(algorithm, training={"schedule": schedules}).misfits()) == []


# Clipping


@pytest.mark.parametrize(
    "name", [*ALGORITHMS, *(pytest.param(one, marks=pytest.mark.slow) for one in ("fedgkt", "pfedhn"))]
)
def test_a_norm_that_no_gradient_reaches_changes_no_bit(name: str, world: Any) -> None:
    params = {"option": "I"} if name == "scaffold" else {"cut": -1} if name == "fedgkt" else {}
    plain, clipped, short = (
        world.run(world.algorithm(name, **params), rounds=2, training=training).model_hash
        for training in ({}, {"clip_norm": 1e6}, {"clip_norm": 0.01})
    )
    assert clipped == plain != short


def test_a_clipped_step_is_as_long_as_the_rate_says(world: Any) -> None:
    # The gradient of w and of b is 2 (w + b - 3), far longer than 0.5.
    problem = world.regression(([[1.0]], [3.0]))
    algorithm = world.algorithm("fedavg")
    start = world.parts(algorithm, **problem).initial()("mlp").params
    training = {"steps": 3, "batch_size": 1, "clip_norm": 0.5, "schedule": HALVED}
    result = world.run(algorithm, rounds=2, training=training, **problem)
    sign = np.sign(3 - sum(float(array.sum()) for array in start.values()))
    way = sign * (3 * 0.1 + 3 * 0.05) * 0.5 / np.sqrt(2)
    for name, array in result.models[0]["global"].params.items():
        np.testing.assert_allclose(array - start[name], way, rtol=1e-4)


def test_clipping_is_counted_where_a_device_waits_for_memory(world: Any) -> None:
    def moved_bytes(**training: Any) -> float:
        parts = world.parts(world.algorithm("fedavg"), training=training)
        costs = Costs(Resources.of(parts.data, parts.architectures, "cpu"))
        optimisers = {"model": parts.training.make_optimiser()}
        model = parts.initial()("mlp")
        job = Fit(
            Descent(), {"model": model}, ("model",), {"train": Stream(ClientSamples(0), 8)}, optimisers, 2, 0
        )
        return costs.work(job).total.moved_bytes

    assert moved_bytes(clip_norm=1.0) > moved_bytes()


# Augmentation


def augmented(world: Any, *augmentations: dict[str, Any]) -> dict[str, Any]:
    """Return changes to a run: the digits as images, which are transformed in trainings."""
    flat = world.data()
    task = Task((1, 8, 8), 10)
    choices = DataConfig.model_validate({"augmentation": list(augmentations)}).augmentation
    data = replace(
        flat,
        task=task,
        x=flat.x.reshape(-1, 1, 8, 8),
        augmentations=tuple(choice.make() for choice in choices),
    )
    return {"data": data, "architectures": {"mlp": Architecture("mlp", MLP(MLP.Config(hidden=(16,))), task)}}


EACH: tuple[dict[str, Any], ...] = (
    {"name": "flip"},
    {"name": "crop", "params": {"padding": 1}},
    {"name": "cutout", "params": {"size": 2}},
)


def test_images_that_stay_as_they_are_change_no_bit(world: Any) -> None:
    never = {"name": "flip", "params": {"probability": 0.0}}
    plain, same, *others = (
        world.run(world.algorithm("fedavg"), **augmented(world, *some))
        for some in ((), (never,), *((one,) for one in EACH))
    )
    assert same.model_hash == plain.model_hash
    assert len({result.model_hash for result in (plain, *others)}) == 4
    assert all(result.final.mean is not None for result in others)


@pytest.mark.parametrize("name", ["fedavg", pytest.param("fedmd", marks=pytest.mark.slow)])
def test_neither_batching_nor_workers_nor_sockets_change_what_is_drawn(name: str, world: Any) -> None:
    world.check_every_way(lambda: world.algorithm(name), workers=(2, 4), **augmented(world, *EACH))


def test_alone_it_is_local_and_centralized_bit_for_bit(world: Any) -> None:
    # Images are drawn by the names of turns, so equal work meets equal images.
    data = augmented(world, *EACH)["data"]
    held = world.holding(data, "train", [data.indices(0, "train")[:20]])
    none = {split: Holdings(np.zeros(2, np.int64), np.arange(0)) for split in ("val", "test")}
    alone = {
        **augmented(world, *EACH),
        "data": replace(held, num_clients=1, holdings={**held.holdings, **none}),
        "num_clients": 1,
    }
    hashes = {
        world.run(world.algorithm(name), **alone)
        .models[0]["global" if name != "local" else "personal"]
        .digest()
        for name in ("fedavg", "local", "centralized")
    }
    assert len(hashes) == 1
