"""Numbers as text: three digits and a unit."""

from __future__ import annotations

from fedsim.units import format_quantity

NOTHING = "-"
"""Shown for missing values."""

COUNT_PREFIXES = {prefix: 1000.0**power for power, prefix in enumerate("kMGTP", start=1)}
"""Prefixes of large counts, ascending."""


def size(num_bytes: float | None) -> str:
    """Return a data size, ``"1.23 MB"``."""
    return NOTHING if num_bytes is None else format_quantity(num_bytes, "data size")


def energy(joules: float | None) -> str:
    """Return an energy, ``"1.23 kJ"``."""
    return NOTHING if joules is None else format_quantity(joules, "energy")


def mass(grams: float | None) -> str:
    """Return a mass, ``"1.23 kg"``."""
    return NOTHING if grams is None else format_quantity(grams, "mass")


def duration(seconds: float | None) -> str:
    """Return a time in at most two units, ``"12 min 3 s"``; below a minute in one, ``"1.5 s"``."""
    if seconds is None:
        return NOTHING
    if seconds < 59.95:
        return format_quantity(seconds, "time")
    whole = round(seconds)
    units = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
    unit, length, smaller, part = next(row for row in units if whole >= row[1])
    rest = whole % length // part
    return f"{whole // length} {unit}" + (f" {rest} {smaller}" if rest else "")


def count(number: float | None) -> str:
    """Return a count, exact below 10,000 and with three digits above: ``"9999"``, ``"1.23 M"``."""
    if number is None:
        return NOTHING
    if number < 10_000:
        return f"{number:.0f}" if float(number).is_integer() else f"{number:.1f}"
    shown = float(f"{number:.3g}")
    prefix, factor = next(row for row in reversed(COUNT_PREFIXES.items()) if shown >= row[1])
    return f"{shown / factor:g} {prefix}"


def percent(share: float | None, spread: float | None = None) -> str:
    """Return a share in per cent without the sign, with its spread if there is one: ``"93.4 ± 2.1"``."""
    if share is None:
        return NOTHING
    return f"{100 * share:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


def number(value: float | None, spread: float | None = None) -> str:
    """Return a number in three digits, with its spread if there is one: ``"0.0123 ± 0.004"``."""
    if value is None:
        return NOTHING
    return f"{value:.3g}" + ("" if spread is None else f" ± {spread:.2g}")


def fraction(value: float, largest: float) -> str:
    """Return a value as a part of the largest one: ``"1"``, ``"1/1.5"``, ``"1/5200"``, or ``"0"``."""
    if not value:
        return "0"
    ratio = largest / value
    digits = f"{ratio:.1f}".removesuffix(".0") if ratio < 9.95 else f"{float(f'{ratio:.2g}'):.0f}"
    return digits if digits == "1" else f"1/{digits}"


def time_left(passed_s: float, share: float | None) -> str:
    """Return the real time that is left, ``"about 23 s left"``; empty if unknown."""
    if share is None or not 0 < share < 1:
        return ""
    return f"about {duration(max(1, round(passed_s / share - passed_s)))} left"


def several(number: int, noun: str) -> str:
    """Return a number with a noun: ``"1 round"``, ``"2 rounds"``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
