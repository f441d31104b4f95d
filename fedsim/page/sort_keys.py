"""By what the columns of a table are sorted: the numbers that their cells show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedsim.report.number_format import COUNT_PREFIXES, NOTHING
from fedsim.studies.comparison import BEST
from fedsim.units import shown_units

_UNITS = {"": 1.0, "%": 1.0, **shown_units("time"), **shown_units("data size"), **COUNT_PREFIXES}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s*([^\d\s+-]+))?")
_FRACTION = re.compile(r"1/(\d+(?:\.\d+)?)")
_OF = re.compile(r"(\d+) of \d+")


def sort_keys(cells: Sequence[str]) -> list[float | None] | None:
    """Return the numbers of a column's cells, None for one without; or None where cells are words.

    Cells are read as :mod:`fedsim.report.number_format` writes them: of ``"1 min 3 s ± 2 s*"`` it is 63.
    """
    keys = [None if cell == NOTHING or not cell else _number(cell) for cell in cells]
    is_said = any(key is None and cell not in (NOTHING, "") for key, cell in zip(keys, cells, strict=True))
    return None if is_said or all(key is None for key in keys) else keys


def _number(cell: str) -> float | None:
    shown = cell.removesuffix(BEST).partition(" ±")[0].partition(" (")[0].strip()
    if fraction := _FRACTION.fullmatch(shown):
        return 1 / float(fraction[1])
    if share := _OF.fullmatch(shown):
        return float(share[1])
    total, at = 0.0, 0
    while part := _PART.match(shown, at):
        unit = part[2] or ""
        if unit not in _UNITS:
            return None
        total += float(part[1]) * _UNITS[unit]
        at = part.end()
    # A minus before the first of two units is meant for both, as in "-1 min 3 s".
    negative = shown.startswith("-") and len(shown.split()) > 2
    if negative and (first := _PART.match(shown)):
        rest = total - float(first[1]) * _UNITS[first[2] or ""]
        total -= 2 * rest
    return total if shown and at == len(shown) else None
