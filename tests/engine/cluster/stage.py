"""Actors in this process, in place of Ray's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from fedsim import __version__
from fedsim.data.fingerprints import fingerprint
from fedsim.engine.cluster.actors import Greeting, JobActor, LostError, RayActors
from fedsim.engine.cluster.packing import PackedResult, unpacked
from fedsim.engine.worker_state import Resources, Worker, pin_thread
from fedsim.errors import RunError
from fedsim.params import Tree


class Stage(RayActors):
    """Actors in this process. Jobs are done at once, unless they are held.

    Attributes:
        fates: What becomes of the next calls: ``lost``, or whatever else for one that is done.
        greetings: What the next actors answer instead of their greeting.
        deadly: A seed at whose job every actor dies.
        is_held: Whether calls wait for ``release``.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.store_bytes = 1e9
        self.fates = deque[str]()
        self.greetings = deque[Any]()
        self.deadly: int | None = None
        self.is_held = False
        self.started = self.ended = self.num_puts = 0
        self.seeds = list[list[int]]()
        self.gone: RunError | None = None
        self.held = list[Callable[[], None]]()

    def start(self, number: int) -> Any:
        self.started += 1
        return JobActor([])

    def greet(self, actor: JobActor) -> Future[Any]:
        answer: Future[Any] = Future()
        # Without the numbers: whoever trains for them here is seen by who draws from torch's generator.
        said: Any = Greeting("here", __version__, fingerprint(self.resources.data), {})
        pin_thread()
        actor._worker = Worker(self.resources, threading.Event())
        if self.greetings:
            said = self.greetings.popleft()
        if said == "silence":
            return answer
        answer.set_exception(said) if isinstance(said, Exception) else answer.set_result(said)
        return answer

    def do(self, actor: JobActor, octets: bytes, alike: bool, trees: Sequence[Any]) -> Future[PackedResult]:
        answer: Future[PackedResult] = Future()
        jobs = unpacked(octets, trees)
        self.seeds.append([getattr(job, "seed", 0) for job in jobs])
        fate = self.fates.popleft() if self.fates else "done"

        def settle() -> None:
            if fate == "lost" or self.deadly in self.seeds_of(jobs):
                answer.set_exception(LostError("its node has died"))
            else:
                answer.set_result(actor.do(octets, alike, *trees))

        self.held.append(settle) if self.is_held else settle()
        return answer

    @staticmethod
    def seeds_of(jobs: Sequence[Any]) -> list[int]:
        return [getattr(job, "seed", 0) for job in jobs]

    def put(self, tree: Tree) -> Any:
        self.num_puts += 1
        return tree

    def end(self, actor: Any) -> None:
        self.ended += 1

    def check(self) -> None:
        if self.gone is not None:
            raise self.gone
