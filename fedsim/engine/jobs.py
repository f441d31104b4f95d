"""Jobs: everything that is computed for real, as plain data.

A job is a pure function of its fields and of the run's data, which never changes. So its result may be
cached, or computed again elsewhere. :class:`Fit` trains, :class:`Predict` gives logits, :class:`Evaluate`
counts hits, :class:`Call` is an algorithm's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedsim.data import Split
from fedsim.engine.confusion import Confusion
from fedsim.engine.optimisers import Optimiser
from fedsim.engine.steps import Step
from fedsim.frozen import made_fast
from fedsim.params import Array, Model, Tree


@made_fast
@dataclass(frozen=True, slots=True)
class ClientSamples:
    """A client's own samples of one split, with labels."""

    client: int
    split: Split = "train"


@dataclass(frozen=True, slots=True, eq=False)
class PublicSamples:
    """Samples of the public set by their positions, int64 ``[p]``; without labels unless asked."""

    positions: Array
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class GlobalTest:
    """The global test set, with labels."""


@dataclass(frozen=True, slots=True, eq=False)
class InlineSamples:
    """Samples carried by the job: ``x`` ``[n, ...]``, and labels ``y`` ``[n]`` if any, of task's types."""

    x: Array
    y: Array | None = None


@dataclass(frozen=True, slots=True)
class PooledSamples:
    """The samples of one split of all clients, or of some, in the data set's order (``centralized``)."""

    split: Split = "train"
    clients: tuple[int, ...] | None = None


PublicBuffers = Literal["frozen", "restored", "moving"]
"""What buffers do while a model that is trained meets public samples. ``frozen``: BatchNorm normalises by its
running statistics, and no buffer moves. ``restored``: it normalises by the statistics of the batch, and
buffers are put back. ``moving``: they follow the public samples."""

Samples = ClientSamples | PublicSamples | GlobalTest | InlineSamples | PooledSamples


@made_fast
@dataclass(frozen=True, slots=True)
class Stream:
    """Samples met in mini-batches, ``shuffled`` anew for each pass, or in order."""

    samples: Samples
    batch_size: int
    shuffled: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Extra:
    """A value that a step needs beside models and samples.

    Attributes:
        value: An array or a tree of arrays; one array where it follows a stream.
        stream: The stream that it follows, with one row for each sample in unshuffled order; empty where each
            step is given the whole value.
    """

    value: Array | Tree
    stream: str = ""

    def __post_init__(self) -> None:
        if self.stream and isinstance(self.value, Mapping):
            raise ValueError(
                "an extra with one row per sample is one array: give each array of a tree a name"
            )


def per_sample(value: Array, stream: str) -> Extra:
    """Return an extra with one row for each sample of a stream, in the stream's unshuffled order."""
    return Extra(value, stream)


@made_fast
@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Train one or more models together for a known number of steps.

    Attributes:
        step: What one step does.
        models: Name to starting values.
        trained: Names of the models that the step changes; the others are teachers and run in eval mode.
        streams: Name to samples; a step meets one batch of each.
        extras: Name to what else the step needs.
        optimisers: Name of each trained model to what applies its gradients.
        seed: Seed of the job's generators.
        states: Name of a trained model to what its optimiser goes on from, as :class:`Fitted` gives it; one
            that is not named begins anew. None: all do, and nothing is given back.
        outputs: Name to the start value of what the job gives beside models; shapes and dtypes stay.
        public_buffers: What buffers do where a loss asks for logits of public samples (``model.public(x)``).
        like: One object in fits that differ in values, in seeds and in whose samples they train on alone; or
            None.
    """

    step: Step
    models: Mapping[str, Model]
    trained: tuple[str, ...]
    streams: Mapping[str, Stream]
    optimisers: Mapping[str, Optimiser]
    num_steps: int
    seed: int
    extras: Mapping[str, Extra] = field(default_factory=dict)
    states: Mapping[str, Tree] | None = None
    outputs: Tree = field(default_factory=dict)
    public_buffers: PublicBuffers = "moving"
    like: object | None = None

    def of_client(self, client: int, seed: int) -> Fit:
        """Return the fit of another client that holds as many samples of each stream."""
        streams = {
            name: Stream(ClientSamples(client, stream.samples.split), stream.batch_size, stream.shuffled)
            if isinstance(stream.samples, ClientSamples)
            else stream
            for name, stream in self.streams.items()
        }
        return replace(self, streams=streams, seed=seed)


def check_names(
    models: Mapping[str, Model],
    trained: tuple[str, ...],
    streams: Mapping[str, Stream],
    extras: Mapping[str, Extra],
) -> None:
    """Check that the names in a :class:`Fit` fit together; a ValueError says what does not."""
    if not trained or not models.keys() >= set(trained):
        raise ValueError(f"trained = {trained}: name at least one of the job's models, {', '.join(models)}")
    if not streams:
        raise ValueError("a fit without streams: a step meets a batch of at least one stream")
    for name, extra in extras.items():
        if extra.stream and extra.stream not in streams:
            raise ValueError(
                f"extra {name!r} follows stream {extra.stream!r}, which the job does not have: name one "
                f"of {', '.join(streams)}"
            )


@made_fast
@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a :class:`Fit` gives, frozen; models and outputs may be pending.

    Attributes:
        states: Name of a trained model to its optimiser's state; empty unless the job asks for them.
    """

    models: Mapping[str, Model]
    _loss: float | Callable[[], float]
    num_steps: int
    states: Mapping[str, Tree] = field(default_factory=dict)
    outputs: Tree = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Mean training loss over the steps, NaN where there were none."""
        return self._loss() if callable(self._loss) else self._loss

    @property
    def model(self) -> Model:
        """The one trained model."""
        (model,) = self.models.values()
        return model


@dataclass(frozen=True, slots=True, eq=False)
class Predict:
    """Logits of a model in eval mode, float32 ``[n, N]``; of layers below a cut, features ``[n, ...]``."""

    model: Model
    samples: Samples
    batch_size: int


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate:
    """Hits and loss of a model in eval mode on each of some labelled sets, also by class if ``per_class``."""

    model: Model
    parts: tuple[Samples, ...]
    batch_size: int
    per_class: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """How a model did on one set.

    Attributes:
        correct: Samples whose largest logit is the label's; None for a regression, which has no hits.
        loss_sum: Sum over samples of the cross-entropy, nat, or of the squared error for a regression.
        confusion: Samples by true and predicted class, where the job asks for them; None for a regression.
    """

    correct: int | None
    total: int
    loss_sum: float
    confusion: Confusion | None = None

    @property
    def accuracy(self) -> float:
        """Share of hits; NaN for an empty set or a regression."""
        return self.correct / self.total if self.total and self.correct is not None else float("nan")

    @property
    def loss(self) -> float:
        """Mean loss over samples; NaN for an empty set."""
        return self.loss_sum / self.total if self.total else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An algorithm's own arithmetic: a pure function at module level, its arguments, a cost above zero."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    flops: float


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that was done in a run that is repeated: only the name of its kind is left."""

    name: str


Job = Fit | Predict | Evaluate | Call
