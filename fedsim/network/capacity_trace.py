"""Capacity over time: constant between steps, and the same again in every lap.

Instants are whole nanoseconds, so a step happens at exactly the instant that :meth:`Capacity.next_change_ns`
gives. Files are Mahimahi's (one line for each packet that may pass) or CSV (one line for each step); in both,
lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from itertools import pairwise

from fedsim.csv_rows import Row, below_header, read_text, rows_of
from fedsim.errors import DataError, UnitError
from fedsim.input_paths import located
from fedsim.numerals import parse_whole
from fedsim.quoting import quoted, shortened
from fedsim.units import Dimension, parse, range_of, span

PACKET_BITS = 1500 * 8
"""Bits of a line of a Mahimahi file."""

BIN_MS = 100
"""Length of a bin in which the packets of a Mahimahi file are counted."""

MAX_BINS = 10**6
"""Bins of a Mahimahi file's lap: 28 hours."""

MIN_STEP_NS = 1_000_000
"""The shortest step, 1 ms. Each is an event while something moves: with shorter ones a run would not end."""

_STEP_RULE = "each step is at least 1 ms long, so join what is shorter into steps of its mean rate"
_RATES = range_of("bit rate")
_CSV_TIMES = [f"at_{unit}" for unit in ("s", "ms", "us", "ns", "min", "h")]
_CSV_RATES = ("bps", "kbps", "Mbps", "Gbps")


class Capacity:
    """A capacity that steps, and repeats itself after a period.

    Attributes:
        period_ns: Length of a lap.
        lap_bytes: Bytes that can pass in one lap.
    """

    def __init__(self, starts_ns: Sequence[int], rates_bps: Sequence[float], period_ns: int) -> None:
        for before, after in pairwise([*starts_ns, period_ns]):
            if after - before < MIN_STEP_NS:
                raise DataError(f"a step lasts from {before} ns to {after} ns: {_STEP_RULE}")
        for rate_bps in rates_bps:
            if not _RATES.holds(rate_bps, positive=False):
                raise DataError(f"a rate of {quoted(rate_bps)} bit/s: it must be {span('bit rate')}")
        if not any(rates_bps):
            raise DataError("the capacity is never above 0, so nothing would ever arrive")
        # Steps that change nothing would only be events for nothing.
        steps = range(len(rates_bps))
        kept = [step for step in steps if step == 0 or rates_bps[step] != rates_bps[step - 1]]
        self.period_ns = period_ns
        self._ahead_ns = 0
        self._starts_ns = [starts_ns[step] for step in kept]
        self._rates_bps = [float(rates_bps[step]) for step in kept]
        self._ends_ns = [*self._starts_ns[1:], period_ns]
        self.lap_bytes = 0.0
        for start_ns, end_ns, rate_bps in zip(self._starts_ns, self._ends_ns, self._rates_bps, strict=True):
            self.lap_bytes += rate_bps * (end_ns - start_ns) / 8e9

    def ahead(self, by_ns: int) -> Capacity:
        """Return this capacity as it is ``by_ns`` later; both share their steps."""
        shifted = copy(self)
        shifted._ahead_ns = self._ahead_ns + by_ns
        return shifted

    @property
    def mean_bps(self) -> float:
        """Mean over a lap, bit/s."""
        return 8e9 * self.lap_bytes / self.period_ns

    def rate_at(self, at_ns: int) -> float:
        """Return the capacity from an instant on, bit/s."""
        return self._rates_bps[bisect_right(self._starts_ns, (at_ns + self._ahead_ns) % self.period_ns) - 1]

    def next_change_ns(self, at_ns: int) -> int | None:
        """Return the first instant after ``at_ns`` at which the capacity steps; ``None``: it is constant."""
        if len(self._rates_bps) == 1:
            return None
        inside_ns = (at_ns + self._ahead_ns) % self.period_ns
        return at_ns - inside_ns + self._ends_ns[bisect_right(self._starts_ns, inside_ns) - 1]

    def bytes_between(self, from_ns: int, to_ns: int) -> float:
        """Return the bytes that can pass between two instants.

        It is a sum over steps, not a difference of two sums: exact after years, and never negative.
        """
        laps, rest_ns = divmod(to_ns - from_ns, self.period_ns)
        parts = [laps * self.lap_bytes]
        inside_ns = (from_ns + self._ahead_ns) % self.period_ns
        step = bisect_right(self._starts_ns, inside_ns) - 1
        while rest_ns:
            lasts_ns = min(rest_ns, self._ends_ns[step] - inside_ns)
            parts.append(self._rates_bps[step] * lasts_ns / 8e9)
            rest_ns -= lasts_ns
            step = (step + 1) % len(self._ends_ns)
            inside_ns = self._starts_ns[step]
        return math.fsum(parts)


def read_capacity(file: str) -> Capacity:
    """Read a file: CSV where its name ends so, else Mahimahi's format."""
    path = located(file)
    rows = rows_of(read_text(str(path)), str(path))
    return _csv(rows) if path.suffix.lower() == ".csv" else _mahimahi(rows)


def _mahimahi(rows: Sequence[Row]) -> Capacity:
    """Return the capacity of a Mahimahi file: a line is the millisecond at which 1500 bytes may pass.

    Lines do not decrease; the last is the length of a lap. Packets are counted over bins, the last of which
    may be shorter, so that every lap passes exactly what the file lets pass.
    """
    counts: dict[int, int] = {}
    last_ms = 0
    for row in rows:
        line = ",".join(row.cells)
        at_ms = parse_whole(line)
        if at_ms is None or at_ms < 0:
            raise row.fault(f"{quoted(line)} is not a whole number of milliseconds, 0 or more")
        if at_ms > MAX_BINS * BIN_MS:
            raise row.fault(
                f"{shortened(line)} ms are more than {MAX_BINS} bins of {BIN_MS} ms: "
                "times count from the start of the lap, so subtract the first one from all"
            )
        if at_ms < last_ms:
            raise row.fault(f"{at_ms} comes after {last_ms}: the instants must not decrease")
        # A packet at the end of a bin belongs to it, as the last one belongs to this lap and not to the next.
        step = max(0, -(-at_ms // BIN_MS) - 1)
        counts[step] = counts.get(step, 0) + 1
        last_ms = at_ms
    if last_ms == 0:
        raise rows[-1].fault("the last line is the length of a lap and must be above 0")
    starts_ms = range(0, last_ms, BIN_MS)
    rates_bps = [
        counts.get(step, 0) * PACKET_BITS * 1000 / (min(start_ms + BIN_MS, last_ms) - start_ms)
        for step, start_ms in enumerate(starts_ms)
    ]
    return Capacity([start_ms * 1_000_000 for start_ms in starts_ms], rates_bps, last_ms * 1_000_000)


def _csv(rows: Sequence[Row]) -> Capacity:
    """Return the capacity of a CSV file: when each step begins, and its rate.

    The header names the units: ``at_s,bps``, ``at_ms,kbps`` and so on. The first step begins at 0. The last
    one holds for as long as the one before it, and then the file starts again; a single line is constant.
    Each step is at least 1 ms long.
    """
    header = rows[0].cells
    if len(header) != 2 or header[0] not in _CSV_TIMES or header[1] not in _CSV_RATES:
        raise rows[0].fault(
            f"{quoted(','.join(header))} is no header of a capacity: write a time and a rate, such as "
            f"'at_s,bps' (times: {', '.join(_CSV_TIMES)}; rates: {', '.join(_CSV_RATES)})"
        )
    starts_ns, rates_bps = list[int](), list[float]()
    for row in below_header(rows, "no step follows the header: give one at least"):
        at_ns = round(_quantity(row, 0, header[0].removeprefix("at_"), "time") * 1e9)
        if not starts_ns and at_ns != 0:
            raise row.fault(f"the first step begins at {at_ns} ns: it must begin at 0")
        if starts_ns and at_ns - starts_ns[-1] < MIN_STEP_NS:
            raise row.fault(
                f"it begins at {at_ns} ns, the step before it at {starts_ns[-1]} ns: {_STEP_RULE}"
            )
        starts_ns.append(at_ns)
        rates_bps.append(_quantity(row, 1, header[1], "bit rate"))
    last_ns = starts_ns[-1] - starts_ns[-2] if len(starts_ns) > 1 else MIN_STEP_NS
    try:
        return Capacity(starts_ns, rates_bps, starts_ns[-1] + last_ns)
    except DataError as error:
        raise DataError(f"{rows[0].source}: {error}") from error


def _quantity(row: Row, place: int, unit: str, dimension: Dimension) -> float:
    try:
        return parse(f"{row.cells[place]} {unit}", dimension)
    except UnitError as error:
        hint = " (times count from the start of the lap)" if dimension == "time" else ""
        raise row.fault(f"{error}{hint}") from error
