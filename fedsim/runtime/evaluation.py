"""The observer: sees everything, costs nothing.

Measuring is not part of what is simulated: it takes no virtual time, sends no frames and leaves one record in
the trace. All chosen clients are evaluated, whether or not they ever took part (specification 3.6). Models
are known by identity, so a global model is run once over all test samples and hashed once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import isfinite
from typing import Any, TypeAlias

import numpy as np

from fedsim.algorithms.base import Predictor
from fedsim.clock import RecordKind, Trace
from fedsim.engine.confusion import Confusion
from fedsim.engine.engine import Engine
from fedsim.engine.jobs import ClientSamples, Evaluate, GlobalTest, Samples, Score
from fedsim.params import Array, Model
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.hook_steps import HookSteps, drive
from fedsim.runtime.hook_results import called
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.server.non_finite import spoiled

EVALUATION = RecordKind("evaluation", ("round", "clients", "personal_mean", "global"))

ClientModels: TypeAlias = Mapping[int, Mapping[str, Model]]
"""Client → name, such as ``personal`` or ``global`` → model. Clients may share a model."""

States = Callable[[Mapping[int, int]], Awaitable[Sequence[Any]]]
"""Gives the states of clients in order, told the newest merged dispatch of each, -1 where there is none."""

TEST_SETS = ("clients", "global")
"""On what classes are counted: the own samples of all measured clients together, the global test set."""

PARTS_PER_JOB = 32
"""Clients whose samples one evaluation job goes through; more jobs, more of them at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Accuracy:
    """Accuracy and loss at one instant; shares in ``[0, 1]``, None where there was nothing to measure.

    A regression has no accuracy, only a loss.

    Attributes:
        clients: The clients measured, int64 ``[M]``.
        personal: Accuracy of what stands for each of them on its own samples, ``[M]``; NaN without samples,
            and for a regression.
        weights: How many samples that were, ``[M]``.
        global_: Mean accuracy of the distinct global models on the global test set.
        losses: Mean loss of each client's samples, ``[M]``: cross-entropy, nat, or, for a regression, squared
            error; NaN without samples.
        global_loss: Mean loss of the distinct global models on the global test set.
        others: What an algorithm has evaluated beside: by name, the mean over clients of the accuracy on
            their own samples, or the weighted mean over distinct models of that on the global test set.
        confusions: Under ``evaluation.per_class``, samples by true and predicted class on each of
            :data:`TEST_SETS`, on the global one once for each distinct global model. A set without samples
            is left out.
    """

    clients: Array
    personal: Array
    weights: Array
    global_: float | None
    losses: Array
    global_loss: float | None
    others: Mapping[str, float] = field(default_factory=dict)
    confusions: Mapping[str, Confusion] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Unweighted mean over clients (specification 3.6)."""
        return _mean(self._present)

    @property
    def std(self) -> float | None:
        """Sample standard deviation over clients, ddof = 1; 0 for a single client."""
        return _std(self._present)

    @property
    def worst_decile(self) -> float | None:
        """Mean over the tenth of clients that fare worst, at least one."""
        present = np.sort(self._present)
        return worst_tenth(present) if len(present) else None

    @property
    def weighted_mean(self) -> float | None:
        """Mean over clients, weighted by their samples."""
        there = ~np.isnan(self.personal)
        return float(np.average(self.personal[there], weights=self.weights[there])) if there.any() else None

    @property
    def mean_loss(self) -> float | None:
        """Unweighted mean of the loss over clients; not finite where a model is not."""
        return _mean(self.losses[self.weights > 0])

    @property
    def std_loss(self) -> float | None:
        """Sample standard deviation of the loss over clients, as :attr:`std`."""
        return _std(self.losses[self.weights > 0])

    @property
    def non_finite(self) -> str | None:
        """The first loss that is not finite, in words; None where all are."""
        measured = self.weights > 0
        bad = measured & ~np.isfinite(self.losses)
        if bad.any():
            first = int(np.argmax(bad))
            return f"the loss of client {self.clients[first]} is {self.losses[first]}"
        if self.global_loss is not None and not isfinite(self.global_loss):
            return f"the loss on the global test set is {self.global_loss}"
        return None

    @property
    def _present(self) -> Array:
        return self.personal[~np.isnan(self.personal)]


@dataclass(frozen=True, slots=True)
class FinalModels:
    """The models with which a run has ended.

    Attributes:
        digest: Of the evaluated models of all measured clients, in client order.
        non_finite: The first of them that cannot be computed with, in words; None where all can.
        by_client: For each measured client what the algorithm has evaluated for it, by name.
    """

    digest: str
    non_finite: str | None
    by_client: ClientModels = field(default_factory=dict)


def worst_tenth(worst_first: Array) -> float:
    """Return the mean over the first tenth of values, at least one."""
    return float(worst_first[: max(1, round(len(worst_first) / 10))].mean())


def _mean(values: Array) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _std(values: Array) -> float | None:
    if not len(values):
        return None
    # Infinite values have a spread that is no number, which is no mistake of the arithmetic's.
    with np.errstate(invalid="ignore"):
        return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Observer:
    """Measures models, and hashes them.

    Attributes:
        parts: What the run is made of.
        engine: Who evaluates.
        contexts: Makes what the algorithm's ``models_of`` is given.
        states: Where clients' states come from.
        trace: Where measurements are noted.
    """

    parts: Parts
    engine: Engine
    contexts: Contexts
    states: States
    trace: Trace

    @cached_property
    def clients(self) -> Sequence[int]:
        """The clients that are measured, ascending."""
        population, limit = self.parts.data.num_clients, self.parts.evaluation.clients
        if limit >= population:
            return range(population)
        generator = self.parts.key.child("evaluation").numpy()
        return sorted(generator.choice(population, limit, replace=False, shuffle=False).tolist())

    async def measure(self, state: Any, merged: Sequence[int], round: int) -> Accuracy | None:  # noqa: A002
        """Return the accuracy of the chosen clients, or None where nothing learns."""
        if not self.parts.executor.learns:
            return None
        models = await self._models(state, merged, round)
        split = self.parts.evaluation.split
        own: list[Samples] = [ClientSamples(client, split) for client in self.clients]
        per_class = self.parts.evaluation.per_class
        scores = await self._scores([_standing(one) for one in models], own, per_class)
        distinct = {id(one["global"].model): one["global"] for one in models if "global" in one}
        found = await self._scores_on_all(list(distinct.values()), per_class)
        on_all = [score for score in found if score.total]
        accuracy = Accuracy(
            clients=np.array(self.clients, np.int64),
            personal=np.array([score.accuracy for score in scores]),
            weights=np.array([score.total for score in scores], np.int64),
            global_=_mean(np.array([score.accuracy for score in on_all if score.correct is not None])),
            losses=np.array([score.loss for score in scores]),
            global_loss=_mean(np.array([score.loss for score in on_all])),
            others=await self._others(models, own),
            confusions=_confusions(dict(zip(TEST_SETS, (scores, on_all), strict=True))),
        )
        self.note(accuracy, round)
        return accuracy

    def note(self, accuracy: Accuracy, round: int) -> None:  # noqa: A002
        """Record an evaluation."""
        self.trace.record(EVALUATION, round, len(self.clients), accuracy.mean, accuracy.global_)

    async def accuracies(self, state: Any, merged: Sequence[int], round: int) -> dict[int, float]:  # noqa: A002
        """Return the accuracy of the chosen clients on their own samples; of a regression, minus the loss.

        Clients without samples are left out; so are all where nothing learns.
        """
        if not self.parts.executor.learns:
            return {}
        models = await self._models(state, merged, round)
        own: list[Samples] = [ClientSamples(client, self.parts.evaluation.split) for client in self.clients]
        scores = await self._scores([_standing(one) for one in models], own)
        return {
            client: -score.loss if score.correct is None else score.accuracy
            for client, score in zip(self.clients, scores, strict=True)
            if score.total
        }

    async def _others(
        self, models: Sequence[Mapping[str, Predictor]], own: Sequence[Samples]
    ) -> dict[str, float]:
        names = sorted({name for one in models for name in one} - {"personal", "global"})
        others: dict[str, float | None] = {}
        for name in names:
            if on_all := [one[name] for one in models if name in one and one[name].on == "global"]:
                others[name] = await self._weighted_on_all(on_all)
            else:
                # Clients that lack one count with what stands for them: all means are over the same clients.
                scores = await self._scores([one.get(name, _standing(one)) for one in models], own)
                accuracies = np.array([score.accuracy for score in scores])
                others[name] = _mean(accuracies[~np.isnan(accuracies)])
        return {name: accuracy for name, accuracy in others.items() if accuracy is not None}

    async def _weighted_on_all(self, predictors: Sequence[Predictor]) -> float | None:
        """Return the weighted mean over distinct models of the accuracy on the global test set."""
        distinct = {id(one.model): one for one in predictors}
        scores = await self._scores_on_all(list(distinct.values()))
        weights = dict.fromkeys(distinct, 0.0)
        for one in predictors:
            weights[id(one.model)] += one.weight
        total = sum(weights.values())
        if not total or any(score.correct is None or not score.total for score in scores):
            return None
        pairs = zip(weights.values(), scores, strict=True)
        return float(sum(weight / total * score.accuracy for weight, score in pairs))

    async def _scores_on_all(self, predictors: Sequence[Predictor], per_class: bool = False) -> list[Score]:
        return await self._scores(predictors, [GlobalTest()] * len(predictors), per_class)

    async def final_models(self, state: Any, merged: Sequence[int], round: int) -> FinalModels:  # noqa: A002
        """Return the digest of the chosen clients' evaluated models, in client order, and if all are finite.

        Models that other names have on the global test set stand for no client, and are left out.
        """
        digests: dict[int, bytes] = {}
        fault: str | None = None
        total = hashlib.blake2b(digest_size=16)
        by_client: dict[int, dict[str, Model]] = {}
        for client, models in zip(self.clients, await self._models(state, merged, round), strict=True):
            by_client[client] = {name: models[name].model for name in sorted(models)}
            for name in sorted(models):
                if models[name].on == "global" and name not in ("personal", "global"):
                    continue
                model = models[name].model
                if id(model) not in digests:
                    digests[id(model)] = model.digest()
                    if fault is None and (why := spoiled(model)) is not None:
                        fault = f"the {name} model of client {client} is not finite: {why}"
                total.update(b"%d:" % client + digests[id(model)])
        return FinalModels(total.hexdigest(), fault, by_client)

    async def _models(
        self,
        state: Any,
        merged: Sequence[int],
        round: int,  # noqa: A002
    ) -> list[Mapping[str, Predictor]]:
        """Ask for all clients' models at once: where making one is work, they train beside each other."""
        held = await self.states({client: merged[client] for client in self.clients})
        models_of = self.parts.algorithm.models_of
        with unchanged(self.parts.verify, "models_of", state, held):
            hooks = [
                HookSteps(
                    partial(called, models_of, self.contexts.observed(client, round), state, its), models_of
                )
                for client, its in zip(self.clients, held, strict=True)
            ]
            return list(await asyncio.gather(*(drive(hook, self.engine.observe_all) for hook in hooks)))

    async def _scores(
        self, predictors: Sequence[Predictor | None], samples: Sequence[Samples], per_class: bool = False
    ) -> list[Score]:
        """Evaluate each predictor on its samples; those of one model share jobs."""
        scores = [Score(0, 0, 0.0)] * len(samples)
        by_model: dict[int, tuple[Model, list[int]]] = {}
        for index, predictor in enumerate(predictors):
            if predictor is not None:
                by_model.setdefault(id(predictor.model), (predictor.model, []))[1].append(index)
        chunks = [
            (model, indices[start : start + PARTS_PER_JOB])
            for model, indices in by_model.values()
            for start in range(0, len(indices), PARTS_PER_JOB)
        ]
        batch_size = self.parts.evaluation.batch_size
        jobs = [
            Evaluate(model, tuple(samples[index] for index in chunk), batch_size, per_class)
            for model, chunk in chunks
        ]
        results = await asyncio.gather(*map(self.engine.observe, jobs))
        for (_, chunk), result in zip(chunks, results, strict=True):
            for index, score in zip(chunk, result, strict=True):
                scores[index] = score
        return scores


def _confusions(scores: Mapping[str, Sequence[Score]]) -> dict[str, Confusion]:
    """Return the counts by class of each test set, of those that have any."""
    summed = {
        name: Confusion.sum(score.confusion for score in some if score.confusion is not None)
        for name, some in scores.items()
    }
    return {name: confusion for name, confusion in summed.items() if confusion is not None}


def _standing(models: Mapping[str, Predictor]) -> Predictor | None:
    """Return what stands for a client: its personal model, or the global one."""
    return models.get("personal", models.get("global"))
