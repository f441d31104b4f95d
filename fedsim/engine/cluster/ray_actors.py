"""Actors of Ray, as :mod:`fedsim.engine.cluster.actor_pool` sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from fedsim.engine.cluster.connection import Connection
from fedsim.engine.cluster.job_actor import JobActor
from fedsim.engine.cluster.packing import PackedResult
from fedsim.engine.cluster.place import LostError
from fedsim.engine.worker_state import Resources
from fedsim.params import Tree


class RayActors:
    """Starts actors on a cluster, spread over its nodes, and talks to them.

    Args:
        connection: To the cluster.
        rebuild: Makes what jobs need, in an actor.
        num_cpus: CPUs that an actor takes.
        num_gpus: GPUs that an actor takes; a part of one for several actors on it.
    """

    def __init__(
        self, connection: Connection, rebuild: Callable[[], Resources], num_cpus: float, num_gpus: float
    ) -> None:
        self._connection, self._ray, self._rebuild = connection, connection.ray, rebuild
        self._class = self._ray.remote(
            num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )(JobActor)
        self.check = connection.check
        self.store_bytes = connection.store_bytes

    def start(self, number: int) -> Any:
        """Begin to start an actor."""
        return self._class.remote(sys.path)

    def greet(self, actor: Any) -> Future[Any]:
        """Ask an actor for its greeting."""
        return self._answer(actor.greet.remote(self._rebuild))

    def do(self, actor: Any, octets: bytes, alike: bool, trees: Sequence[Any]) -> Future[PackedResult]:
        """Have an actor do packed jobs."""
        return self._answer(actor.do.remote(octets, alike, *trees))

    def put(self, tree: Tree) -> Any:
        """Put a tree into the object store; it is there as long as its reference is."""
        return self._ray.put(tree)

    def end(self, actor: Any) -> None:
        """End an actor, at once."""
        with suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(actor)

    def _answer(self, reference: Any) -> Future[Any]:
        """Return the future of a result; what happens to actors is a :class:`LostError`."""
        exceptions = self._ray.exceptions
        answer: Future[Any] = Future()

        def settle(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            elif isinstance(error, exceptions.RayTaskError) or not isinstance(error, exceptions.RayError):
                answer.set_exception(getattr(error, "cause", None) or error)
            else:
                answer.set_exception(LostError(_first_line(error)))

        reference.future().add_done_callback(settle)
        return answer


def _first_line(error: Exception) -> str:
    """Return the last line of what Ray says, where it says why, without its tables."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
