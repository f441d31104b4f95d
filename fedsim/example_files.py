"""The example scenarios that fedsim brings along, known by name: ``quickstart``, ``papers/persfl_small``."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[1] / "scenarios")
"""Where they are in an installed package, and in a clone."""

_HOME = "scenarios/"
"""How examples name files beside them, since a path starts at the working directory."""


STUDIES = "studies/"
"""Names of studies begin with it; all others are scenarios."""


def names(*, studies: bool = False) -> list[str]:
    """Return the names of all examples of scenarios, or of studies, sorted."""
    folder = _folder()
    every = (str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.toml"))
    return sorted(name for name in every if name.startswith(STUDIES) == studies)


def text(name: str, home: str | None = None) -> str:
    """Return an example's text.

    Args:
        name: One of :func:`names`.
        home: Folder of the files that it names, such as a table of devices; where they are if None.
    """
    prefix = f"{_folder()}/" if home is None else f"{home}/" if home else ""
    return (_folder() / f"{name}.toml").read_text("utf-8").replace(_HOME, prefix)


def companions(name: str) -> list[Path]:
    """Return the files that an example names, such as a table of devices."""
    source = (_folder() / f"{name}.toml").read_text("utf-8")
    found = re.findall(rf'"{_HOME}([\w./-]+)"', source)
    return [_folder() / file for file in dict.fromkeys(found)]


def _folder() -> Path:
    return next(folder for folder in _FOLDERS if folder.is_dir())
