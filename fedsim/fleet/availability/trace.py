"""Clients come and go as a CSV file says, over and over.

The file is one of three kinds, told apart by its first line; lines that begin with ``#`` are comments.

Intervals, any number of lines for each recorded client, in any order::

    client,on_at_s,off_at_s
    phone-1,0,3600
    phone-1,7200.5,9000
    phone-2,600,4000

States at regular instants, one line for each recorded client, all equally long: ``1`` is there, ``0`` away::

    client,step_s,states
    phone-1,600,110010
    phone-2,600,011110

A plain grid without a header, as a spreadsheet or ``numpy.savetxt`` writes it: a line of zeros and ones for
each recorded client, a column for each step, whose length is the setting ``step``::

    1,1,0,0,1,0
    0,1,1,1,1,0

The recording starts at the start of a run and repeats itself after its end. Which recorded client each client
repeats is drawn: all of them are used equally often, to within one. Instants are cut to 1/1024 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fedsim.config import Config
from fedsim.csv_rows import Row, below_header, read_text, rows_of, same_length
from fedsim.fleet.availability.base import TICKS_PER_S, Availability, AvailabilityPlugin, Period, ticks
from fedsim.fleet.availability.on_off_periods import Repeated
from fedsim.input_paths import InputPath, located
from fedsim.params import Array
from fedsim.quoting import quoted
from fedsim.rng import Key
from fedsim.shares import deal
from fedsim.units import MAX_TIME_S, Range

INTERVALS = ("client", "on_at_s", "off_at_s")
STATES = ("client", "step_s", "states")
INSTANTS = Range(0.0, MAX_TIME_S)


class TraceConfig(Config):
    """Settings of the recording."""

    file: InputPath
    """CSV file."""
    step: Period | None = None
    """Time between two columns of a plain grid, for which alone it is given, 1 s to 3650 d."""
    repeat: Period | None = None
    """Time after which intervals repeat themselves; without it, when the last of them ends, 1 s to 3650 d."""


Recording = tuple[Sequence[Array], int]
"""For each recorded client its intervals of presence in ticks, sorted and apart; and when all begin anew."""


class AvailabilityTrace(AvailabilityPlugin[TraceConfig]):
    """A recording that repeats itself."""

    def bind(self, num: int, key: Key) -> Availability:
        """Return clients that repeat what the file says; ``key`` decides whom each of them repeats."""
        intervals, length = self.read()
        recorded = deal(len(intervals), num, key.numpy())
        return Repeated(intervals, length, length / TICKS_PER_S, recorded, np.broadcast_to(0, num))

    def read(self) -> Recording:
        """Return what the file says."""
        config = self.config
        file = str(located(config.file))
        rows = rows_of(read_text(file), file)
        header = rows[0].cells
        if config.step is not None and header in (INTERVALS, STATES):
            raise rows[0].fault("the file says its times itself: leave out 'step', which is for plain grids")
        if config.repeat is not None and header != INTERVALS:
            raise rows[0].fault("the file says where it ends: leave out 'repeat', which is for intervals")
        if header == INTERVALS:
            given = below_header(rows, "no interval follows the header: give one at least")
            return _intervals(given, config.repeat)
        if header == STATES:
            return _states(below_header(rows, "no row follows the header: give one at least"))
        if any(cell not in ("0", "1") for cell in header):
            known = " or ".join(repr(",".join(names)) for names in (INTERVALS, STATES))
            raise rows[0].fault(
                f"the first line is {quoted(','.join(header))}: write {known}, or zeros and ones"
            )
        if config.step is None:
            raise rows[0].fault(
                "a plain grid does not say how long a step is: give 'step', such as \"10 min\""
            )
        same_length(rows)
        return _grid([(row, "".join(row.cells)) for row in rows], ticks(config.step))


def _intervals(rows: Sequence[Row], repeat: float | None) -> Recording:
    by_client: dict[str, list[tuple[int, int, Row]]] = {}
    for row in rows:
        on_s, off_s = (row.number(place, INTERVALS[place], limits=INSTANTS) for place in (1, 2))
        if off_s <= on_s:
            raise row.fault(
                f"{row.cells[2]} s does not come after {row.cells[1]} s: write when the client leaves behind "
                "when it comes",
                "off_at_s",
            )
        on, off = int(on_s * TICKS_PER_S), int(off_s * TICKS_PER_S)
        if off <= on:
            raise row.fault(
                f"{row.cells[2]} s is not 1/{TICKS_PER_S} s or more after {row.cells[1]} s", "off_at_s"
            )
        by_client.setdefault(row.cells[0], []).append((on, off, row))
    last = max(off for intervals in by_client.values() for _, off, _ in intervals)
    length = last if repeat is None else ticks(repeat)
    intervals = []
    for name, given in by_client.items():
        given.sort(key=lambda interval: interval[:2])
        for (_, end, before), (start, _, row) in pairwise(given):
            if start < end:
                raise row.fault(
                    f"client {quoted(name)} is there already, since line {before.line}: join both", "on_at_s"
                )
        if given[-1][1] > length:
            raise given[-1][2].fault(f"it ends after repeat = {repeat:g} s: make 'repeat' longer", "off_at_s")
        intervals.append(np.array([interval[:2] for interval in given], np.int64))
    return intervals, length


def _states(rows: Sequence[Row]) -> Recording:
    step_s = rows[0].number(1, "step_s", positive=True, limits=INSTANTS)
    names = dict[str, Row]()
    for row in rows:
        if row.number(1, "step_s") != step_s:
            raise row.fault(
                f"{row.cells[1]} s, but line {rows[0].line} has {rows[0].cells[1]} s: use one", "step_s"
            )
        if (earlier := names.setdefault(row.cells[0], row)) is not row:
            raise row.fault(
                f"client {quoted(row.cells[0])} has its line already: line {earlier.line}", "client"
            )
    return _grid([(row, row.cells[2]) for row in rows], max(1, ticks(step_s)))


def _grid(lines: Sequence[tuple[Row, str]], step: int) -> Recording:
    """Return the recording of equally long texts of zeros and ones."""
    intervals = []
    first, steps = lines[0][0], len(lines[0][1])
    for row, states in lines:
        if not states or states.strip("01"):
            raise row.fault(f"{quoted(states)} is not made of zeros and ones alone")
        if len(states) != steps:
            raise row.fault(
                f"{len(states)} states, but line {first.line} has {steps}: make them equally many"
            )
        flags = np.frombuffer(f"0{states}0".encode(), np.uint8) == ord("1")
        edges = np.flatnonzero(flags[1:] != flags[:-1]).astype(np.int64)
        intervals.append(edges.reshape(-1, 2) * step)
    return intervals, steps * step


PLUGIN = AvailabilityTrace
