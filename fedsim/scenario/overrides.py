"""``--set PATH=VALUE``: a path as in the file (``fleet.0.count``); a value as in TOML, or a bare string."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from fedsim.errors import Fault
from fedsim.numerals import whole
from fedsim.quoting import quoted, shortened
from fedsim.scenario import toml

EXAMPLE = "write --set PATH=VALUE, such as --set training.lr=0.1"

SPELLING = (
    "write keys with one dot between them; entries of a list are numbered from 0, as in fleet.0.count, "
    "and a key with other characters than letters, digits, '-' and '_' stands in quotation marks"
)


@dataclass(frozen=True, slots=True)
class Override:
    """One value to be put into a scenario.

    Attributes:
        keys: The path, key by key; a number is a place in a list, from 0.
        value: What to put there.
    """

    keys: tuple[str, ...]
    value: Any

    @property
    def path(self) -> str:
        """The path as text."""
        return toml.path(*self.keys)


def parse(text: str) -> Override | Fault:
    """Read one ``PATH=VALUE``."""
    left, equals, right = text.partition("=")
    if not equals:
        return Fault("", f"--set {quoted(text)} has no '='", EXAMPLE)
    left = left.strip()
    if not left:
        return Fault("", f"--set {quoted(text)} names no path before '='", EXAMPLE)
    keys = _keys(left)
    if not keys:
        return Fault("", f"--set {quoted(text)}: the path {quoted(left)} is malformed", SPELLING)
    return Override(keys, _value(right.strip()))


def apply(document: dict[str, Any], override: Override) -> Fault | None:
    """Put a value into a document, in place; tables that are not there are made."""
    place: Any = document
    path = shortened(override.path)
    for depth, name in enumerate(override.keys):
        here, above = toml.path(*override.keys[: depth + 1]), shortened(toml.path(*override.keys[:depth]))
        index: Any = name
        if isinstance(place, list):
            index = whole(name)
            if index is None or not 0 <= index < len(place):
                return Fault(
                    here,
                    f"--set {path}: {above} is a list of {len(place)}, and has no entry {quoted(name)}",
                    f"entries are numbered 0 to {len(place) - 1}" if place else "the file must give an entry",
                )
        elif not isinstance(place, dict):
            return Fault(
                here,
                f"--set {path}: {above} is {shortened(toml.value(place))}, no table that could hold "
                f"{quoted(name)}",
                f"set {above} itself",
            )
        if depth == len(override.keys) - 1:
            place[index] = override.value
            return None
        if isinstance(place, dict):
            place.setdefault(index, {})
            if override.keys[depth + 1] in {"name", "params"} and isinstance(place[index], str):
                # The short form of a choice: selector = "uniform" is selector = { name = "uniform" }.
                place[index] = {"name": place[index]}
        place = place[index]
    return None


def _keys(text: str) -> tuple[str, ...]:
    try:
        # A line break would make it a document instead of a key.
        table: Any = tomllib.loads(f"{text} = 0") if "\n" not in text else {}
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while isinstance(table, dict):
        if len(table) != 1:
            return ()
        [(name, table)] = table.items()
        keys.append(name)
    return tuple(keys)


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except ValueError:
        return text
    value = table["value"]
    # More than one key: the text had a line break. No scenario holds a date, so that was meant as text.
    return text if len(table) > 1 or isinstance(value, date | time) else value
