"""Paths of the files that scenarios and studies name: one rule for relative ones.

A relative path is looked for in the folder of the scenario's file, in the working folder, and in the folder
that ``FEDSIM_DATA`` names. The first that has it is taken. For files of data sets ``data.root`` stands in for
``FEDSIM_DATA``.

Loading a scenario turns ``WRITTEN`` into ``FOLDER/./WRITTEN``, an absolute path, so that the run can be
repeated from elsewhere. A machine without that file looks for the part after ``/./`` by the same rule.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedsim.errors import DataError
from fedsim.quoting import MAX_SHOWN, shortened

VARIABLE = "FEDSIM_DATA"

MARK = "/./"
"""Stands between the folder and what was written."""

_SCENARIO: ContextVar[tuple[tuple[Path, ...], str | None]] = ContextVar("scenario", default=((), None))
"""Folders of the scenario that is being loaded, and its ``data.root``."""


@contextmanager
def looking_in(folders: Sequence[Path], root: str | None = None) -> Iterator[None]:
    """Look for relative paths first in ``folders``, and for files of data sets in ``root``, in this block."""
    token = _SCENARIO.set((tuple(folder.resolve() for folder in folders), root))
    try:
        yield
    finally:
        _SCENARIO.reset(token)


def data_folder(root: str | Path | None = None) -> Path | None:
    """Return the folder of data sets: ``root``, else that of ``FEDSIM_DATA``; None if neither is given."""
    folder = root or os.environ.get(VARIABLE)
    return Path(folder).expanduser().absolute() if folder else None


def placed(written: str, root: str | Path | None = None) -> str:
    """Return a relative path with the folder in front that has it, else with the first; others unchanged."""
    if not written or written.startswith(("/", "~")):
        return written
    folders = _folders("", root)
    folder = next((place for place in folders if _exists(place, written)), folders[0])
    return f"{str(folder).rstrip('/')}{MARK}{written}"


def located(path: str, root: str | Path | None = None) -> Path:
    """Return where a file or folder is."""
    first, mark, written = path.partition(MARK)
    if not path.startswith("/"):
        first, mark, written = "", MARK, path
    if not mark or path.startswith("~"):
        first, written = "/", path
    folders = [Path("/")] if first == "/" else _folders(first, root)
    for folder in folders:
        place = (folder / written).expanduser()
        if _exists(folder, written) or os.path.exists(place):  # noqa: PTH110 - False for an impossible name
            return place
    problem = f"there is no {shortened(written, MAX_SHOWN)}"
    if first == "/":
        raise DataError(problem)
    unset = "" if data_folder(root) else f" ({VARIABLE} is not set)"
    *others, last = (shortened(str(folder), MAX_SHOWN) for folder in folders)
    looked_in = f"{', '.join(others)} and {last}" if others else last
    raise DataError(f"{problem}: looked in {looked_in}{unset}")


def moved(value: Any, folder: str) -> Any:
    """Return tables in which results of :func:`placed` lead to another folder, where that has the file."""
    if isinstance(value, Mapping):
        return {key: moved(child, folder) for key, child in value.items()}
    if isinstance(value, list):
        return [moved(child, folder) for child in value]
    if isinstance(value, str) and (written := value.partition(MARK)[2]) and _exists(Path(folder), written):
        return f"{Path(folder).absolute()}{MARK}{written}"
    return value


def _folders(first: str, root: str | Path | None) -> list[Path]:
    own: Sequence[Path] = [Path(first)] if first else _SCENARIO.get()[0]
    data = data_folder(root)
    return list(dict.fromkeys([*own, Path.cwd(), *([data] if data else [])]))


def _exists(folder: Path, written: str) -> bool:
    """Whether a folder has a file or a folder, or one that a pattern such as ``part-*.csv`` matches."""
    if os.path.exists(folder / written):  # noqa: PTH110 - False for an impossible name
        return True
    return any(glob.iglob(written, root_dir=folder, recursive=True))  # noqa: PTH207


InputPath = Annotated[str, Field(min_length=1), AfterValidator(lambda written: placed(written))]
"""A field's type: a file or a folder that a scenario names. :func:`located` returns where it is."""


def placed_data(written: str) -> str:
    """Return the same for a path of a data set, for which ``data.root`` stands in for ``FEDSIM_DATA``."""
    root = _SCENARIO.get()[1]
    return placed(written, root and placed(root))


DataPath = Annotated[str, Field(min_length=1), AfterValidator(placed_data)]
"""The same for a data set. :meth:`fedsim.data.LoadContext.path` returns where it is."""
