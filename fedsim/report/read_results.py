"""Files of results: reading those that may be damaged, or gone, and the form of JSON."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fedsim.errors import OutputError
from fedsim.quoting import MAX_SHOWN, shortened

T = TypeVar("T")


def read_checked(file: Path, how: Callable[[Path], T]) -> T:
    """Read a file of results; errors become an OutputError."""
    try:
        return how(file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = shortened(_said(error, file), MAX_SHOWN)
        raise OutputError(f"{file} cannot be read, so these results are not whole: {problem}") from error


def read_object(file: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """Read a file of results that is a JSON object."""

    def read(file: Path) -> dict[str, Any]:
        value = json.loads(file.read_text("utf-8"))
        if not isinstance(value, dict):
            raise TypeError("it is no JSON object")
        for key in needed:
            value[key]
        return value

    return read_checked(file, read)


def _said(error: Exception, file: Path) -> str:
    """Return the message of an error without the file, which many repeat."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if not isinstance(error, FileNotFoundError) and getattr(error, "errno", None) is None:
        return str(error)
    words = os.strerror(getattr(error, "errno", None) or errno.ENOENT)  # Arrow's may be without a number
    where = getattr(error, "filename", None)
    return words if where is None or str(where) == str(file) else f"{where}: {words}"


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return the content of ``run.json``."""
    return read_object(folder / "run.json", ("fedsim", "bus"))


def read_scenario(folder: Path) -> dict[str, Any]:
    """Return the tables of a run's scenario."""
    return read_checked(folder / "scenario.toml", lambda file: tomllib.loads(file.read_text("utf-8")))


def to_json(value: Any) -> bytes:
    """Return a JSON document, indented."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
