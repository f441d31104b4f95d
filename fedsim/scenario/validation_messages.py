"""From pydantic's errors to faults in plain words: the value, the rule it breaks, what to write instead."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from typing import Any

from pydantic import ValidationError

from fedsim import numerals, toml_writer
from fedsim.errors import Fault
from fedsim.quoting import MAX_SHOWN, shortened

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "bool": "true or false",
    "tuple": "a list in square brackets",
    "list": "a list in square brackets",
    "dict": "a table",
    "model": "a table",
    "mapping": "a table",
}

_LIMITS = {
    "greater_than": ("not above {gt}", "above {gt}"),
    "greater_than_equal": ("below {ge}", "of at least {ge}"),
    "less_than": ("not below {lt}", "below {lt}"),
    "less_than_equal": ("above {le}", "of at most {le}"),
    "multiple_of": ("no multiple of {multiple_of}", "that is a multiple of {multiple_of}"),
}


def faults_of(error: ValidationError, document: Mapping[str, Any]) -> list[Fault]:
    """Return a fault for each place that is wrong."""
    by_path: dict[str, tuple[list[str], list[str]]] = {}
    for line in error.errors():
        path = toml_writer.path(*_written(line["loc"], document, line["type"] == "missing"))
        problems, mends = by_path.setdefault(path, ([], []))
        problem, mend = _reworded(line)
        problems.append(problem)
        mends.append(mend)
    # Several faults of a place are the branches of a union, none of which fits.
    return [
        Fault(path, ", and ".join(dict.fromkeys(problems)), ", or ".join(dict.fromkeys(filter(None, mends))))
        for path, (problems, mends) in by_path.items()
    ]


def in_order(faults: Sequence[Fault], document: Mapping[str, Any]) -> list[Fault]:
    """Sort faults as their places follow each other in the file; what is not there comes after its table."""
    places = [f"{path}." for path in _paths(document, ())]

    def place(fault: Fault) -> int:
        above = [number for number, path in enumerate(places) if f"{fault.path}.".startswith(path)]
        return above[-1] if above else len(places)

    return sorted(faults, key=place)


def shown(item: Any) -> str:
    """Return a value as the file spells it, shortened."""
    if isinstance(item, date | time):
        return item.isoformat()
    try:
        text = toml_writer.value(item)
    except TypeError:
        text = repr(item)
    return shortened(text)


def _paths(item: Any, above: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(item, Mapping | list):
        for name, child in item.items() if isinstance(item, Mapping) else enumerate(item):
            yield toml_writer.path(*above, name)
            yield from _paths(child, (*above, name))


def _written(loc: Sequence[str | int], document: Any, missing: bool) -> list[str | int]:
    """Return the path without what pydantic adds to it, such as the branch of a union that it tried.

    What is missing may lie in a table that is left out itself, or that is given by its name alone.
    """
    path: list[str | int] = []
    item = document
    for name in loc:
        in_table = isinstance(item, Mapping) and name in item
        in_list = isinstance(item, list) and isinstance(name, int) and name < len(item)
        if in_table or in_list:
            item = item[name]
            path.append(name)
        elif missing and not isinstance(item, list):
            given = item.values() if isinstance(item, Mapping) else ()
            if name not in given:  # what is given is the value by which a union tells its branches apart
                item = {}
                path.append(name)
    return path


def _reworded(line: Any) -> tuple[str, str]:
    kind: str = line["type"]
    item, loc, context = line["input"], line["loc"], line.get("ctx", {})
    if kind == "missing" and loc == ("fleet",):
        return "it is missing, and a run needs clients", "add a table [[fleet]] with count = 10, say"
    if "problem" in context:
        # Said by fedsim itself, in plain words.
        return context["problem"], context.get("mend", "")
    if kind == "missing":
        return f"the list ends before its entry {loc[-1]}", f"give at least {loc[-1] + 1} entries"
    if kind in _LIMITS:
        broken, wanted = _LIMITS[kind]
        limit = {name: _limit(number) for name, number in context.items()}
        return f"{shown(item)} is {broken.format(**limit)}", f"write a number {wanted.format(**limit)}"
    if kind == "literal_error":
        names = context["expected"].replace(" or ", ", ")
        options = [name.strip("'") for name in names.split(", ")]
        near = difflib.get_close_matches(str(item), options, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        return f"{shown(item)} is not {context['expected']}", f"{guess}write {context['expected']}"
    if kind == "value_error":
        return shortened(context.get("error", line["msg"]), MAX_SHOWN), ""
    if kind == "too_short":
        problem = f"the list holds {context['actual_length']}, which is too few"
        return problem, f"give at least {context['min_length']}"
    if kind == "too_long":
        problem = f"the list holds {context['actual_length']}, which is too many"
        return problem, f"give at most {context['max_length']}"
    if kind == "string_too_short":
        return "the text is empty", "write something between the quotation marks, or leave the key out"
    if kind == "finite_number":
        return f"{shown(item)} is not finite", "write a finite number"
    wanted = _WANTED.get(kind.partition("_")[0], "")
    if wanted and kind.endswith(("_type", "_parsing", "_from_float", "_attributes_type")):
        return _wrong_type(item, wanted, loc)
    return f"{shown(item)}: {shortened(line['msg'], MAX_SHOWN).replace('Input should', 'it should')}", ""


def _limit(number: float) -> str:
    """Write the end of a range exactly, and as short as that can be done."""
    short = f"{number:g}"
    return short if isinstance(number, float) and float(short) == number else str(number)


def _wrong_type(item: Any, wanted: str, loc: Sequence[str | int]) -> tuple[str, str]:
    problem = f"{shown(item)} is {_word(item, wanted)}, {wanted} is wanted"
    if wanted == "a text" and isinstance(item, bool | int | float | date | time):
        return problem, f'write "{shown(item)}"'
    if wanted == "a table" and not isinstance(item, Mapping):
        header = f"[{shortened(toml_writer.path(*loc))}]"
        if loc and isinstance(loc[-1], int):  # an entry of a list of tables
            header = f"[[{shortened(toml_writer.path(*loc[:-1]))}]]"
        return problem, f"write {header} on a line of its own, and the keys below it"
    if wanted.startswith("a list") and isinstance(item, bool | int | float | str):
        return problem, f"write [{shown(item)}]"
    number = _number(item)
    if number is not None and wanted == "a number":
        return problem, f"write {shown(number)}"
    if number is not None and wanted == "a whole number":
        return problem, f"write {round(number)}"
    return problem, f"write {'true or false' if wanted == 'true or false' else wanted}"


def _word(item: Any, wanted: str) -> str:
    if isinstance(item, float) and wanted == "a whole number":
        # 3.5 where 3 is wanted: both are numbers, so say how they differ.
        return "not whole" if math.isfinite(item) else "not finite"
    words: tuple[tuple[Any, str], ...] = (
        (bool, "a truth value"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a text"),
        (Mapping, "a table"),
        ((list, tuple), "a list"),
        ((date, time), "a date or time"),
        (type(None), "no value"),
    )
    return next((word for kind, word in words if isinstance(item, kind)), "something else")


def _number(item: Any) -> float | None:
    if isinstance(item, bool):
        return None
    value = numerals.number(item) if isinstance(item, str) else item
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float) else None
