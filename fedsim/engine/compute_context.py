"""A party's device as hooks see it: train, predict, evaluate, compute. Every call takes that device's time.

The contexts of algorithms' hooks are device contexts. A call becomes a job, the cost of the job gives its
duration, and the engine runs it; the generators of a job are named by the party, the turn and the call's own
``name``, so two algorithms that do the same work under the same name meet the same samples in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedsim.data import Split
from fedsim.engine import jobs
from fedsim.engine.batches import num_steps as steps_of
from fedsim.engine.batches import size_counts
from fedsim.engine.cost import FitWork, duration_s, load_of
from fedsim.engine.engine import Engine
from fedsim.engine.fit_job_cache import DEFAULT_STEP
from fedsim.engine.jobs import Extra, Fitted, Job, PublicBuffers, Samples, Score, Stream
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.losses import MODEL, TRAIN, Loss, empirical_loss
from fedsim.engine.optimisers import Optimiser, lasting
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.engine.steps import NUM_SAMPLES, GradientSum, Step
from fedsim.engine.training_config import TrainingConfig
from fedsim.fleet import Device
from fedsim.models import Architecture
from fedsim.params import Array, Model, Tree, freeze
from fedsim.rng import Key
from fedsim.task import Task

_AS_USUAL = (None, None, None, None, None, None)

PREDICT_BATCH_SIZE = 256
"""Samples in a batch of a prediction; it changes speed, and results by rounding alone."""


def party_words(client: int) -> str:
    """Return at whom a job failed, in words behind what is said of the job."""
    return " at the server" if client < 0 else f" at client {client}"


class ComputeContext:
    """What one hook of a party trains, predicts, evaluates and computes with.

    Attributes:
        training: How to train unless told otherwise.

    The device is asked for when there is work to do: many hooks do none. Optimisers go on from turn to turn
    only where ``keeping`` is given.
    """

    def __init__(
        self,
        engine: Engine,
        device: Callable[[], Device],
        training: TrainingConfig,
        *,
        client: int,
        dispatch: int,
        key: Key,
        keeping: Keeping | None = None,
    ) -> None:
        self._client = client
        self._dispatch = dispatch
        self._key = key
        self.training = training
        self._engine = engine
        self._device = device
        self._keeping = keeping
        self._calls = 0

    # Methods of contexts read the private fields, so that whoever reads these is a hook.

    @property
    def client(self) -> int:
        """Address of the party; ``-1`` is the server."""
        return self._client

    @property
    def dispatch(self) -> int:
        """Number of the dispatch to the client; ``-1`` at the server."""
        return self._dispatch

    @property
    def key(self) -> Key:
        """Names the generators of this hook."""
        return self._key

    @property
    def task(self) -> Task:
        """Shape of samples and outputs."""
        return self._engine.resources.data.task

    @property
    def architectures(self) -> Mapping[str, Architecture]:
        """The run's architectures by label; their parts are found by theirs (:mod:`fedsim.models.parts`)."""
        return self._engine.resources.architectures

    @property
    def num_public(self) -> int:
        """Samples in the public set."""
        return len(self._engine.resources.data.public)

    @property
    def public_at_clients(self) -> bool:
        """Whether clients hold the public set; else the server alone does."""
        return self._engine.resources.data.public_at_clients

    async def fit(
        self,
        models: Model | Mapping[str, Model],
        *,
        step: Step | None = None,
        trained: tuple[str, ...] | None = None,
        streams: Mapping[str, Stream] | None = None,
        extras: Mapping[str, Extra] | None = None,
        outputs: Tree | None = None,
        optimiser: Optimiser | Mapping[str, Optimiser] | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        name: str = "train",
        key: Key | None = None,
        kept_as: str | None = None,
        keeps: bool = True,
        keeping: Keeping | None = None,
        public_buffers: PublicBuffers | None = None,
    ) -> Fitted:
        """Train one model, or several together.

        Args:
            models: One model, known to losses as ``model``, or models by name.
            step: What a step does; by default descent on the empirical loss.
            trained: Names of the models that are trained; by default all.
            streams: Samples by name; the first decides how long an epoch is. By default ``train``, the
                party's own training samples in batches of ``training.batch_size``.
            extras: What else the step needs.
            outputs: Start values of what the step gives beside models, arrays by name.
            optimiser: By default that of ``training``; or one for some trained models, by name, each of which
                then has its own.
            epochs: Passes over the first stream. Without ``epochs`` and ``steps``, the work of ``training``.
            steps: Mini-batches, instead of ``epochs``.
            name: Names the generators of this call within the turn; calls of one name meet their samples in
                the same order.
            key: Names them instead, together with ``name``, where not the party's own turn should.
            kept_as: Under ``training.keep_optimiser`` a client's optimiser goes on from its last call that
                was kept under the same name, with the same model's name and architecture, in this turn or an
                earlier one; such calls have the same kind of optimiser. By default that name is ``name``.
            keeps: Whether what the optimiser has come to is kept. An algorithm that tries several says False,
                and has the one that it takes kept by :meth:`keep`.
            keeping: What optimisers go on from, instead of what the party holds.
            public_buffers: What buffers do on public samples; by default as ``training`` says.

        Returns:
            The trained models, frozen; unchanged if a stream has no batch.

        Raises:
            ValueError: Both ``epochs`` and ``steps``, or names that do not fit together.
            JobError: The training failed; the cause is chained.
        """
        if epochs is not None and steps is not None:
            raise ValueError(f"epochs = {epochs} and steps = {steps}: give one of them, not both")
        keeping = self._keeping if keeping is None else keeping
        seed = self._seed(name, key)
        changes = step, trained, streams, extras, outputs, keeping
        if isinstance(models, Model) and changes == _AS_USUAL and not isinstance(optimiser, Mapping):
            num_samples = self._engine.resources.data.num_samples(self._client, "train")
            like = self._engine.fit_job_cache.like(
                *(models, self._client, num_samples, self.training),
                epochs=epochs,
                steps=steps,
                optimiser=optimiser,
                public_buffers=public_buffers,
            )
            usual: list[Fitted] = await self._do(like.of(models, self._client, seed), like.work)
            return usual[0]
        if epochs is None and steps is None:
            epochs, steps = self.training.epochs, self.training.steps
        by_name = {MODEL: models} if isinstance(models, Model) else models
        trained = tuple(by_name) if trained is None else trained
        if streams is None:
            streams = {TRAIN: Stream(self._own_training_samples(), self.training.batch_size)}
        kept_as = name if kept_as is None else kept_as
        job = jobs.Fit(
            step=DEFAULT_STEP if step is None else step,
            models=by_name,
            trained=trained,
            streams=streams,
            optimisers=self._optimisers(trained, optimiser),
            num_steps=0,  # until it is known
            seed=seed,
            extras={} if extras is None else extras,
            states=None if keeping is None else keeping.before(kept_as, by_name, trained),
            outputs={} if outputs is None else outputs,
            public_buffers=self.training.public_buffers if public_buffers is None else public_buffers,
        )
        fit_work = self._engine.costs.fit_work(job, epochs, steps)
        num_steps = fit_work.num_steps
        optimisers = self._lasting(job.optimisers, num_steps * getattr(job.step, "moves", 1))
        job = replace(job, num_steps=num_steps, optimisers=optimisers)
        fitted: Fitted = (await self._do(job, fit_work))[0]
        if keeping is not None and keeps:
            keeping.after(kept_as, by_name, fitted)
        return fitted

    def keep(self, kept_as: str, fitted: Fitted) -> None:
        """Keep what the optimisers of a fit have come to, which did not keep it itself, under this name."""
        if self._keeping is not None:
            self._keeping.after(kept_as, fitted.models, fitted)

    async def gradient(
        self,
        model: Model,
        *,
        loss: Loss = empirical_loss,
        samples: Samples | None = None,
        batch_size: int | None = None,
        steps: int | None = None,
        name: str = "gradient",
    ) -> Tree:
        """Return the gradient of a model's mean loss, a tree like its parameters; the model stays as it is.

        With BatchNorm each batch is normalised by itself, and a last batch of one sample is left out. Where
        no batch is left the gradient is zero.

        Args:
            model: The model, known to the loss as ``model``.
            loss: Gives the mean loss of a batch of the stream ``train``.
            samples: By default the party's own training samples.
            batch_size: Samples in a mini-batch; by default that of ``training``.
            steps: Mini-batches of the shuffled stream; by default one pass, in which all samples count alike.
            name: Names the generators of this call within the turn.
        """
        stream = Stream(
            self._own_training_samples() if samples is None else samples,
            self.training.batch_size if batch_size is None else batch_size,
            shuffled=steps is not None,
        )
        one = self._engine.resources.passes([model.architecture], {TRAIN: stream})[TRAIN]
        count = len(one) if steps is None else steps
        nothing = freeze({label: np.zeros_like(array) for label, array in model.params.items()})
        if not (len(one) and count):
            return nothing
        num_samples = sum(size * times for (size,), times in size_counts([one], count).items())
        job = jobs.Fit(
            step=GradientSum(loss),
            models={MODEL: model},
            trained=(MODEL,),
            streams={TRAIN: stream},
            optimisers=self._optimisers((MODEL,)),  # which have nothing to do
            num_steps=count,
            seed=self._seed(name),
            extras={NUM_SAMPLES: Extra(np.array(num_samples, np.float32))},
            outputs=nothing,
            public_buffers=self.training.public_buffers,
        )
        fitted: Fitted = (await self._do(job))[0]
        return fitted.outputs

    async def predict(self, model: Model, samples: Samples, *, batch_size: int = PREDICT_BATCH_SIZE) -> Array:
        """Return the model's logits in eval mode, float32 ``[n, N]``, in the order of the samples.

        Of the layers below a cut, ``architectures[label].below(cut).part_of(model)``, these are the features
        at the cut, ``[n, ...]``. To get the logits too, predict with the layers above the cut on
        :class:`fedsim.engine.jobs.InlineSamples` of the features: the lower layers then run once.
        """
        logits: list[Array] = await self._do(jobs.Predict(model, samples, batch_size))
        return logits[0]

    async def predict_each(
        self, models: Sequence[Model], samples: Samples, *, batch_size: int = PREDICT_BATCH_SIZE
    ) -> list[Array]:
        """Return each model's logits as :meth:`predict`, computed one after the other on this device.

        The real work may be done side by side; the time that passes is the sum.
        """
        predictions = [self._timed(jobs.Predict(model, samples, batch_size)) for model in models]
        if not predictions:
            return []
        request = JobRequest(self._client, self._dispatch, predictions, self._place)
        logits: list[Array] = await self._perform(request)
        return logits

    async def evaluate(
        self, model: Model, samples: Samples, *, batch_size: int = PREDICT_BATCH_SIZE
    ) -> Score:
        """Return hits and loss of a model in eval mode on labelled samples."""
        scores: list[list[Score]] = await self._do(jobs.Evaluate(model, (samples,), batch_size))
        return scores[0][0]

    async def call(self, function: Callable[..., Any], *arguments: Any, flops: float) -> Any:
        """Return ``function(*arguments)``, which costs ``flops`` operations (more than zero)."""
        return (await self._do(jobs.Call(function, arguments, flops)))[0]

    def usual_steps(self, architecture: str) -> int:
        """Return how many mini-batches of own samples the work of ``training`` is for an architecture."""
        stream = Stream(self._own_training_samples(), self.training.batch_size)
        passes = self._engine.resources.passes([architecture], {TRAIN: stream})
        return steps_of(list(passes.values()), self.training.epochs, self.training.steps)

    def _own_training_samples(self) -> Samples:
        return jobs.ClientSamples(self._client)

    def _seed(self, name: str, key: Key | None = None) -> int:
        """Return the seed of a job; ``key`` in place of that of the hook."""
        return (self._key if key is None else key).child(name).seed

    def own(self, split: Split) -> Samples:
        """Return the party's own samples of a split: ``train``, ``val`` or ``test``."""
        return jobs.ClientSamples(self._client, split)

    def public(self, positions: Array, *, labelled: bool = False) -> Samples:
        """Return samples of the public set by their positions, int64 ``[p]``, without labels unless asked."""
        return jobs.PublicSamples(positions, labelled)

    def labels(self, samples: Samples) -> Array:
        """Return the labels of samples, ``[n]``, in their order; zeros where there are counts only.

        They are the party's own business: an algorithm whose clients send them says so in its message.

        Raises:
            ValueError: Samples without labels.
        """
        resources = self._engine.resources
        if isinstance(samples, jobs.InlineSamples) and samples.y is not None:
            return samples.y
        if not resources.data.has_samples and not isinstance(samples, jobs.InlineSamples):
            return np.zeros(resources.num_samples(samples), self.task.label_dtype)
        _, y, rows = resources.tensors(samples)
        if y is None:
            raise ValueError("labels of samples that have none: ask for public samples with labelled=True")
        chosen: Array = (y if rows is None else y.index_select(0, rows)).cpu().numpy()
        return chosen

    def _optimisers(
        self, trained: Sequence[str], given: Optimiser | Mapping[str, Optimiser] | None = None
    ) -> Mapping[str, Optimiser]:
        """Return the optimiser of each trained model."""
        if given is None:
            return dict.fromkeys(trained, self.training.make_optimiser())
        if not isinstance(given, Mapping):
            return dict.fromkeys(trained, given)
        if unknown := given.keys() - set(trained):
            raise ValueError(
                f"optimisers for {', '.join(sorted(unknown))}, which the fit does not train: it trains "
                f"{', '.join(trained)}"
            )
        return dict.fromkeys(trained, self.training.make_optimiser()) | dict(given)

    def _lasting(self, optimisers: Mapping[str, Optimiser], num_moves: int) -> Mapping[str, Optimiser]:
        """Return the optimisers of a fit, once it is known how often they move their models."""
        if not self.training.changes_by_step:
            return optimisers
        return {name: lasting(optimiser, num_moves) for name, optimiser in optimisers.items()}

    def _place(self) -> str:
        """Return whose job it is, in words behind what is said of the job."""
        return party_words(self._client)

    def _do(self, job: Job, fit_work: FitWork | None = None) -> Awaitable[list[Any]]:
        """Have one job done; return what gives its result, in a list, when it is awaited."""
        timed = (self._timed(job, fit_work),)
        return self._perform(JobRequest(self._client, self._dispatch, timed, self._place))

    def _timed(self, job: Job, fit_work: FitWork | None = None) -> TimedJob:
        """Return the party's next job with its cost."""
        effort = self._engine.costs.work(job, fit_work)
        self._calls += 1
        device = self._device()
        # Turns are counted by exchange, and two exchanges may not meet the same load.
        key = self._key if self._dispatch < 0 else self._key.sibling(self._dispatch)
        load = load_of(device.variation, device.load, key.child("load", self._calls))
        return TimedJob(job, effort, duration_s(device, effort, load), load)

    def _perform(self, request: JobRequest) -> Awaitable[list[Any]]:
        """Have a request done; return what gives its results when it is awaited."""
        return self._engine.run(request)
