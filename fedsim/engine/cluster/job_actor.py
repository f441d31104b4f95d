"""An actor that does jobs: it builds the run's data and nets itself, and keeps them warm."""

from __future__ import annotations

import platform
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from fedsim import __version__
from fedsim.data.fingerprints import Fingerprint, fingerprint
from fedsim.engine.batched.kinds import Ways
from fedsim.engine.batched.run_together import run_together
from fedsim.engine.cluster.numeric_fingerprint import NumericFingerprint, numeric_fingerprint
from fedsim.engine.cluster.packing import Failure, PackedResult, final, packed_result, unpacked
from fedsim.engine.worker_state import Resources, Worker, choose_repeatable_kernels, pin_thread
from fedsim.params import Tree


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a process says of itself before it does jobs.

    Attributes:
        host: Name of its machine.
        fedsim: Version of fedsim.
        data: Of the samples that it has built.
        numbers: Of the numbers that it computes.
    """

    host: str
    fedsim: str
    data: Fingerprint
    numbers: NumericFingerprint

    @classmethod
    def of(cls, resources: Resources) -> Greeting:
        """Return what this process says, which has these resources."""
        return cls(platform.node(), __version__, fingerprint(resources.data), numeric_fingerprint(resources))


@dataclass(frozen=True, slots=True)
class Done:
    """What became of the jobs of a call.

    Attributes:
        results: Each one's result, or its failure.
        ways: How many were done in which way.
        took_s: Real time, s.
    """

    results: Sequence[Any]
    ways: Mapping[str, int]
    took_s: float


class JobActor:
    """Does jobs, one call after the other.

    Args:
        path: Where Python also looks for modules, such as private plugins.
    """

    def __init__(self, path: Sequence[str]) -> None:
        sys.path += [place for place in path if place not in sys.path]

    def greet(self, rebuild: Callable[[], Resources]) -> Greeting | Failure:
        """Build what jobs need.

        Args:
            rebuild: Makes it.
        """
        try:
            pin_thread()
            resources = rebuild()
            choose_repeatable_kernels(resources.device)
            self._worker = Worker(resources, threading.Event())
            return Greeting.of(resources)
        except Exception as error:
            return Failure.of(error)

    def do(self, octets: bytes, alike: bool, *trees: Tree) -> PackedResult:
        """Do the jobs of a call; return a :class:`Done`, packed.

        Args:
            octets: The jobs, packed.
            alike: Whether they may be done together.
            trees: What was left out of them.
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
