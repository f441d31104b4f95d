"""Link traces: few capacities over time, which the links of any number of clients follow.

A trace takes the place of a constant rate. A client is two numbers: which trace its link follows, and how far
into a lap it is when the run begins. Only while it has a transfer does it become a
:class:`fedsim.network.capacity_trace.Capacity` of its own.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, ValidationInfo

from fedsim import bounded_unpacking
from fedsim.config import Config, fault
from fedsim.errors import DataError
from fedsim.input_paths import InputPath, located
from fedsim.network.capacity_trace import Capacity, read_capacity
from fedsim.params import Array
from fedsim.quoting import MAX_SHOWN, nearest, quoted, shortened
from fedsim.rng import Key
from fedsim.shares import deal
from fedsim.units import MAX_TIME_S

TRACED = {"up": "up_trace", "down": "down_trace"}
"""Quantities whose place a trace may take, and the key of an entry that gives it."""

_TURNS = 2**32
"""Parts of a lap, so that a place in it is a number of 32 bits."""

NPZ = ".npz"

_ARRAYS = {
    "name": ("U", "texts"),
    "offset": ("iu", "whole numbers"),
    "duration_ms": ("iuf", "numbers"),
    "kbps": ("iuf", "numbers"),
}
"""Arrays of an .npz file: the kinds of their dtypes, in NumPy's letters and in words."""

MAX_BYTES = 2**26
"""Unpacked size of each array of an .npz file, 64 MiB: 97 days in steps of a second."""


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class LinkTraceConfig(Config):
    """A link's capacity over time, instead of a constant rate."""

    name: Annotated[str, Field(min_length=1)] | None = None
    """Which trace of an .npz file; each client gets one of all of them if left out."""
    shift: bool = True
    """Whether each client starts at a place of its own in the trace, drawn at random; false: all at its
    beginning."""
    file: Annotated[
        tuple[InputPath, ...],
        BeforeValidator(_listed, InputPath | tuple[InputPath, ...]),
        Field(min_length=1),
    ]
    """File of the capacity, or a list of files, of which each client gets one at random: CSV with a header
    such as at_s,bps, Mahimahi's format, read in bins of 100 ms, or an .npz file of many traces. Steps are
    at least 1 ms long. A trace starts again at its end."""

    def read(self) -> list[Capacity]:
        """Return the traces, at least one: those of the files in their order."""
        return [capacity for file in self.file for capacity in _read(file, self.name)]


def _spelt_out(value: Any) -> Any:
    return {"file": value} if isinstance(value, str | list | tuple) else value


LinkTrace = Annotated[LinkTraceConfig, BeforeValidator(_spelt_out, str | tuple[str, ...] | LinkTraceConfig)]
"""A trace of a link: a file, a list of files, or a table."""


def one_rate(trace: LinkTraceConfig | None, info: ValidationInfo) -> LinkTraceConfig | None:
    """Validate the key of a trace, which follows that of the rate whose place it takes."""
    quantity = str(info.field_name).removesuffix("_trace")
    if trace is not None and info.data.get(quantity) is not None:
        problem = f"a trace takes the place of {quoted(quantity)}, which is given too"
        raise fault(problem, "leave one of them out")
    return trace


def _read(file: str, name: str | None) -> list[Capacity]:
    path = located(file)
    if path.suffix.lower() == NPZ:
        return read_npz(path, name)
    if name is not None:
        raise DataError(
            f"{path}: 'name' picks a trace of an .npz file, and this file is one trace: leave it out"
        )
    return [read_capacity(str(path))]


def read_npz(path: Path, name: str | None = None) -> list[Capacity]:
    """Read a file of many traces, or the one called ``name``.

    Trace ``i`` is called ``name[i]``; its steps are ``offset[i]`` to ``offset[i + 1]`` of the arrays
    ``duration_ms`` and ``kbps``. Each step is at least 1 ms long.
    """
    names, offsets, durations_ms, kbps = _arrays(path)
    if name is not None and name not in names:
        raise DataError(f"{path}: no trace is called {quoted(name)}: {nearest(name, names)}")
    is_cut = len(offsets) == len(names) + 1 > 1 and offsets[0] == 0 and (np.diff(offsets) > 0).all()
    if not is_cut or not len(durations_ms) == len(kbps) == offsets[-1]:
        raise DataError(
            f"{path}: {len(names)} names, {len(offsets)} offsets, {len(durations_ms)} durations and "
            f"{len(kbps)} rates do not fit together: offset has one more entry than name, begins with 0, "
            "rises with each entry, and ends with the number of rates"
        )
    capacities = []
    for its_name, start, stop in zip(names, offsets[:-1], offsets[1:], strict=True):
        if name is None or its_name == name:
            try:
                capacities.append(_capacity(durations_ms[start:stop], kbps[start:stop]))
            except DataError as error:
                raise DataError(f"{path}: trace {quoted(its_name)}: {error}") from error
    return capacities


def _capacity(durations_ms: Array, kbps: Array) -> Capacity:
    least_ms, length_s = durations_ms.min(), durations_ms.sum() / 1000
    if not (least_ms >= 0 and length_s <= MAX_TIME_S):  # NaN is neither
        raise DataError(
            f"the least of duration_ms is {least_ms:g}, and they add up to {length_s:g} s: durations are 1 "
            f"or more, and end within {MAX_TIME_S:g} s"
        )
    ends_ns = np.cumsum(np.rint(durations_ms * 1e6)).astype(np.int64).tolist()
    return Capacity([0, *ends_ns[:-1]], (kbps * 1000.0).tolist(), ends_ns[-1])


def _arrays(path: Path) -> tuple[list[str], Array, Array, Array]:
    """Return names, offsets, durations and rates."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {key: bounded_unpacking.read_member(archive, key, MAX_BYTES) for key in _ARRAYS}
    except OSError as error:
        raise DataError(f"{shortened(path, MAX_SHOWN)}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        raise DataError(
            f"{path}: is no file of traces: it needs the arrays name, offset, duration_ms and kbps ({error})"
        ) from error
    for key, (kinds, what) in _ARRAYS.items():
        array = arrays[key]
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise DataError(f"{path}: {key} is {array.dtype} of shape {array.shape}: it is a row of {what}")
    try:
        names = [str(name) for name in arrays["name"]]
    except SystemError:  # a code point that Unicode does not have
        raise DataError(f"{path}: name is not text") from None
    durations_ms, kbps = (arrays[key].astype(np.float64) for key in ("duration_ms", "kbps"))
    return names, arrays["offset"].astype(np.int64), durations_ms, kbps


@dataclass(frozen=True, slots=True, eq=False)
class LinkTraces:
    """The trace of each of ``n`` clients, and its start in a lap.

    Attributes:
        capacities: The traces.
        numbers: Index of each client's trace, int32 ``[n]``.
        turns: Start of each client in a lap, in 1/2**32 of the lap, uint32 ``[n]``.
    """

    capacities: Sequence[Capacity]
    numbers: NDArray[np.int32]
    turns: NDArray[np.uint32]

    @classmethod
    def draw(cls, config: LinkTraceConfig, num: int, key: Key) -> LinkTraces:
        """Return the traces of ``num`` clients; all of them are used equally often, to within one."""
        capacities = config.read()
        numbers = deal(len(capacities), num, key.child("trace").numpy())
        turns = np.zeros(num, np.uint32)
        if config.shift:
            turns = key.child("shift").numpy().integers(0, _TURNS, num, np.uint32)
        for array in (numbers, turns):
            array.flags.writeable = False
        return cls(capacities, numbers, turns)

    def of(self, client: int) -> Capacity:
        """Return the trace of a client's link."""
        capacity = self.capacities[int(self.numbers[client])]
        return capacity.ahead(int(self.turns[client]) * capacity.period_ns // _TURNS)

    def mean_bps(self) -> NDArray[np.float64] | float:
        """Return the mean capacity of each client's link, ``[n]``; one number for a single trace."""
        means = [capacity.mean_bps for capacity in self.capacities]
        return means[0] if len(means) == 1 else np.array(means)[self.numbers]
