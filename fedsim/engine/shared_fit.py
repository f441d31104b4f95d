"""A fit of a hook that runs once for several clients: each of them gets a result of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import cast

from fedsim.engine.engine import Engine, late_outcome
from fedsim.engine.executors.base import Executor, Promise
from fedsim.engine.jobs import Fit, Fitted, Job
from fedsim.engine.like_fits import LikeFits, LikeFitted
from fedsim.engine.pending_fit import FitResult, Part, can_wait, form_change
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.params import Form, PendingTree, Tree


def can_be_shared(job: Job) -> bool:
    """Say whether a job can be that of a hook that runs for several clients.

    It is a fit whose result may be pending, and that depends on no other pending result.
    """
    if not (isinstance(job, Fit) and can_wait(job)):
        return False
    trees = [tree for model in job.models.values() for tree in (model.params, model.buffers)]
    values = [*trees, *(extra.value for extra in job.extras.values())]
    return not any(type(value) is PendingTree and value.is_pending for value in values)


class SharedFit:
    """A fit that one client, the first, has asked for.

    It is handed to the executor with those of the others, or when its result is looked at before.

    Args:
        engine: Who does jobs.
        request: What the client has asked for.
        timed: The fit among it.
        due_ns: The instant at which it ends.

    Attributes:
        fit: The fit.
        is_looked_at: Whether somebody has looked at the result of the first client.
    """

    def __init__(self, engine: Engine, request: JobRequest, timed: TimedJob, due_ns: int) -> None:
        self._engine, self._flops, self._due_ns = engine, timed.effort.total.flops, due_ns
        self._client, self._place = request.client, request.place
        self._promise: Promise | None = None
        self.fit = cast(Fit, timed.job)
        self.is_looked_at = False

    def fitted(self) -> Fitted:
        """Return the pending result of the first client."""
        return self._engine.pending_fits.fitted(self.fit, self._compute, self._cancel)

    def start(
        self, clients: Sequence[int], seeds: Sequence[int], due_ns: int, place: Callable[[int], str]
    ) -> LikeResults:
        """Hand the fits of all clients to the executor.

        Args:
            clients: The others.
            seeds: Of their fits.
            due_ns: The instant at which the first fit ends.
            place: Gives the words for whose job it is, for an error.
        """
        engine = self._engine
        fits = LikeFits(self.fit, [self._client, *clients], [self.fit.seed, *seeds])
        promise = engine.submit_like(fits, due_ns, self._flops)
        if promise is not None:
            return LikeResults(fits, partial(engine.executor.wait, promise), place)
        others = [engine.submit(fits[number], due_ns, self._flops) for number in range(1, len(fits))]
        promises = [self._submit(), *others]
        return LikeResults(fits, partial(_waited, engine.executor, fits, promises), place)

    def _submit(self) -> Promise:
        if self._promise is None:
            self._promise = self._engine.submit(self.fit, self._due_ns, self._flops)
        return self._promise

    def _compute(self) -> Fitted:
        self.is_looked_at = True
        return late_outcome(partial(self._engine.executor.wait, self._submit()), self.fit, self._place)

    def _cancel(self) -> None:
        if self._promise is not None:
            self._promise.cancel()


def _waited(executor: Executor, fits: LikeFits, promises: Sequence[Promise]) -> LikeFitted:
    """Wait for fits that were submitted one by one."""
    results = list[Fitted | BaseException]()
    for promise in promises:
        try:
            results.append(executor.wait(promise))
        except Exception as error:
            results.append(error)
    return LikeFitted.of(fits, results)


class LikeResults:
    """The results of like fits.

    Args:
        fits: The fits.
        wait: Waits for the results.
        place: Gives the words for whose job it is, for an error.
    """

    def __init__(self, fits: LikeFits, wait: Callable[[], LikeFitted], place: Callable[[int], str]) -> None:
        self._fits, self._wait, self._place = fits, wait, place

    @cached_property
    def _fitted(self) -> LikeFitted:
        try:
            return self._wait()
        except Exception as error:
            return LikeFitted({}, dict.fromkeys(range(len(self._fits)), error))

    @property
    def are_in_range(self) -> bool:
        """Whether no scalar is known to be out of range."""
        return self._fitted.are_in_range

    def trees(self, name: str, part: Part, form: Form) -> Sequence[Tree]:
        """Return the parameters or buffers of a trained model, of each client.

        Instead of one that was not computed, or has another form, there is a pending tree that raises the
        error.
        """
        fitted, of_all = self._fitted, self._fitted.trees.get((name, part), ())
        trees = of_all if len(of_all) == len(self._fits) else [cast(Tree, {})] * len(self._fits)
        changed = {
            id(tree) for tree in {id(tree): tree for tree in trees}.values() if form_change(form, tree)
        }
        if not (changed or fitted.errors):
            return trees
        return [
            PendingTree(form, partial(self._result(number).tree, name, part, form))
            if number in fitted.errors or id(tree) in changed
            else tree
            for number, tree in enumerate(trees)
        ]

    def _result(self, number: int) -> FitResult:
        """Return what raises the error of a fit, or shows in what its result has another form."""
        fits, place = self._fits, partial(self._place, self._fits.clients[number])
        compute = partial(late_outcome, partial(self._fitted.of_fit, fits, number), fits[number], place)
        return FitResult(compute, _ignored)


def _ignored() -> None:
    """Do nothing: there is nothing to give up."""
