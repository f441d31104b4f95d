"""Many clients that distil at once end with the bits of one at a time: several streams, extras, models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsim.algorithms.common.distillation import Distillation, kl_divergence
from fedsim.algorithms.common.proximal import Proximal
from fedsim.algorithms.fedgkt import Transfer
from fedsim.algorithms.fedme import EXCHANGED, PERSONAL, MutualLearning
from fedsim.algorithms.fml import MEME, Mutual
from fedsim.algorithms.moon import GLOBAL, Contrast
from fedsim.algorithms.perfed_ckt import CloseToTeacher
from fedsim.algorithms.persfl import Imitating
from fedsim.engine.batched import fit as batched_fit
from fedsim.engine.batched.fit import fit_together
from fedsim.engine.batched.kinds import FitKind, Ways, fit_kind
from fedsim.engine.execute import fit, one_torch_thread
from fedsim.engine.jobs import (
    ClientSamples,
    Extra,
    Fit,
    InlineSamples,
    PublicSamples,
    Samples,
    Stream,
    per_sample,
)
from fedsim.engine.losses import (
    MODEL,
    PUBLIC,
    TEACHER,
    TRAIN,
    Batches,
    Extras,
    Models,
    absolute_error,
    divergence,
    empirical_loss,
    label_loss,
    serves_many,
    squared_error,
)
from fedsim.engine.optimisers import Adam, Optimiser, Sgd, cosine
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Worker
from fedsim.params import Model
from fedsim.rng import Key
from fedsim.task import Task, TaskKind
from tests.engine.batched import worlds
from tests.engine.batched.worlds import bits, dense

NUM_PUBLIC = 30
NUM_INPUTS = 12
DIVERGING = Sgd(1e30)
OPTIMISERS: tuple[Optimiser, ...] = (
    Sgd(0.05),
    DIVERGING,
    Sgd(0.05, momentum=0.9, weight_decay=0.01),
    Adam(0.01),
    cosine(Adam(0.01), 5),
)
HIDDEN = {"small": (7,), "wide": (33, 20)}
"""Widths of the nets by label."""


def world(sizes: Sequence[int], num_outputs: int, kind: TaskKind = "classification") -> Worker:
    """Return a worker whose clients hold so many samples, with a public set and two nets."""
    nets = {label: dense(*hidden) for label, hidden in HIDDEN.items()}
    return worlds.world(Task((NUM_INPUTS,), num_outputs, kind), sizes, nets, num_public=NUM_PUBLIC)


def start(worker: Worker, seed: int, label: str = "small") -> Model:
    return worker.resources.architectures[label].initial(Key.root(seed))


@serves_many
def from_a_net(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Learn from a teacher's outputs, and ask the student three times."""
    x = batches[PUBLIC].x
    log_student = F.log_softmax(models[MODEL](x), dim=-1)
    taught = kl_divergence(F.softmax(models["net"](x), dim=-1), log_student)
    again = models[MODEL](x).square().mean((-2, -1))
    return taught + empirical_loss(models, batches, extras) + again


@serves_many
def from_features(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Learn from the features of public samples alone, and beside them from labels."""
    public = models[MODEL].features(batches[PUBLIC].x).square().mean((-2, -1))
    return public + empirical_loss(models, batches, extras)


@serves_many
def by_two_heads(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Call the head twice, which no loss that serves many may do."""
    batch, model = batches[TRAIN], models[MODEL]
    features = model.features(batch.x)
    return label_loss(model.head(features), batch.labels) + label_loss(model.head(-features), batch.labels)


@serves_many
def in_a_row(models: Models, batches: Batches, extras: Extras) -> Tensor:
    """Pass one model's outputs to another one, which no loss that serves many may do."""
    batch = batches[TRAIN]
    return label_loss(models["after"](models["before"](batch.x)), batch.labels)


@dataclass(frozen=True)
class Case:
    """What clients' jobs of one kind consist of.

    Attributes:
        losses: One for all, or one for each client.
        streams: Which they meet.
        follows: The stream that the teacher's rows follow; empty without any.
        models: Labels of the architectures by name.
        trained: Names of those that are trained; all by default.
        kind: The task's.
    """

    losses: tuple[Any, ...]
    streams: tuple[str, ...] = (PUBLIC,)
    follows: str = PUBLIC
    models: Mapping[str, str] = field(default_factory=lambda: {MODEL: "small"})
    trained: tuple[str, ...] = ()
    kind: TaskKind = "classification"


PAIR = {PERSONAL: "small", EXCHANGED: "wide"}
CONTRASTED = {MODEL: "small", GLOBAL: "small", "previous 0": "small"}
TAUGHT = {"net": "wide", MODEL: "small"}
GRID = tuple(Imitating(0.25 * weight, 1.0 + 4 * weight) for weight in (1, 2, 3, 4))
CASES = (
    *(Case((loss,)) for loss in (absolute_error, squared_error, divergence)),
    *(Case((loss,)) for loss in (Distillation(), Distillation(2.0, 4.0))),
    Case((empirical_loss,), (TRAIN,), TRAIN),
    Case((empirical_loss,), (TRAIN,), "", kind="regression"),
    Case((CloseToTeacher(0.3),), (TRAIN, PUBLIC)),
    Case((CloseToTeacher(0.3, classes=False),), (TRAIN, PUBLIC), kind="regression"),
    Case(GRID, (TRAIN,), TRAIN),
    Case((Imitating(0.5, 5.0, "reverse"),), (TRAIN,), TRAIN),
    Case((MutualLearning(),), (TRAIN,), "", PAIR),
    Case((MutualLearning(),), (TRAIN,), "", dict.fromkeys(reversed(PAIR), "small")),
    Case((from_a_net,), (PUBLIC, TRAIN), "", TAUGHT, (MODEL,)),
    Case((from_features,), (PUBLIC, TRAIN), ""),
    Case((Transfer(0.5, 1.0, 3.0),), (TRAIN,), TRAIN),
    Case((Mutual(0.5, 0.3),), (TRAIN,), "", {PERSONAL: "small", MEME: "wide"}),
    Case((Contrast(2.0, 0.5),), (TRAIN,), "", CONTRASTED, (MODEL,)),
    Case((Contrast(0.3, 2.0),), (TRAIN,), "", {**CONTRASTED, "previous 1": "small"}, (MODEL,)),
)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[list[Fit], Worker, int]:
    """Draw jobs of one key, and how many to train at once."""
    case = draw(st.sampled_from(CASES))
    sizes = draw(st.lists(st.integers(1, 25), min_size=2, max_size=7))
    sizes += sizes[:1] * draw(st.integers(0, 5))
    num_outputs = 1 if case.kind == "regression" else draw(st.integers(1, 12))
    worker = world(sizes, num_outputs, case.kind)
    batch_sizes = {name: draw(st.integers(1, 12)) for name in case.streams}
    shuffled, is_inline = draw(st.booleans()), draw(st.booleans())
    positions = [draw(st.lists(st.integers(0, NUM_PUBLIC - 1), min_size=1, max_size=20)) for _ in sizes]
    if draw(st.booleans()):
        positions = positions[:1] * len(sizes)
    trained = case.trained or tuple(case.models)
    optimisers = {name: draw(st.sampled_from(OPTIMISERS)) for name in trained}
    is_proximal = len(case.models) == 1 and draw(st.booleans())
    is_double = isinstance(case.losses[0], Distillation) and draw(st.booleans())
    jobs = []
    for client, size in enumerate(sizes):
        public: Samples = PublicSamples(np.array(positions[client]))
        if is_inline:
            data = worker.resources.data
            public = InlineSamples(data.x[data.public[positions[client]]])
        samples = {TRAIN: ClientSamples(client), PUBLIC: public}
        extras = {}
        if case.follows:
            num_rows = size if case.follows == TRAIN else len(positions[client])
            rows = Key.root(client).numpy().dirichlet(np.ones(num_outputs), num_rows)
            extras[TEACHER] = per_sample(rows if is_double else rows.astype(np.float32), case.follows)
        if is_proximal:
            extras["anchor"] = Extra(start(worker, 99).params)
        loss = case.losses[client % len(case.losses)]
        jobs.append(
            Fit(
                step=Descent(loss, Proximal(0.3) if is_proximal else None),
                models={name: start(worker, client, label) for name, label in case.models.items()},
                trained=trained,
                streams={
                    name: Stream(samples[name], batch_sizes[name], shuffled=shuffled) for name in case.streams
                },
                extras=extras,
                optimisers=optimisers,
                num_steps=draw(st.integers(1, 6)),
                seed=draw(st.integers(0, 2**63 - 1)),
            )
        )
    return jobs, worker, draw(st.integers(2, 12))


@given(tiles())
def test_clients_that_distil_at_once_end_with_the_bits_of_one_at_a_time(
    drawn: tuple[list[Fit], Worker, int],
) -> None:
    jobs, worker, size = drawn
    (kind,) = {fit_kind(job, worker.resources) for job in jobs}
    assert isinstance(kind, FitKind)
    with pytest.MonkeyPatch.context() as patch, one_torch_thread():
        patch.setattr(batched_fit, "_tile_size", lambda kind, most_samples: size)
        together = fit_together(jobs, worker)
        assert not kind.checks.num_differences  # else they were done one by one
        assert kind.checks.done or DIVERGING in jobs[0].optimisers.values()
        assert [bits(one) for one in together] == [bits(fit(job, worker)) for job in jobs]


def distilling(worker: Worker, trained: Sequence[str] = (MODEL,), **changes: Any) -> list[Fit]:
    """Return a distillation of each of two clients, with any field changed."""
    rows = np.full((6, 3), 1 / 3, np.float32)
    fields: dict[str, Any] = {
        "step": Descent(Distillation()),
        "models": {MODEL: start(worker, 0)},
        "trained": tuple(trained),
        "streams": {PUBLIC: Stream(PublicSamples(np.arange(6)), 4)},
        "extras": {TEACHER: per_sample(rows, PUBLIC)},
        "optimisers": dict.fromkeys(trained, Sgd(0.1)),
        "num_steps": 3,
    }
    return [Fit(**{**fields, **changes}, seed=client) for client in range(2)]


def test_a_public_batch_may_be_much_larger_than_an_own_one() -> None:
    # All of its rows count, though a batch of 7 of one's own is not padded to so many.
    worker = world((7, 7), 10)
    streams = {PUBLIC: Stream(PublicSamples(np.arange(64) % NUM_PUBLIC), 64)}
    jobs = distilling(
        worker,
        step=Descent(CloseToTeacher(1.0)),
        models={MODEL: start(worker, 0, "wide")},
        extras={TEACHER: per_sample(np.full((64, 10), 0.1, np.float32), PUBLIC)},
    )
    jobs = [
        replace(job, streams={TRAIN: Stream(ClientSamples(client), 16), **streams})
        for client, job in enumerate(jobs)
    ]
    ways = Ways()
    with one_torch_thread():
        fit_together(jobs, worker, ways)
    assert ways == {"together": 2}


def test_losses_that_differ_in_settings_alone_have_one_key() -> None:
    worker = world((5, 6), 3)
    rows = {TEACHER: per_sample(np.zeros((5, 3), np.float32), TRAIN)}
    streams = {TRAIN: Stream(ClientSamples(0), 4)}

    def key(loss: Any) -> Any:
        job, _ = distilling(worker, step=Descent(loss), streams=streams, extras=rows)
        return fit_kind(job, worker.resources)

    assert key(Imitating(0.1, 2.0)) is key(Imitating(0.9, 5.0)) is not None
    assert key(Imitating(0.1, 2.0)) is not key(Imitating(0.1, 2.0, "reverse"))
    assert key(Distillation(2.0)) is not key(Distillation(3.0))


def test_rows_that_do_not_match_their_samples_fail_as_they_do_by_themselves() -> None:
    worker = world((5, 6), 3)
    first, second = distilling(worker)
    wrong = replace(second, extras={TEACHER: per_sample(np.full((5, 3), 1 / 3, np.float32), PUBLIC)})
    assert fit_kind(first, worker.resources) is fit_kind(wrong, worker.resources)
    for train in (lambda: fit(wrong, worker), lambda: fit_together([first, wrong], worker)):
        with one_torch_thread(), pytest.raises(ValueError, match="rows"):
            train()


def test_outputs_that_are_passed_to_another_model_are_refused() -> None:
    worker = world((5, 6), NUM_INPUTS)
    jobs = distilling(
        worker,
        step=Descent(in_a_row),
        models={"before": start(worker, 0), "after": start(worker, 1)},
        trained=("before", "after"),
        streams={TRAIN: Stream(ClientSamples(0), 4)},
        extras={},
    )
    with one_torch_thread(), pytest.raises(ValueError, match="one trained model's outputs to another"):
        fit_together(jobs, worker)


def test_a_trained_model_has_one_head() -> None:
    worker = world((5, 6), 3)
    own = {TRAIN: Stream(ClientSamples(0), 4)}
    jobs = distilling(worker, step=Descent(by_two_heads), streams=own, extras={})
    with one_torch_thread(), pytest.raises(ValueError, match="head more than once"):
        fit_together(jobs, worker)


def test_jobs_of_other_forms_have_other_keys() -> None:
    worker = world((5, 6), 3)
    double = {TEACHER: per_sample(np.full((6, 3), 1 / 3), PUBLIC)}
    labelled = {PUBLIC: Stream(PublicSamples(np.arange(6), labelled=True), 4)}
    inline = {PUBLIC: Stream(InlineSamples(np.zeros((6, NUM_INPUTS), np.float32)), 4)}
    every: tuple[dict[str, Any], ...] = ({}, {"extras": double}, {"streams": labelled}, {"streams": inline})
    keys = [fit_kind(distilling(worker, **changes)[0], worker.resources) for changes in every]
    assert None not in keys
    assert len({id(key) for key in keys}) == 4
