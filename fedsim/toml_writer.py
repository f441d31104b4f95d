"""Writing TOML: just what a scenario holds, in a form that people like to read.

Tables become ``[headers]``, lists of tables ``[[headers]]``; a table of plain values inside another one stays
on its line. Reading is the standard library's business.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key(name: str) -> str:
    """Return a key as TOML wants it, in quotation marks where it must be."""
    return name if _BARE.fullmatch(name) else _string(name)


def path(*names: str | int) -> str:
    """Return a path such as ``fleet.0.count``, as overrides have it."""
    return ".".join(key(str(name)) for name in names)


def value(item: Any) -> str:
    """Return one value on one line; a table in braces."""
    match item:
        case bool():
            return "true" if item else "false"
        case int():
            return str(item)
        case float():
            # repr is exact, and TOML's spelling except for "1e-05", which TOML takes as well.
            return repr(item) if math.isfinite(item) else str(item)
        case str():
            return _string(item)
        case list() | tuple():
            return f"[{', '.join(map(value, item))}]"
        case Mapping():
            inside = ", ".join(f"{key(name)} = {value(child)}" for name, child in item.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML cannot hold a {type(item).__name__}")


def document(tables: Mapping[str, Any]) -> str:
    """Return a whole document, which :func:`tomllib.loads` reads back to an equal one.

    Tables beside each other keep their order, as scenarios with several models need.
    """
    return "\n".join(_table(tables, ())).strip("\n") + "\n"


def _table(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    later = _with_headers(table, above)
    for name, child in table.items():
        if name not in later:
            yield f"{key(name)} = {value(child)}"
    for name, child in later.items():
        here = (*above, name)
        if isinstance(child, Mapping):
            # A header with nothing but headers below it says nothing.
            if not child or len(_with_headers(child, here)) < len(child):
                yield f"\n[{path(*here)}]"
            yield from _table(child, here)
        else:
            for entry in child:
                yield f"\n[[{path(*here)}]]"
                yield from _table(entry, here)


def _with_headers(table: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    """Return what is written last, with a header: any table behind one too, so that it keeps its place."""
    later: dict[str, Any] = {}
    for name, child in table.items():
        if _has_header(child, above) or (later and isinstance(child, Mapping)):
            later[name] = child
    return later


def _has_header(child: Any, above: tuple[str, ...]) -> bool:
    if isinstance(child, Mapping):
        return not above or any(isinstance(inner, Mapping) for inner in child.values())
    return (
        not above and isinstance(child, list) and bool(child) and all(isinstance(e, Mapping) for e in child)
    )


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
