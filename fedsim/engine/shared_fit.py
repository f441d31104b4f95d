"""A fit of a hook that runs once for several clients: each of them gets a result of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import cast

from fedsim.engine.engine import Engine, late_outcome
from fedsim.engine.executors.base import Executor, Promise
from fedsim.engine.jobs import Fit, Fitted
from fedsim.engine.like_fits import LikeFits, LikeFitted
from fedsim.engine.pending_fit import FitResult, Part, form_change
from fedsim.params import Form, PendingTree, Tree


class LeadingFit:
    """A fit that one client, the first, has asked for; it is done only if its result is looked at.

    Args:
        engine: Who does jobs.
        fit: The fit.
        flops: Operations of the fit.
        due_ns: The instant at which it ends.
        place: Gives the words for whose job it is, for an error.

    Attributes:
        is_looked_at: Whether somebody has looked at the result.
    """

    def __init__(self, engine: Engine, fit: Fit, flops: float, due_ns: int, place: Callable[[], str]) -> None:
        self._engine, self._fit, self._flops, self._due_ns, self._place = engine, fit, flops, due_ns, place
        self.is_looked_at = False

    def fitted(self) -> Fitted:
        """Return the pending result."""
        return self._engine.pending_fits.fitted(self._fit, self._compute, _ignored)

    def _compute(self) -> Fitted:
        self.is_looked_at = True
        promise = self._engine.submit(self._fit, self._due_ns, self._flops)
        return late_outcome(partial(self._engine.executor.wait, promise), self._fit, self._place)


def start_like(
    engine: Engine, fits: LikeFits, due_ns: int, flops: float, place: Callable[[int], str]
) -> LikeResults:
    """Hand fits to the executor.

    Args:
        engine: Who does jobs.
        fits: The fits.
        due_ns: The instant at which the first one ends.
        flops: Operations of each.
        place: Gives the words for whose job it is, for an error.
    """
    promise = engine.submit_like(fits, due_ns, flops)
    if promise is not None:
        return LikeResults(fits, partial(engine.executor.wait, promise), place)
    promises = [engine.submit(fits[number], due_ns, flops) for number in range(len(fits))]
    return LikeResults(fits, partial(_waited, engine.executor, fits, promises), place)


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
