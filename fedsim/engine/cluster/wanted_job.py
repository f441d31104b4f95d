"""A job on its way to an actor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from fedsim.engine.jobs import Job
from fedsim.params import Tree


class Wanted:
    """A job that somebody may wait for.

    Args:
        job: The job.
        key: What it has in common with jobs that can be done together with it, if anything.
        kind: What it has in common with jobs that take as long for each of their amount; its name first.
        amount: Its operations or samples.
    """

    __slots__ = ("amount", "future", "job", "key", "kind", "lost", "takes_s", "trees")

    def __init__(self, job: Job, key: Hashable | None, kind: tuple[Hashable, ...], amount: float) -> None:
        self.job: Job | None = job  # None once nobody wants it
        self.key = key
        self.kind = kind
        self.amount = amount
        self.future: Future[Any] = Future()
        self.takes_s = 0.0
        self.lost = 0
        self.trees: Sequence[Tree] = ()

    def cancel(self) -> bool:
        """Give it up, unless it was sent to an actor."""
        if not self.future.cancel():
            return False
        self.job = None
        return True
