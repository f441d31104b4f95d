"""Jobs on their way to an actor, and results on their way back, as bytes.

Large trees of jobs are left out: they travel apart, once for all jobs that begin from them.
"""

from __future__ import annotations

import io
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pickle import PickleBuffer, Unpickler, loads  # noqa: TID251 - as Ray does between its processes
from typing import Any

import numpy as np

from fedsim.engine.jobs import Evaluate, Fit, Fitted, Job, Predict
from fedsim.params import Array, PendingTree, Tree

APART_BYTES = 100_000
"""Trees of so many bytes travel apart. Below, Ray sends a value within the call."""

PackedResult = tuple[bytes, list[Array]]
"""A value as bytes, and apart its large arrays, uint8 ``[n]``."""


def trees_of(job: Job) -> Iterator[Tree]:
    """Yield the trees of a job that other jobs may share, those that are large enough to travel apart."""
    found: list[Any] = []
    match job:
        case Fit():
            for model in job.models.values():
                found += model.params, model.buffers
            found += [extra.value for extra in job.extras.values() if isinstance(extra.value, Mapping)]
        case Predict(model) | Evaluate(model):
            found += model.params, model.buffers
    for tree in found:
        if sum(array.nbytes for array in tree.values()) >= APART_BYTES:
            yield tree


def plain(tree: Tree) -> dict[str, Array]:
    """Return a tree as a dictionary."""
    return dict(tree.computed() if isinstance(tree, PendingTree) else tree)


@cache
def _pickler() -> Any:
    from ray import cloudpickle

    return cloudpickle.Pickler


@cache
def _pickler_with_places() -> Any:
    class Pickler(_pickler()):  # type: ignore[misc]
        places: Mapping[int, int]

        def persistent_id(self, one: Any) -> int | None:
            return self.places.get(id(one))

    return Pickler


class _Reader(Unpickler):
    trees: Sequence[Tree]

    def persistent_load(self, number: Any) -> Any:
        return self.trees[number]


def packed(value: Any, apart: Mapping[int, int] | None = None) -> bytes:
    """Return a value as bytes, without the trees whose numbers are in ``apart`` by ``id``."""
    file = io.BytesIO()
    if apart:  # asking about each object takes time
        pickler = _pickler_with_places()(file, protocol=5)
        pickler.places = apart
    else:
        pickler = _pickler()(file, protocol=5)
    pickler.dump(value)
    return file.getvalue()


def unpacked(octets: bytes, trees: Sequence[Tree] = ()) -> Any:
    """Return the value of :func:`packed`, in memory of its own but for the trees that were left out."""
    reader = _Reader(io.BytesIO(octets))
    reader.trees = trees
    return reader.load()


def packed_result(value: Any) -> PackedResult:
    """Return a value as an actor sends it: as bytes, and apart its large arrays."""
    large: list[Array] = []

    def is_small(buffer: PickleBuffer) -> bool:
        octets = np.frombuffer(buffer.raw(), np.uint8)
        if octets.nbytes < APART_BYTES:
            return True
        large.append(octets)
        return False

    file = io.BytesIO()
    _pickler()(file, protocol=5, buffer_callback=is_small).dump(value)
    return file.getvalue(), large


class Loans:
    """Reads results, whose large arrays stay in the object store as long as they are used.

    Copying them takes most of this process's time for a job. But an array that is kept keeps its part of the
    store, so beyond ``most_bytes`` arrays are copied.
    """

    def __init__(self, most_bytes: float) -> None:
        self._most_bytes = most_bytes
        self._returned = deque[int]()  # any thread may free an array, at any time
        self.lent_bytes = 0

    def read(self, result: PackedResult) -> Any:
        """Return the value of :func:`packed_result`; its arrays are read-only."""
        head, large = result
        while self._returned:
            self.lent_bytes -= self._returned.popleft()
        size = sum(one.nbytes for one in large)
        if self.lent_bytes + size > self._most_bytes:
            large = [np.frombuffer(one.tobytes(), np.uint8) for one in large]
            return loads(head, buffers=large)  # noqa: S301 - of an actor of one's own
        self.lent_bytes += size
        # A result is one object of the store, which is free when all its arrays are.
        held = [None] * len(large)

        def free() -> None:
            held.pop()
            if not held:
                self._returned.append(size)

        for one in large:
            weakref.finalize(one, free).atexit = False
        return loads(head, buffers=large)  # noqa: S301


@dataclass(frozen=True, slots=True)
class Failure:
    """What a job has raised, and its causes: class names, texts, and bytes of those that can be sent."""

    raised: tuple[tuple[str, str, bytes | None], ...]

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an exception is."""
        raised = list[tuple[str, str, bytes | None]]()
        one: BaseException | None = error
        while one is not None and len(raised) < 10:
            raised.append((type(one).__name__, str(one), _sendable(one)))
            one = one.__cause__
        return cls(tuple(raised))

    def error(self) -> BaseException:
        """Return the exception, or one with the same name and text where it cannot be had here."""
        behind: BaseException | None = None
        for name, text, octets in reversed(self.raised):
            try:
                error = None if octets is None else unpacked(octets)
            except Exception:
                error = None
            if not isinstance(error, BaseException):
                error = type(name, (Exception,), {})(text)
            error.__cause__, behind = behind, error
        assert behind is not None  # noqa: S101
        return behind


def _sendable(error: BaseException) -> bytes | None:
    """Return an exception as bytes, if what comes back from them says the same."""
    try:
        octets = packed(error)
        return octets if str(unpacked(octets)) == str(error) else None
    except Exception:
        return None


def final(result: Any) -> Any:
    """Return a result with nothing left to be computed."""
    if isinstance(result, Fitted):
        return Fitted(result.models, result.loss, result.num_steps, result.states, result.outputs)
    return Failure.of(result) if isinstance(result, BaseException) else result
