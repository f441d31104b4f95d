"""Traces of clients' links: few capacities over time, shared by any number of clients.

A trace takes the place of a constant rate. A client is two numbers: which trace its link follows, and how far
into a lap it is when the run begins. Only while it has a transfer does it become an object, :class:`Shifted`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from fedsim import packed
from fedsim.config import Config
from fedsim.errors import DataError
from fedsim.network.capacity import Capacity, read_capacity
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.rng import Key
from fedsim.units import LONGEST_S

_TURNS = 2**32
"""Parts into which a lap is cut, so that a place in it is a number of 32 bits."""

NPZ = ".npz"

_ARRAYS = {
    "name": ("U", "texts"),
    "offset": ("iu", "whole numbers"),
    "duration_ms": ("iuf", "numbers"),
    "kbps": ("iuf", "numbers"),
}
"""Arrays of an .npz file: the kinds of their dtypes, in NumPy's letters and in words."""

MOST_BYTES = 2**26
"""What each array of an .npz file may unpack to, 64 MiB: 97 days in steps of a second."""


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


_Path = Annotated[str, Field(min_length=1)]


class LinkTraceConfig(Config):
    """A link's capacity over time, instead of a constant rate."""

    name: Annotated[str, Field(min_length=1)] | None = None
    """Which trace of an .npz file; each client gets one of all of them if left out."""
    shift: bool = True
    """Whether each client starts at a place of its own in the trace, drawn at random; false: all at its
    beginning."""
    file: Annotated[
        tuple[_Path, ...], BeforeValidator(_listed, _Path | tuple[_Path, ...]), Field(min_length=1)
    ]
    """File of the capacity, or a list of files, of which each client gets one at random: CSV with a header
    such as at_s,bps, Mahimahi's format, read in bins of 100 ms, or an .npz file of many traces. Steps are
    at least 1 ms long. A trace starts again at its end; a relative path starts at the working directory."""

    def read(self) -> tuple[Capacity, ...]:
        """Return the traces, at least one.

        Raises:
            DataError: A file cannot be read; the message names file and line.
        """
        return read_all(self.file, self.name)


def read_all(files: Sequence[str], name: str | None = None) -> tuple[Capacity, ...]:
    """Return the traces of files, in their order.

    Args:
        files: CSV, Mahimahi's format or .npz, told apart by how their names end.
        name: Which trace of an .npz file; by default all of them.

    Raises:
        DataError: A file cannot be read, or there is no such trace.
    """
    return tuple(capacity for file in files for capacity in _read(Path(file).expanduser(), name))


def _read(path: Path, name: str | None) -> Iterator[Capacity]:
    if path.suffix.lower() == NPZ:
        yield from read_npz(path, name)
    elif name is not None:
        raise DataError(
            f"{path}: 'name' picks a trace of an .npz file, and this file is one trace: leave it out"
        )
    else:
        yield read_capacity(path)


def read_npz(path: Path, name: str | None = None) -> list[Capacity]:
    """Read a file of many traces, or the one called ``name``.

    Trace ``i`` is called ``name[i]``; its steps are ``offset[i]`` to ``offset[i + 1]`` of the arrays
    ``duration_ms`` and ``kbps``. Each step is at least 1 ms long.

    Raises:
        DataError: The file cannot be read, or there is no such trace; the message names file and trace.
    """
    names, offsets, durations_ms, kbps = _arrays(path)
    if name is not None and name not in names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        shown = shortened(", ".join(names[:5]), MOST_SAID) + more
        raise DataError(f"{path}: no trace is called {quoted(name)}: there are {shown}")
    if len(offsets) != len(names) + 1 or not names or not len(durations_ms) == len(kbps) == offsets[-1]:
        raise DataError(
            f"{path}: {len(names)} names, {len(offsets)} offsets, {len(durations_ms)} durations and "
            f"{len(kbps)} rates do not fit together: offset has one more entry than name, and ends with the "
            "number of rates"
        )
    if offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise DataError(f"{path}: offset holds {_few(offsets)}: it begins with 0 and never decreases")
    capacities = []
    for one, start, stop in zip(names, offsets[:-1], offsets[1:], strict=True):
        if name is None or one == name:
            length_s = float(durations_ms[start:stop].sum()) / 1000
            if not (durations_ms[start:stop] >= 0).all() or not length_s <= LONGEST_S:
                raise DataError(
                    f"{path}: trace {quoted(one)}: duration_ms holds {_few(durations_ms[start:stop])}: "
                    f"durations are 1 ms or more, and end within {LONGEST_S:g} s"
                )
            ends_ns = np.cumsum(np.rint(durations_ms[start:stop] * 1e6)).astype(np.int64)
            starts_ns = [0, *ends_ns[:-1].tolist()]
            try:
                rates_bps = (kbps[start:stop] * 1000.0).tolist()
                capacities.append(Capacity(starts_ns[: len(rates_bps)], rates_bps, int(ends_ns[-1:].sum())))
            except DataError as error:
                raise DataError(f"{path}: trace {quoted(one)}: {error}") from error
    return capacities


def _arrays(
    path: Path,
) -> tuple[list[str], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return names, offsets, durations and rates."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {key: packed.read_member(archive, key, MOST_BYTES) for key in _ARRAYS}
    except OSError as error:
        raise DataError(f"{shortened(path, MOST_SAID)}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise DataError(
            f"{path}: is no file of traces: it needs the arrays name, offset, duration_ms and kbps ({error})"
        ) from error
    for key, (kinds, what) in _ARRAYS.items():
        array = arrays[key]
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise DataError(f"{path}: {key} is {array.dtype} of shape {array.shape}: it is a row of {what}")
    try:
        names = [str(one) for one in arrays["name"]]
    except SystemError:  # a code point that Unicode does not have
        raise DataError(f"{path}: name is not text") from None
    durations_ms, kbps = (arrays[key].astype(np.float64) for key in ("duration_ms", "kbps"))
    return names, arrays["offset"].astype(np.int64), durations_ms, kbps


def _few(array: NDArray[Any]) -> str:
    return ", ".join(f"{value:g}" for value in array[:5]) + (", ..." if len(array) > 5 else "")


class Shifted:
    """A capacity from a place in its lap on; read like :class:`fedsim.network.capacity.Capacity`."""

    __slots__ = ("_ahead_ns", "_capacity")

    def __init__(self, capacity: Capacity, ahead_ns: int) -> None:
        self._capacity = capacity
        self._ahead_ns = ahead_ns

    def rate_at(self, at_ns: int) -> float:
        """Return the capacity from an instant on, bit/s."""
        return self._capacity.rate_at(at_ns + self._ahead_ns)

    def next_change_ns(self, at_ns: int) -> int | None:
        """Return the first instant after ``at_ns`` at which the capacity steps; ``None``: it is constant."""
        change_ns = self._capacity.next_change_ns(at_ns + self._ahead_ns)
        return None if change_ns is None else change_ns - self._ahead_ns

    def bytes_between(self, from_ns: int, to_ns: int) -> float:
        """Return the bytes that can pass from an instant to another, which is not before it."""
        return self._capacity.bytes_between(from_ns + self._ahead_ns, to_ns + self._ahead_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """Which of ``n`` clients follows which trace, and from where.

    Attributes:
        capacities: The traces.
        numbers: For each client the place of its trace among them, int32 ``[n]``; -1: its link is constant.
        turns: For each client how far into a lap it begins, in 1/2**32 of the lap, uint32 ``[n]``.
    """

    capacities: tuple[Capacity, ...]
    numbers: NDArray[np.int32]
    turns: NDArray[np.uint32]

    @classmethod
    def draw(cls, config: LinkTraceConfig, num: int, key: Key) -> Traces:
        """Return the traces of ``num`` clients; all of them are used equally often, to within one.

        Raises:
            DataError: A file cannot be read.
        """
        capacities = config.read()
        generator = key.child("trace").numpy()
        order = generator.permutation(len(capacities)).astype(np.int32)
        numbers = generator.permutation(order[np.arange(num) % len(capacities)])
        turns = np.zeros(num, np.uint32)
        if config.shift:
            turns = key.child("shift").numpy().integers(0, _TURNS, num, np.uint32)
        for array in (numbers, turns):
            array.flags.writeable = False
        return cls(capacities, numbers, turns)

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, Traces | None]]) -> Traces | None:
        """Return those of consecutive groups, each a number of clients and their traces; None without any."""
        if all(traces is None for _, traces in parts):
            return None
        capacities, numbers, turns = list[Capacity](), [], []
        for num, traces in parts:
            if traces is None:
                numbers.append(np.full(num, -1, np.int32))
                turns.append(np.zeros(num, np.uint32))
            else:
                numbers.append(traces.numbers + np.int32(len(capacities)))
                turns.append(traces.turns)
                capacities += traces.capacities
        return cls(tuple(capacities), np.concatenate(numbers), np.concatenate(turns))

    def of(self, client: int) -> Shifted | None:
        """Return what a client's link follows; None: it is constant."""
        number = int(self.numbers[client])
        if number < 0:
            return None
        capacity = self.capacities[number]
        return Shifted(capacity, int(self.turns[client]) * capacity.period_ns // _TURNS)

    def mean_bps(self) -> NDArray[np.float64] | float:
        """Return the mean capacity of each client's link, ``[n]``, or of all where there is one trace.

        Every client has to follow a trace.
        """
        means = [capacity.mean_bps for capacity in self.capacities]
        return means[0] if len(means) == 1 else np.array(means)[self.numbers]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that describe clients."""
        return self.numbers.nbytes + self.turns.nbytes
