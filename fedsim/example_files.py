"""The example scenarios that fedsim brings along, known by name: ``quickstart``, ``papers/persfl_small``."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[1] / "scenarios")
"""Where they are in an installed package, and in a clone."""

STUDIES = "studies/"
"""The folder of studies, also below other folders; all other files are scenarios."""


def names(*, studies: bool = False) -> list[str]:
    """Return the names of all examples of scenarios, or of studies, sorted."""
    folder = _folder()
    every = (str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.toml"))
    return sorted(name for name in every if is_study(name) == studies)


def is_study(name: str) -> bool:
    """Return whether an example is a study, by its name."""
    return f"/{STUDIES}" in f"/{name}"


def file_of(name: str) -> Path:
    """Return the file of an example, one of :func:`names`."""
    return _folder() / f"{name}.toml"


def companions(name: str) -> list[Path]:
    """Return the files beside an example that it names, such as a table of devices."""
    file = file_of(name)
    named = re.findall(r'"([\w-]+\.csv)"', file.read_text("utf-8"))
    return [path for name in dict.fromkeys(named) if (path := file.parent / name).is_file()]


def _folder() -> Path:
    return next(folder for folder in _FOLDERS if folder.is_dir())
