"""On a device, a step waits for nothing: the host waits at the end of a job alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.engine.jobs import (
    ClientSamples,
    Evaluate,
    Extra,
    Fit,
    GlobalTest,
    Predict,
    PublicSamples,
    Stream,
    per_sample,
)
from fedsim.engine.losses import Batches, divergence
from fedsim.engine.optimisers import Adam, Clipped, Optimiser, Sgd, cosine
from fedsim.engine.steps import NUM_SAMPLES, Descent, GradientSum, Work
from fedsim.engine.worker_state import Resources
from tests.engine.conftest import Lab
from tests.engine.device_waits import device_waits

OPTIMISERS: tuple[Optimiser, ...] = (
    Sgd(0.1),
    Sgd(0.1, momentum=0.9, weight_decay=0.01),
    Adam(0.01),
    Clipped(Adam(0.01, weight_decay=0.01), 0.5),
    cosine(Sgd(0.1), 12),
)


def same_waits(job: Fit, resources: Resources) -> list[str]:
    """Return what a fit waits for, which is the same for one pass and for many."""
    few, many = (device_waits(replace(job, num_steps=count), resources) for count in (3, 7))
    assert few == many
    return few


@pytest.mark.parametrize(
    ("label", "optimiser"),
    [*((label, Sgd(0.1)) for label in ("norm", "tied", "lstm")), *(("mlp", one) for one in OPTIMISERS)],
)
def test_a_fit_waits_for_its_models_and_its_losses(lab: Lab, label: str, optimiser: Optimiser) -> None:
    model = lab.start(label)
    waits = same_waits(lab.make_fit(models={"model": model}, optimiser=optimiser), lab.resources)
    assert waits == ["copy to the CPU"] * (2 + bool(model.buffers))


def test_no_optimiser_that_goes_on_waits_for_its_counts(lab: Lab) -> None:
    params = lab.start().params
    kept = {f"{slot}/{name}": array for slot in ("first", "second") for name, array in params.items()}
    kept |= {f"steps/{name}": np.array(3, np.float32) for name in params}
    job = lab.make_fit(optimiser=Adam(0.01), states={"model": kept})
    assert len(same_waits(job, lab.resources)) == 3  # the state as well


def test_what_follows_a_stream_and_what_a_step_leaves_wait_for_nothing(lab: Lab) -> None:
    public = Stream(PublicSamples(np.arange(8)), 4)
    teacher = per_sample(np.zeros((8, 3), np.float32), "public")
    assert same_waits(
        lab.make_fit(step=Descent(divergence), streams={"public": public}, extras={"teacher": teacher}),
        lab.resources,
    )
    outputs = {name: np.zeros_like(array) for name, array in lab.start().params.items()}
    job = lab.make_fit(
        step=GradientSum(), extras={NUM_SAMPLES: Extra(np.array(11, np.float32))}, outputs=outputs
    )
    assert same_waits(job, lab.resources)


@pytest.mark.parametrize("per_class", [False, True])
def test_an_evaluation_waits_as_often_for_many_batches(lab: Lab, per_class: bool) -> None:
    parts = (ClientSamples(0), GlobalTest())
    few, many = (
        device_waits(Evaluate(lab.start(), parts, size, per_class=per_class), lab.resources)
        for size in (100, 2)
    )
    assert few == many == ["copy to the CPU"] * (2 + per_class) * len(parts)


def test_a_prediction_waits_once(lab: Lab) -> None:
    assert device_waits(Predict(lab.start(), ClientSamples(0), 2), lab.resources) == ["copy to the CPU"]


@dataclass(frozen=True)
class Reading:
    """Does on the device's back what makes the host wait."""

    what: str

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        loss, x = Descent()(work, batches), batches["train"].x
        if self.what == "number":
            float(loss)
        elif self.what == "copy to the device":
            x + torch.ones(6).to(x.device)
        elif self.what == "copy to the CPU":
            x.cpu()
        else:
            x[torch.arange(2)]
        return loss


@pytest.mark.parametrize("what", ["number", "copy to the device", "copy to the CPU", "aten.index.Tensor"])
def test_steps_that_wait_are_found(lab: Lab, what: str) -> None:
    waits = device_waits(lab.make_fit(step=Reading(what), num_steps=5), lab.resources)
    assert waits.count(what) == 5 + 2 * (what == "copy to the CPU")
