"""A fit of a hook that runs once for several clients: each of them gets a fit and a result of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from fedsim.engine.engine import Engine, late_outcome
from fedsim.engine.executors.base import Promise
from fedsim.engine.jobs import Fit, Fitted, Job
from fedsim.engine.pending_fit import FitResult, can_wait
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.params import PendingTree


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
        is_looked_at: Whether somebody has looked at the result.
    """

    __slots__ = ("_due_ns", "_effort", "_engine", "_place", "_promise", "fit", "is_looked_at")

    def __init__(self, engine: Engine, request: JobRequest, timed: TimedJob, due_ns: int) -> None:
        self._engine, self._effort, self._due_ns = engine, timed.effort, due_ns
        self._place = request.place
        self._promise: Promise | None = None
        self.fit = cast(Fit, timed.job)
        self.is_looked_at = False

    def fitted(self) -> Fitted:
        """Return the pending result of the first client."""
        return self._engine.pending_fits.fitted(self.fit, self._compute, self._cancel)

    def start(
        self,
        clients: Sequence[int],
        seeds: Sequence[int],
        dues_ns: Sequence[int],
        place: Callable[[int], str],
    ) -> list[FitResult]:
        """Hand the fits of all clients to the executor; return the pending results of the others.

        Args:
            clients: The others.
            seeds: Of their fits.
            dues_ns: The instants at which these end.
            place: Gives the words for whose job it is, for an error.
        """
        engine, flops, results = self._engine, self._effort.total.flops, list[FitResult]()
        self._submit()
        for client, seed, due_ns in zip(clients, seeds, dues_ns, strict=True):
            fit = self.fit.of_client(client, seed)
            promise = engine.submit(fit, due_ns, flops)
            compute = partial(late_outcome, engine.executor, fit, promise, partial(place, client))
            results.append(FitResult(compute, promise.cancel))
        return results

    def _submit(self) -> Promise:
        if self._promise is None:
            self._promise = self._engine.submit(self.fit, self._due_ns, self._effort.total.flops)
        return self._promise

    def _compute(self) -> Fitted:
        self.is_looked_at = True
        return late_outcome(self._engine.executor, self.fit, self._submit(), self._place)

    def _cancel(self) -> None:
        if self._promise is not None:
            self._promise.cancel()
