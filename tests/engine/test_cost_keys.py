"""Runs of one process share counts, but only where all that a count depends on is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from fedsim.engine.cost import Costs
from fedsim.engine.cost_keys import step_key
from fedsim.engine.jobs import ClientSamples, Extra, Fit, InlineSamples, Predict, PublicSamples, Stream
from fedsim.engine.losses import PUBLIC, TEACHER, Batches, Extras, Models, absolute_error, squared_error
from fedsim.engine.optimisers import Adam, Clipped, Sgd
from fedsim.engine.steps import Descent, GradientSum
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture, flops, process_cache
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.models.mlp import Mlp
from fedsim.task import Task
from tests.engine.conftest import Lab


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is counted: steps, and forward passes."""
    seen: list[str] = []

    def watch(name: str) -> None:
        real = getattr(flops, name)

        def watched(*args: Any) -> Any:
            seen.append(name)
            return real(*args)

        monkeypatch.setattr(flops, name, watched)

    watch("measure")
    watch("forward")
    process_cache.forget()
    yield seen
    process_cache.forget()


def again(resources: Resources) -> Costs:
    """Return the costs of another run, with architectures of its own."""
    made = {label: replace(one) for label, one in resources.architectures.items()}
    return Costs(Resources.of(resources.data, made, "cpu"))


def test_another_run_of_the_same_models_counts_nothing(lab: Lab, counted: list[str]) -> None:
    jobs = lab.make_fit(), Predict(lab.start(), ClientSamples(0), 4)
    first = [again(lab.resources).work(job) for job in jobs]
    assert {*counted} == {"measure", "forward"}
    counted.clear()
    assert [again(lab.resources).work(job) for job in jobs] == first
    assert not counted


class Wider(Mlp):
    """A model of somebody else's."""


def theirs(models: Models, batches: Batches, extras: Extras) -> Tensor:
    return models["model"](batches["train"].x).sum()


@dataclass(frozen=True)
class Theirs(Sgd):
    """An optimiser of somebody else's."""


@pytest.mark.parametrize(
    "changes",
    [
        {"step": Descent(loss=theirs)},
        {"optimiser": Theirs(0.1)},
        {"optimiser": Clipped(Theirs(0.1), 1.0)},
        {"models": "norm"},
    ],
    ids=["loss", "optimiser", "inner optimiser", "model"],
)
def test_code_of_others_is_counted_in_each_run(lab: Lab, counted: list[str], changes: dict[str, Any]) -> None:
    if "models" in changes:
        changes = {"models": {"model": lab.start(changes["models"])}}
    job = lab.make_fit(num_steps=1, **changes)
    for _ in range(2):
        again(lab.resources).work(job)
    assert counted.count("measure") == 2


def test_settings_of_torch_tell_counts_apart(
    lab: Lab, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lab.make_fit(num_steps=1)
    once = again(lab.resources).work(job).total.flops
    with monkeypatch.context() as patch:
        # Products of matrices are free from now on.
        patch.setitem(flop_registry, torch.ops.aten.mm, lambda *args, **kwargs: 0)
        assert 0 < again(lab.resources).work(job).total.flops < once
    torch.set_default_dtype(torch.float64)
    try:
        counted.clear()
        again(lab.resources).work(job)
        assert "measure" in counted
    finally:
        torch.set_default_dtype(torch.float32)
    assert again(lab.resources).work(job).total.flops == once


def _key(resources: Resources, job: Fit, sizes: tuple[int, ...] = (4,), task: Task | None = None) -> Any:
    task = task or resources.data.task
    return step_key(job, sizes, resources.architectures, task, resources.data.augmentations)


def test_all_that_a_count_depends_on_is_in_its_key(lab: Lab) -> None:
    public = {PUBLIC: Stream(PublicSamples(np.arange(8)), 4)}
    teacher = {TEACHER: Extra(np.zeros((8, 3), np.float32), PUBLIC)}
    two = {"model": lab.start(), "other": lab.start(seed=1)}
    samples = InlineSamples(np.zeros((4, 6), np.float32), np.zeros(4, np.int64))

    def of(**changes: Any) -> Any:
        return _key(lab.resources, lab.make_fit(**changes))

    keys = [
        of(),
        _key(lab.resources, lab.make_fit(), (3,)),
        _key(lab.resources, lab.make_fit(), task=Task((7,), 3)),
        of(step=GradientSum()),
        of(step=Descent(loss=absolute_error)),
        of(step=Descent(loss=squared_error)),
        of(optimiser=Sgd(0.1, momentum=0.9)),
        of(optimiser=Sgd(0.1, weight_decay=0.1)),
        of(optimiser=Adam(0.1)),
        of(optimiser=Clipped(Sgd(0.1), 1.0)),
        of(models={"other": lab.start()}),
        of(models=two),
        of(models=two, trained=("model",)),
        of(public_buffers="frozen"),
        of(streams=public),
        of(streams={PUBLIC: Stream(PublicSamples(np.arange(8), labelled=True), 4)}),
        of(streams={"train": Stream(samples, 4)}),
        of(streams={"train": Stream(replace(samples, y=None), 4)}),
        of(streams={"train": Stream(replace(samples, x=np.zeros((4, 5), np.float32)), 4)}),
        of(streams={"train": Stream(replace(samples, x=np.zeros((4, 6), np.int64)), 4)}),
        of(streams=public, extras=teacher),
        of(streams=public, extras={TEACHER: Extra(np.zeros((8, 3), np.float64), PUBLIC)}),
        of(streams=public, extras={TEACHER: Extra(np.zeros((8, 3), np.float32))}),
        of(streams=public, extras={TEACHER: Extra({"a": np.zeros(3, np.float32)})}),
        of(streams=public, extras={TEACHER: Extra({"a": np.zeros(4, np.float32)})}),
        of(outputs={"sum": np.zeros(3, np.float32)}),
        of(outputs={"sum": np.zeros(3, np.float64)}),
        of(outputs={"sum": np.zeros(4, np.float32)}),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    # What it does not depend on.
    assert of(optimiser=Sgd(0.2), seed=3, num_steps=9, models={"model": lab.start(seed=5)}) == keys[0]


def test_architectures_are_alike_by_model_settings_and_task() -> None:
    def value(hidden: int = 4, num_inputs: int = 6, plugin: type[Mlp] = MLP) -> Any:
        return Architecture("any", plugin(MLP.Config(hidden=(hidden,))), Task((num_inputs,), 3)).value

    assert value() == value()
    assert len({value(), value(hidden=5), value(num_inputs=7)}) == 3
    assert value(plugin=Wider) is None
    assert Architecture("x", MLP(MLP.Config()), Task((6,), 3)).below(1).value is None


def test_not_all_counts_are_kept_for_ever(
    lab: Lab, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_cache, "MAX_ENTRIES", 3)
    costs = Costs(lab.resources)
    for size in range(1, 9):
        costs.work(lab.make_fit(streams={"train": Stream(ClientSamples(0), size)}))
        assert 0 < len(process_cache._MEMORY) <= 3
