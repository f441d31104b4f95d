"""Capacity over time: constant between steps, and the same again in every lap.

Instants are whole nanoseconds, so a step happens at exactly the instant that :meth:`Capacity.next_change_ns`
gives. Files are Mahimahi's (one line for each packet that may pass) or CSV (one line for each step); in both,
lines that begin with ``#`` are comments.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from fedsim.errors import DataError, UnitError
from fedsim.numerals import whole
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.units import parse, range_of, span

PACKET_BITS = 1500 * 8
"""What one line of a Mahimahi file lets pass."""

MOST_BINS = 10**6
"""Bins of a Mahimahi file's lap, at most: 28 hours of 100 ms."""

LEAST_STEP_NS = 1_000_000
"""The shortest step, 1 ms. Each is an event while something moves: with shorter ones a run would not end."""

_STEP_RULE = "each step is at least 1 ms long, so join what is shorter into steps of its mean rate"
_RATES = range_of("bit rate")
_CSV_TIMES = ("s", "ms", "us", "ns", "min", "h")
_CSV_RATES = ("bps", "kbps", "Mbps", "Gbps")


class Capacity:
    """A capacity that steps, and repeats itself after a period.

    Args:
        starts_ns: Where each step begins, from 0; a step is at least :data:`LEAST_STEP_NS` long.
        rates_bps: The capacity during each step, bit/s, in the range of bit rates; at least one is above 0.
        period_ns: Length of a lap, at which the last step ends.

    Raises:
        DataError: Any of this does not hold.
    """

    def __init__(self, starts_ns: Sequence[int], rates_bps: Sequence[float], period_ns: int) -> None:
        if len(starts_ns) != len(rates_bps) or not starts_ns:
            raise DataError(
                f"{len(starts_ns)} starts and {len(rates_bps)} rates: a capacity has at least one step, "
                "and a rate for each"
            )
        for before, after in pairwise([*starts_ns, period_ns]):
            if after - before < LEAST_STEP_NS:
                raise DataError(f"a step lasts from {before} ns to {after} ns: {_STEP_RULE}")
        if starts_ns[0] != 0:
            raise DataError(f"the first step begins at {starts_ns[0]} ns: it must begin at 0")
        for rate_bps in rates_bps:
            if not _RATES.holds(rate_bps, positive=False):
                raise DataError(f"a rate of {quoted(rate_bps)} bit/s: it must be {span('bit rate')}")
        if not any(rates_bps):
            raise DataError("the capacity is never above 0, so nothing would ever arrive")
        # Steps that change nothing would only be events for nothing.
        steps = range(len(rates_bps))
        kept = [step for step in steps if step == 0 or rates_bps[step] != rates_bps[step - 1]]
        self.period_ns = int(period_ns)
        self._starts_ns = [int(starts_ns[step]) for step in kept]
        self._rates_bps = [float(rates_bps[step]) for step in kept]
        self._ends_ns = [*self._starts_ns[1:], self.period_ns]
        self._passed_bytes = [0.0]  # by the start of each step, and by the end of the lap
        for start_ns, end_ns, rate_bps in zip(self._starts_ns, self._ends_ns, self._rates_bps, strict=True):
            self._passed_bytes.append(self._passed_bytes[-1] + rate_bps * (end_ns - start_ns) / 8e9)

    @property
    def lap_bytes(self) -> float:
        """Bytes that can pass in one lap."""
        return self._passed_bytes[-1]

    @property
    def mean_bps(self) -> float:
        """Mean over a lap, bit/s."""
        return 8e9 * self.lap_bytes / self.period_ns

    def rate_at(self, at_ns: int) -> float:
        """Return the capacity from an instant on, bit/s."""
        return self._rates_bps[bisect_right(self._starts_ns, at_ns % self.period_ns) - 1]

    def next_change_ns(self, at_ns: int) -> int | None:
        """Return the first instant after ``at_ns`` at which the capacity steps; ``None``: it is constant."""
        if len(self._rates_bps) == 1:
            return None
        lap_ns = at_ns - at_ns % self.period_ns
        return lap_ns + self._ends_ns[bisect_right(self._starts_ns, at_ns - lap_ns) - 1]

    def bytes_between(self, from_ns: int, to_ns: int) -> float:
        """Return the bytes that can pass from an instant to another, which is not before it.

        It is a sum over the steps between them, not a difference of two sums: as exact for a nanosecond after
        years as for the first one, and never negative.
        """
        laps, rest_ns = divmod(to_ns - from_ns, self.period_ns)
        parts = [laps * self.lap_bytes]
        inside_ns = from_ns % self.period_ns
        step = bisect_right(self._starts_ns, inside_ns) - 1
        while rest_ns:
            lasts_ns = min(rest_ns, self._ends_ns[step] - inside_ns)
            parts.append(self._rates_bps[step] * lasts_ns / 8e9)
            rest_ns -= lasts_ns
            step = (step + 1) % len(self._ends_ns)
            inside_ns = self._starts_ns[step]
        return math.fsum(parts)

    def end_ns(self, start_ns: int, num_bytes: float) -> int:
        """Return when the last of so many bytes has passed, rounded up, if nothing else is on the link."""
        if num_bytes <= 0:
            return start_ns
        lap_ns = start_ns - start_ns % self.period_ns
        # From the start of this lap, so that a late start costs no digits.
        laps, rest = divmod(self.bytes_between(lap_ns, start_ns) + num_bytes, self.lap_bytes)
        if rest == 0:
            laps, rest = laps - 1, self.lap_bytes
        step = bisect_left(self._passed_bytes, rest) - 1
        inside_ns = (rest - self._passed_bytes[step]) * 8e9 / self._rates_bps[step]
        # What lies a thousandth of a nanosecond above a whole one is rounding error.
        return lap_ns + int(laps) * self.period_ns + self._starts_ns[step] + math.ceil(inside_ns - 1e-3)


def read_capacity(path: Path, bin_ms: int = 100) -> Capacity:
    """Read a file: CSV where its name ends so, else Mahimahi's format.

    Raises:
        DataError: The file cannot be read; the message names file and line.
    """
    return read_csv(path) if path.suffix.lower() == ".csv" else read_mahimahi(path, bin_ms)


def read_mahimahi(path: Path, bin_ms: int = 100) -> Capacity:
    """Read a Mahimahi file: each line is the millisecond at which one packet of 1500 bytes may pass.

    Lines do not decrease; the last is the length of a lap. Packets are counted over bins, the last of which
    may be shorter, so that every lap passes exactly what the file lets pass.

    Args:
        path: The file.
        bin_ms: Length of a bin.

    Raises:
        DataError: The file cannot be read; the message names file and line.
        ValueError: A bin shorter than a millisecond.
    """
    if bin_ms < 1:
        raise ValueError(f"bin_ms = {bin_ms}: a bin is at least a millisecond long")
    counts: dict[int, int] = {}
    last_ms, longest_ms = 0, MOST_BINS * bin_ms
    for number, line in _lines(path):
        at_ms = whole(line)
        if at_ms is None or at_ms < 0:
            raise DataError(
                f"{path}:{number}: {quoted(line)} is not a whole number of milliseconds, 0 or more"
            )
        if at_ms > longest_ms:
            raise DataError(
                f"{path}:{number}: {shortened(line)} ms are more than {MOST_BINS} bins of {bin_ms} ms: "
                "times count from the start of the lap, so subtract the first one from all"
            )
        if at_ms < last_ms:
            raise DataError(f"{path}:{number}: {at_ms} comes after {last_ms}: the instants must not decrease")
        # A packet at the end of a bin belongs to it, as the last one belongs to this lap and not to the next.
        step = max(0, -(-at_ms // bin_ms) - 1)
        counts[step] = counts.get(step, 0) + 1
        last_ms, last_number = at_ms, number
    if last_ms == 0:
        raise DataError(f"{path}:{last_number}: the last line is the length of a lap and must be above 0")
    starts_ms = range(0, last_ms, bin_ms)
    rates_bps = [
        counts.get(step, 0) * PACKET_BITS * 1000 / (min(start_ms + bin_ms, last_ms) - start_ms)
        for step, start_ms in enumerate(starts_ms)
    ]
    return Capacity([start_ms * 1_000_000 for start_ms in starts_ms], rates_bps, last_ms * 1_000_000)


def read_csv(path: Path) -> Capacity:
    """Read a CSV file: when each step begins, and its rate.

    The header names the units: ``at_s,bps``, ``at_ms,kbps`` and so on. The first step begins at 0. The last
    one holds for as long as the one before it, and then the file starts again; a single line is constant.
    Each step is at least 1 ms long.

    Raises:
        DataError: The file cannot be read; the message names file and line.
    """
    lines = _lines(path)
    number, header = next(lines)
    columns = [column.strip() for column in header.split(",")]
    times, rates = [f"at_{unit}" for unit in _CSV_TIMES], list(_CSV_RATES)
    if len(columns) != 2 or columns[0] not in times or columns[1] not in rates:
        raise DataError(
            f"{path}:{number}: {quoted(header)} is no header of a capacity: write a time and a rate, "
            f"such as 'at_s,bps' (times: {', '.join(times)}; rates: {', '.join(rates)})"
        )
    starts_ns, rates_bps = list[int](), list[float]()
    for number, line in lines:
        cells = line.split(",")
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: {quoted(line)} has {len(cells)} columns, the header 2")
        try:
            at_s = parse(f"{cells[0].strip()} {columns[0].removeprefix('at_')}", "time")
        except UnitError as error:
            raise DataError(f"{path}:{number}: {error} (times count from the start of the lap)") from error
        try:
            rate_bps = parse(f"{cells[1].strip()} {columns[1]}", "bit rate")
        except UnitError as error:
            raise DataError(f"{path}:{number}: {error}") from error
        at_ns = round(at_s * 1e9)
        if not starts_ns and at_ns != 0:
            raise DataError(f"{path}:{number}: {quoted(line)} is the first step: it must begin at 0")
        if starts_ns and at_ns - starts_ns[-1] < LEAST_STEP_NS:
            raise DataError(
                f"{path}:{number}: {quoted(line)} begins at {at_ns} ns, the step before it at "
                f"{starts_ns[-1]} ns: "
                f"{_STEP_RULE}"
            )
        starts_ns.append(at_ns)
        rates_bps.append(rate_bps)
    if not starts_ns:
        raise DataError(f"{path}:{number}: there is a header and no line below it")
    last_ns = starts_ns[-1] - starts_ns[-2] if len(starts_ns) > 1 else LEAST_STEP_NS
    try:
        return Capacity(starts_ns, rates_bps, starts_ns[-1] + last_ns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor a comment, which begins with ``#``, with their numbers.

    Raises:
        DataError: No such file, not text, or no such line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a text file") from error
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{shortened(path, MOST_SAID)}: cannot be read: {reason}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise DataError(f"{path}: is empty")
    yield from lines
