"""Actors that do jobs: each builds the run's data and nets itself, and keeps them warm.

:class:`JobActor` runs in each actor; :class:`RayActors` starts actors by Ray and talks to them, for the pool
(:mod:`fedsim.engine.cluster.actor_pool`).
"""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from fedsim import __version__
from fedsim.data.fingerprints import Fingerprint, fingerprint
from fedsim.engine.batched.kinds import Ways
from fedsim.engine.batched.run_together import run_together
from fedsim.engine.cluster.connection import Connection
from fedsim.engine.cluster.numeric_fingerprint import NumericFingerprint, numeric_fingerprint
from fedsim.engine.cluster.packing import Failure, PackedResult, final, packed_result, unpacked
from fedsim.engine.worker_state import Resources, Worker, choose_repeatable_kernels, pin_thread
from fedsim.params import Tree


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a process says of itself before it does jobs: machine, version of fedsim, and fingerprints."""

    host: str
    fedsim: str
    data: Fingerprint
    numbers: NumericFingerprint

    @classmethod
    def of(cls, resources: Resources) -> Greeting:
        """Return the greeting of this process."""
        return cls(platform.node(), __version__, fingerprint(resources.data), numeric_fingerprint(resources))


@dataclass(frozen=True, slots=True)
class Done:
    """What became of the jobs of a call: results or failures, how many were done in which way, real time."""

    results: Sequence[Any]
    ways: Mapping[str, int]
    took_s: float


class JobActor:
    """Does jobs, one call after the other; ``path`` is where Python also looks for modules."""

    def __init__(self, path: Sequence[str]) -> None:
        sys.path += [place for place in path if place not in sys.path]

    def greet(self, rebuild: Callable[[], Resources]) -> Greeting | Failure:
        """Build what jobs need."""
        try:
            pin_thread()
            resources = rebuild()
            choose_repeatable_kernels(resources.device)
            self._worker = Worker(resources, threading.Event())
            return Greeting.of(resources)
        except Exception as error:
            return Failure.of(error)

    def do(self, octets: bytes, alike: bool, *trees: Tree) -> PackedResult:
        """Do packed jobs, together if they are alike; return a :class:`Done`, packed.

        ``trees`` were left out of the jobs.
        """
        jobs = unpacked(octets, trees)
        began_s = perf_counter()
        results, ways = list[Any](), Ways()
        with self._worker.on_its_stream():
            for some in [jobs] if alike else [[job] for job in jobs]:
                done, its_ways = run_together(some, self._worker)
                results += done
                ways += its_ways
        results = [final(result) for result in results]
        return packed_result(Done(results, dict(ways), perf_counter() - began_s))


class LostError(Exception):
    """An actor has died, or its result has gone with its machine."""


class RayActors:
    """Starts actors on a cluster, spread over its nodes, and talks to them; answers come in any thread.

    Each takes ``num_cpus`` and ``num_gpus``, and makes what jobs need by ``rebuild``.
    """

    def __init__(
        self, connection: Connection, rebuild: Callable[[], Resources], num_cpus: float, num_gpus: float
    ) -> None:
        self._connection, self._ray, self._rebuild = connection, connection.ray, rebuild
        self._class = self._ray.remote(
            num_cpus=num_cpus, num_gpus=num_gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )(JobActor)
        self.store_bytes = connection.store_bytes

    def start(self, number: int) -> Any:
        """Begin to start an actor."""
        return self._class.remote(sys.path)

    def greet(self, actor: Any) -> Future[Any]:
        """Ask an actor for its greeting, or for why it cannot be made ready."""
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

    def check(self) -> None:
        """Raise a RunError if the cluster is gone."""
        self._connection.check()

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
                answer.set_exception(LostError(_last_line(error)))

        reference.future().add_done_callback(settle)
        return answer


def _last_line(error: Exception) -> str:
    """Return the last line of what Ray says, where it says why, without its tables."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
