"""Values of options, read from their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from fedsim import numerals, ranges
from fedsim.errors import UserError
from fedsim.quoting import quoted
from fedsim.units import parse

T = TypeVar("T")

MIN_PORT, MAX_PORT = 1024, 65535
"""The range of unprivileged ports."""


def whole_number(text: str, kind: str) -> int:
    """Read a whole number in ASCII digits."""
    least, most = ranges.ends(getattr(ranges, kind))
    number = numerals.parse_whole(text.strip())
    if number is None:
        raise UserError(f"{quoted(text)} is not a whole number: write one from {least} to {most}")
    if not least <= number <= most:
        end = f"below {least}" if number < least else f"above {most}"
        raise UserError(f"{quoted(text)} is {end}: write a whole number from {least} to {most}")
    return number


def seconds(text: str) -> float:
    """Read a time with its unit, s."""
    return parse(text, "time")


def port(text: str) -> int:
    """Read a port of this machine; 0 lets the system choose one."""
    number = numerals.parse_whole(text.strip())
    if number is None or not (number == 0 or MIN_PORT <= number <= MAX_PORT):
        raise UserError(
            f"{quoted(text)} is no port: write one from {MIN_PORT} to {MAX_PORT}, or leave it out and the "
            "system chooses one; the option then stands behind all arguments"
        )
    return number


def algorithms(text: str) -> list[str]:
    """Read names of algorithms, separated by commas."""
    return _listed(text, str, "name at least one algorithm, such as fedavg,local")


def seeds(text: str) -> list[int]:
    """Read seeds, separated by commas."""
    lacking = f"{quoted(text)} must hold at least one seed, such as 0,1,2"
    return _listed(text, partial(whole_number, kind="Seed"), lacking)


def seed_range(text: str) -> range:
    """Read the first and the last of some seeds, with a dash between them; or one seed."""
    first, dash, last = text.partition("-")
    ends = whole_number(first, "Seed"), whole_number(last if dash else first, "Seed")
    if ends[0] > ends[1]:
        raise UserError(
            f"{quoted(text)} ends before it begins: write the first seed, then the last, as in 0-99"
        )
    return range(ends[0], ends[1] + 1)


def rounds(text: str) -> tuple[int, int]:
    """Read the first and the last of some rounds, with a colon between them; or one round."""
    first, colon, last = text.partition(":")
    ends = whole_number(first, "Rounds"), whole_number(last if colon else first, "Rounds")
    if ends[0] > ends[1]:
        raise UserError(
            f"{quoted(text)} ends before it begins: write the first round, then the last, as in 20:40"
        )
    return ends


def targets(texts: Sequence[str]) -> tuple[float, ...]:
    """Read accuracies to be reached, one from each text."""
    return tuple(_each_once([_accuracy(text) for text in texts]))


def trackers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check that there are trackers of these names."""
    from fedsim.scenario.load import load_tracker  # takes long to import

    for name in names:
        load_tracker(name)
    return names


def _accuracy(text: str) -> float:
    share = numerals.number(text.strip())
    if share is None or not 0 < share <= 1:
        raise UserError(f"{quoted(text)} is no accuracy: write a number above 0, at most 1, such as 0.8")
    return share


def _listed(text: str, read: Callable[[str], T], lacking: str) -> list[T]:
    values = [read(item) for part in text.split(",") if (item := part.strip())]
    if not values:
        raise UserError(lacking)
    return _each_once(values)


def _each_once(values: list[T]) -> list[T]:
    if twice := [value for value in values if values.count(value) > 1]:
        raise UserError(f"{quoted(twice[0])} is named twice: name each once")
    return values
