"""Which plugins there are, read from their sources: most plugins import torch, which takes seconds.

A family of plugins is a package of modules or a single module. A module offers one plugin, called as the
module is (``PLUGIN = TheClass``), or several (``PLUGINS = {"its_name": ItsClass, ...}``).
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsim.plugins import Plugin


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A built-in plugin."""

    family: str
    name: str
    module: str
    summary: str
    kind: str

    @property
    def plugin(self) -> type[Plugin[Any]]:
        """The class; asking for it imports the module."""
        offered = importlib.import_module(self.module)
        cls: type[Plugin[Any]] = getattr(offered, "PLUGIN", None) or offered.PLUGINS[self.name]
        return cls


def available(family: str) -> list[PluginInfo]:
    """Return the plugins of a family, sorted by name, without importing them."""
    root, *below = family.split(".")
    return list(_listed(family, Path(importlib.import_module(root).__path__[0], *below)))


@cache  # scenarios are checked often, and sources do not change while they are in use
def _listed(family: str, place: Path) -> tuple[PluginInfo, ...]:
    files = {f"{family}.{file.stem}": file for file in place.glob("*.py")}
    infos = [
        PluginInfo(family, name, module, *_described(source))
        for module, file in (files or {family: place.with_suffix(".py")}).items()
        for name, source in _sources(file)
    ]
    return tuple(sorted(infos, key=lambda info: info.name))


def _sources(file: Path) -> list[tuple[str, str]]:
    """Return the name of each plugin that a file offers, and the source that describes it."""
    text = file.read_text("utf-8")
    if re.search(r"^PLUGIN = ", text, re.M):
        return [(file.stem, text)]
    table = re.search(r"^PLUGINS = \{(.*?)\}", text, re.M | re.S)
    classes = dict(re.findall(r"^class (\w+)(.*?)(?=^[^\s)])", text, re.M | re.S))
    return [(name, classes[cls]) for name, cls in re.findall(r'"(\w+)": (\w+)', table[1] if table else "")]


def _described(source: str) -> tuple[str, str]:
    """Return the first line of the first docstring, and the kind in ``about = About(kind="...", ...)``."""
    summary = source.partition('"""')[2].partition("\n")[0].removesuffix('"""')
    kind = re.search(r'^    about = About\(\s*kind="([^"]*)"', source, re.M)
    return summary, kind[1] if kind else ""
