"""Jobs on parts of nets, and what hooks are told of labels and architectures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.clock import Trace
from fedsim.data import FederatedData, Spreading, federate
from fedsim.data.base import Dataset
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.cost import Costs
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.engine.jobs import ClientSamples, Evaluate, Fit, InlineSamples, Predict, PublicSamples, Stream
from fedsim.engine.losses import Batches, Extras, Models, label_loss
from fedsim.engine.steps import Descent
from fedsim.engine.training_config import TrainingConfig
from fedsim.engine.worker_state import Resources
from fedsim.models import Architecture, composed
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.conftest import Lab


@pytest.fixture
def bench(architectures: Mapping[str, Architecture]) -> Any:
    """Makes a party's context over some data; nothing in it runs."""

    def make(data: FederatedData, client: int = 0) -> ComputeContext:
        engine = Engine(NULL(ExecutorConfig()), Resources.of(data, architectures, "cpu"), Trace())
        device: Any = None
        return ComputeContext(engine, device, TrainingConfig(), client=client, dispatch=0, key=Key.root(0))

    return make


def test_labels_are_in_the_order_of_the_samples(bench: Any, data: FederatedData) -> None:
    party: ComputeContext = bench(data, client=1)
    own, positions = data.indices(1, "train"), np.array([3, 0])
    cases: list[tuple[Any, Array]] = [
        (party.own("train"), data.y[own]),
        (party.public(positions, labelled=True), data.y[data.public[positions]]),
        (InlineSamples(np.ones((2, 6), np.float32), np.array([2, 1])), np.array([2, 1])),
    ]
    for samples, expected in cases:
        labels = party.labels(samples)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, expected)
    with pytest.raises(ValueError, match="public samples with labelled=True"):
        party.labels(party.public(positions))


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_labels_of_counts_are_zeros(bench: Any, kind: Any) -> None:
    counts = Dataset(Task((6,), 3, kind=kind), sizes=np.array([4, 7]))
    data = federate(counts, None, Spreading(num_clients=2, shares=(1, 0, 0)), Key.root(0))
    party: ComputeContext = bench(data, client=1)
    labels = party.labels(party.own("train"))
    assert labels.tolist() == [0] * 7
    assert labels.dtype == (np.float32 if kind == "regression" else np.int64)


def test_hooks_find_architectures_and_their_parts(bench: Any, data: FederatedData) -> None:
    known = bench(data).architectures
    assert known["mlp"].layers == ("flatten", "fc1", "head")
    assert known["mlp[:2]"] is known["mlp"].below(2)
    assert "mlp[:2]" not in list(known)


@pytest.mark.parametrize("cut", [1, 2])
def test_features_of_nobody_have_their_shape_too(lab: Lab, cut: int) -> None:
    lower = lab.architectures["mlp"].below(cut)
    for samples, n in ((ClientSamples(2), 0), (ClientSamples(0), 11)):
        features = lab.run(Predict(lower.part_of(lab.start()), samples, 4))
        assert features.shape == (n, *lower.output_shape)
        assert features.dtype == np.float32


def test_upper_layers_learn_from_features(lab: Lab) -> None:
    mlp, model = lab.architectures["mlp"], lab.start()
    features = lab.run(Predict(mlp.below(2).part_of(model), ClientSamples(0), 4))
    labels = lab.worker.resources.data.y[lab.worker.resources.data.indices(0, "train")]
    job: Fit = lab.make_fit(
        models={"model": mlp.above(2).part_of(model)},
        streams={"train": Stream(InlineSamples(features, labels), 4)},
    )
    fitted = lab.run(job).model
    assert fitted.architecture == "mlp[2:]"
    assert list(fitted.params) == ["head.weight", "head.bias"]
    # A product of 4 inputs and 3 outputs, and as much for its weights.
    assert Costs(lab.worker.resources).work(replace(job, num_steps=1)).total.flops == 4 * 2 * 2 * (4 * 3)


def test_a_composed_model_is_evaluated_like_the_whole(lab: Lab) -> None:
    mlp, model = lab.architectures["mlp"], lab.start()
    both = composed(mlp.below(2).part_of(model), mlp.above(2).part_of(model))
    parts = (ClientSamples(0), ClientSamples(1))
    assert lab.run(Evaluate(both, parts, 4)) == lab.run(Evaluate(model, parts, 4))
    costs = Costs(lab.worker.resources)
    assert costs.work(Evaluate(both, parts, 4)).total == costs.work(Evaluate(model, parts, 4)).total


def once(models: Models, batches: Batches, extras: Extras) -> Any:
    """Features and logits of one forward pass."""
    model, batch = models["model"], batches["train"]
    return label_loss(model.head(model.features(batch.x)), batch.labels)


@pytest.mark.parametrize("label", ["mlp", "norm", "counting"])
def test_features_and_logits_of_one_pass_are_those_of_the_model(lab: Lab, label: str) -> None:
    jobs = [
        lab.make_fit(models={"model": lab.start(label)}, step=step)
        for step in (Descent(), Descent(loss=once))
    ]
    usual, by_hand = (lab.run(job) for job in jobs)
    assert usual.loss == by_hand.loss
    assert usual.model.digest() == by_hand.model.digest()
    costs = Costs(lab.worker.resources)
    assert costs.work(jobs[0]) == costs.work(jobs[1])


def test_where_nothing_learns_features_have_their_shape(lab: Lab) -> None:
    null = NULL(ExecutorConfig())
    null.open(lab.resources)
    lower = lab.architectures["mlp"].below(2)
    job = Predict(lower.part_of(lab.start()), PublicSamples(np.arange(5)), 4)
    features = null.wait(null.submit(job, (0, 0)))
    assert features.shape == (5, 4)
    assert features.dtype == np.float32


def test_a_part_has_no_gradient_where_it_is_a_teacher(lab: Lab) -> None:
    # What FedRep does by turns: layers above the cut learn, those below it stay.
    mlp, model = lab.architectures["mlp"], lab.start()
    models = {"below": mlp.below(2).part_of(model), "model": mlp.above(2).part_of(model)}

    def through(models: Models, batches: Batches, extras: Extras) -> Any:
        batch = batches["train"]
        return label_loss(models["model"](models["below"](batch.x)), batch.labels)

    streams = {"train": Stream(ClientSamples(0), 4)}
    sgd = {"model": TrainingConfig(lr=0.1).make_optimiser()}
    split = lab.run(Fit(Descent(loss=through), models, ("model",), streams, sgd, 5, 17))
    whole = lab.run(Fit(Descent(), {"model": model}, ("model",), streams, sgd, 1, 17))
    first = lab.run(Fit(Descent(loss=through), models, ("model",), streams, sgd, 1, 17))
    assert list(split.models) == ["model"]
    assert first.loss == whole.loss
    for name, array in first.model.params.items():
        assert torch.equal(torch.tensor(array), torch.tensor(whole.model.params[name]))
