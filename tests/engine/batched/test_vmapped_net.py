"""Small nets of many kinds, trained and evaluated at once, end with the bits of one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsim.data import FederatedData
from fedsim.data.federated import Holdings
from fedsim.engine.batched.evaluation import evaluate_together, evaluation_key, predict_together
from fedsim.engine.batched.feed import BatchedFeed
from fedsim.engine.batched.fit import fit_together
from fedsim.engine.batched.fit_kinds import Kind, batch_key
from fedsim.engine.batched.vmapped_net import MOST_PARAMS, VmappedNet, stacked_net_of
from fedsim.engine.execute import evaluate, fit, one_torch_thread, predict
from fedsim.engine.jobs import ClientSamples, Evaluate, Fit, GlobalTest, Predict, Stream
from fedsim.engine.optimisers import Adam, Clipped, Optimiser, Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources, Worker
from fedsim.models import Architecture, Net
from fedsim.models.base import named
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task
from tests.engine.batched.private_net import Private

CLASSES = 3
VOCABULARY = 11


class LstmByHand(nn.Module):
    """An LSTM cell written out, ``[b, T]`` to ``[b, h]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.inputs, self.recurrent = nn.Linear(4, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        gates = self.inputs(self.embedding(x))
        state: Tensor = gates.new_zeros(len(x), self.hidden)
        carried = state
        for position in range(x.shape[1]):
            taken, kept, new, out = (gates[:, position] + self.recurrent(state)).chunk(4, -1)
            carried = kept.sigmoid() * carried + taken.sigmoid() * new.tanh()
            state = out.sigmoid() * torch.tanh(carried)
        return state


class Attention(nn.Module):
    """Words that look at one another, ``[b, T]`` to ``[b, f]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        values = self.embedding(x)
        scores = self.query(values) @ self.key(values).transpose(1, 2)
        mixed: Tensor = self.norm(values + F.softmax(scores, -1) @ values).mean(1)
        return mixed


class Residual(nn.Module):
    """A layer that is used twice, and a scalar parameter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(width, width), nn.Parameter(torch.ones(()))

    def reset_parameters(self) -> None:
        self.scale.detach().fill_(0.7)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.silu(self.layer(x))
        return x + self.scale * F.gelu(self.layer(x))


def _between(*modules: Callable[[int], nn.Module]) -> Callable[[int], Net]:
    """Return what makes a net of two layers with modules between them."""

    def make(width: int) -> Net:
        rows = {f"m{number}": module(width) for number, module in enumerate(modules)}
        return Net(named(one=nn.Linear(5, width), **rows), nn.Linear(width, CLASSES))

    return make


def _plain(kind: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda width: kind()


VALUES: Mapping[str, Callable[[int], Net]] = {
    kind.__name__: _between(_plain(kind))
    for kind in (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.Softplus, nn.LeakyReLU)
} | {
    "layer norm": _between(nn.LayerNorm, _plain(nn.ReLU)),
    "group norm": _between(lambda width: nn.GroupNorm(1, width), _plain(nn.Tanh)),
    "residual": _between(Residual),
    "softmax": _between(lambda width: nn.Softmax(-1)),
    "no bias": lambda width: Net(named(one=nn.Linear(5, width, bias=False)), nn.Linear(width, CLASSES)),
}
TEXTS: Mapping[str, Callable[[int], Net]] = {
    "LSTM by hand": lambda width: Net(named(lstm=LstmByHand(width)), nn.Linear(width, CLASSES)),
    "attention": lambda width: Net(named(attention=Attention(width)), nn.Linear(width, CLASSES)),
}
OPTIMISERS: tuple[Optimiser, ...] = (Sgd(0.1), Sgd(0.1, 0.9, 0.01), Adam(0.01), Clipped(Sgd(0.1), 0.3))


def world(make: Callable[[], Net], sizes: Sequence[int], *, is_text: bool = False) -> Worker:
    """Return a worker whose clients have so many samples, for training and for tests."""
    task, total = Task((5,), CLASSES, vocabulary=VOCABULARY if is_text else 0), sum(sizes)
    generator = Key.root(3).numpy()
    x: Array = generator.standard_normal((total, 5)).astype(np.float32)
    if is_text:
        x = generator.integers(0, VOCABULARY, (total, 5))
    held = Holdings(np.cumsum([0, *sizes]), generator.permutation(total))
    data = FederatedData(
        task,
        x,
        generator.integers(0, CLASSES, total),
        public=np.arange(0),
        global_test=np.arange(total),
        num_clients=len(sizes),
        holdings={
            "train": held,
            "val": Holdings(np.zeros(len(sizes) + 1, np.int64), np.arange(0)),
            "test": held,
        },
    )
    net = Architecture("net", Private(make), task)
    return Worker(Resources.of(data, {"net": net}, "cpu"), threading.Event())


def fits(
    worker: Worker, sizes: Sequence[int], batch_size: int, epochs: int, optimiser: Optimiser
) -> list[Fit]:
    architecture = worker.resources.architectures["net"]
    return [
        Fit(
            step=Descent(),
            models={"model": architecture.initial(Key.root(client % 2))},
            trained=("model",),
            streams={"train": Stream(ClientSamples(client), batch_size)},
            optimisers={"model": optimiser},
            num_steps=-(-size // batch_size) * epochs,
            seed=client,
        )
        for client, size in enumerate(sizes)
    ]


def kind_of(job: Fit, worker: Worker) -> Kind:
    kind = batch_key(job, worker.resources)
    assert isinstance(kind, Kind)
    assert isinstance(kind.nets["model"], VmappedNet)
    return kind


@settings(max_examples=max(1, settings().max_examples // 3))
@given(
    name=st.sampled_from([*VALUES, *TEXTS]),
    width=st.integers(2, 40),
    size=st.integers(1, 30),
    num_alike=st.integers(6, 9),
    others=st.lists(st.integers(1, 30), max_size=2),
    batch_size=st.integers(1, 20),
    epochs=st.integers(1, 2),
    optimiser=st.sampled_from(OPTIMISERS),
)
def test_training_at_once_keeps_the_bits(
    name: str,
    width: int,
    size: int,
    num_alike: int,
    others: list[int],
    batch_size: int,
    epochs: int,
    optimiser: Optimiser,
) -> None:
    sizes, make = [size] * num_alike + others, {**VALUES, **TEXTS}[name]
    worker = world(lambda: make(width), sizes, is_text=name in TEXTS)
    jobs = fits(worker, sizes, batch_size, epochs, optimiser)
    kind = kind_of(jobs[0], worker)
    with one_torch_thread():
        together = fit_together(jobs, worker)
        assert not kind.checks.num_differences  # else they were done one by one
        assert kind.checks.done or others or not any(one.model.is_finite() for one in together)
        for one, job in zip(together, jobs, strict=True):
            its = fit(job, worker)
            assert np.float64(one.loss).tobytes() == np.float64(its.loss).tobytes()
            for leaf, array in its.model.params.items():
                assert one.model.params[leaf].tobytes() == array.tobytes()


@settings(max_examples=max(1, settings().max_examples // 4))
@given(name=st.sampled_from([*VALUES, *TEXTS]), width=st.integers(2, 40), batch_size=st.integers(1, 60))
def test_evaluating_at_once_keeps_the_bits(name: str, width: int, batch_size: int) -> None:
    sizes, make = [7] * 25 + [3], {**VALUES, **TEXTS}[name]
    worker = world(lambda: make(width), sizes, is_text=name in TEXTS)
    architecture = worker.resources.architectures["net"]
    models = [architecture.initial(Key.root(seed)) for seed in range(len(sizes))]
    parts = [(ClientSamples(client, "test"),) for client in range(len(sizes))]
    scored = [Evaluate(*both, batch_size) for both in zip(models, parts, strict=True)]
    predicted = [Predict(model, GlobalTest(), batch_size) for model in models]
    with one_torch_thread():
        assert evaluate_together(scored, worker) == [evaluate(job, worker) for job in scored]
        for one, job in zip(predict_together(predicted, worker), predicted, strict=True):
            assert one.tobytes() == predict(job, worker).tobytes()
    first: tuple[Any, ...] = (scored[0], predicted[0])
    for one_job in first:
        kind: Any = evaluation_key(one_job, worker.resources)
        assert isinstance(kind.net, VmappedNet)
        assert kind.checked
        assert not kind.differing


class Branching(nn.Module):
    """Looks at values, which under vmap are those of many clients."""

    def forward(self, x: Tensor) -> Tensor:
        return -x if bool((x > 0).any()) else x


class Drawing(nn.Module):
    """Draws from the global generator."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Unknown(nn.Module):
    """Has a function that is not known."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sinh()


class Buffered(nn.Module):
    """Has a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def reset_parameters(self) -> None:
        self.seen = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        return x


REFUSED: Mapping[str, Callable[[], Net]] = {
    "branching": lambda: Net(named(one=Branching()), nn.Linear(5, CLASSES)),
    "drawing": lambda: Net(named(one=Drawing()), nn.Linear(5, CLASSES)),
    "unknown function": lambda: Net(named(one=Unknown()), nn.Linear(5, CLASSES)),
    "buffers": lambda: Net(named(one=Buffered()), nn.Linear(5, CLASSES)),
    "batch norm": lambda: Net(named(n=nn.BatchNorm1d(5, track_running_stats=False)), nn.Linear(5, CLASSES)),
    "large": lambda: _between(_plain(nn.Tanh))(MOST_PARAMS // 8),
    "convolution": lambda: Net(
        named(shape=nn.Unflatten(1, (1, 5)), conv=nn.Conv1d(1, 2, 3), flat=nn.Flatten()),
        nn.Linear(6, CLASSES),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_nets_are_trained_one_by_one(name: str) -> None:
    worker = world(REFUSED[name], [5])
    before = torch.get_rng_state()
    assert stacked_net_of(worker.resources.architectures["net"], is_trained=True) is None
    assert torch.equal(torch.get_rng_state(), before)  # a trial must not change what a run draws


def test_few_clients_or_batches_of_many_sizes_are_trained_one_by_one() -> None:
    sizes = [4, 4, 4, 4, 4, 6, 7]  # batches of 4: five take the second step no more, two take it alone
    worker = world(lambda: VALUES["Tanh"](8), sizes)
    jobs = sorted(fits(worker, sizes, 4, 1, Sgd(0.1)), key=lambda job: -job.num_steps)
    counts = [(worker.resources.num_samples(job.streams["train"].samples),) for job in jobs]
    feed = BatchedFeed(jobs, counts, worker.resources)
    assert feed.share_of(4) == 7 / 9
    assert feed.share_of(8) == 0
    assert feed.share_of(1) == 1
    kind = kind_of(jobs[0], worker)
    with one_torch_thread():
        fit_together(jobs[2:5], worker)
    assert not kind.checks.done
