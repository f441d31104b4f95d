"""Trackers: programs that show runs, told of a run round by round, while it goes on or from its folder.

A tracker's package is an extra, and is imported when a run is opened. What a tracker does has no effect on a
run; neither has what it raises (:mod:`fedsim.report.tracking`).
"""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from fedsim.config import Config
from fedsim.errors import UserError
from fedsim.plugin_choice import Kind, NamedChoice
from fedsim.plugins import Plugin, install_command, name_of


class TrackerConfig(Config):
    """Settings of all trackers."""

    folder: str | None = Field(None, min_length=1)
    """Folder that is written to; one called like the tracker, beside the run's folder, if left out."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that a tracker is told of.

    Attributes:
        name: The name of its folder.
        parent: The folder that its folder is in, that of its study or comparison if it belongs to one.
        scenario_toml: Its resolved scenario.
    """

    name: str
    parent: Path
    scenario_toml: str

    @property
    def group(self) -> str:
        """What it has in common with the runs beside it: the name of the folder that they are in."""
        return self.parent.resolve().name

    @property
    def settings(self) -> dict[str, Any]:
        """The tables of its scenario."""
        return tomllib.loads(self.scenario_toml)


@dataclass(frozen=True, slots=True)
class Point:
    """What a round has come to.

    Attributes:
        round: Its number, ascending from point to point.
        simulated_s: Virtual time at its end, s.
        total_bytes: Bytes of all frames until then, up and down, raw samples included.
        figures: What was counted in it and measured at its end, by name; names before a ``/`` are groups.
    """

    round: int
    simulated_s: float
    total_bytes: int
    figures: Mapping[str, float]

    @property
    def axes(self) -> dict[str, float]:
        """Where it is: by ``simulated_s`` and ``total_bytes``."""
        return {"simulated_s": self.simulated_s, "total_bytes": self.total_bytes}


class Follower(ABC):
    """Follows one run."""

    @abstractmethod
    def note(self, point: Point) -> None:
        """Write down a round that has ended."""

    @abstractmethod
    def close(self, summary: Mapping[str, Any] | None) -> None:
        """The run is over.

        Args:
            summary: What ``summary.json`` says; None for a run that failed.
        """


C = TypeVar("C", bound=TrackerConfig)


class Tracker(Plugin[C], ABC):
    """A program that shows runs."""

    @abstractmethod
    def open(self, run: TrackedRun) -> Follower:
        """Begin to follow a run.

        Raises:
            UserError: The tracker's package is not installed.
        """

    @abstractmethod
    def how_to_look(self, run: TrackedRun) -> str:
        """Return the command that shows what was written, or what else to do."""

    def folder(self, run: TrackedRun) -> Path:
        """Return the folder to write to."""
        return Path(self.config.folder or run.parent / name_of(self)).resolve()


def needed(module: str, extra: str) -> Any:
    """Return a module of a tracker's package.

    Args:
        module: Its name, dotted.
        extra: The extra of fedsim that installs it.

    Raises:
        UserError: It cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        problem = f"the package {extra} cannot be imported ({error})"
        raise UserError(f"{problem}: {install_command(extra)}") from error


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all single values in tables and lists, each with its path, such as ``fleet.0.count``."""
    entries: Any = None
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        entries = enumerate(value)
    if entries is None:
        yield path, value
        return
    for key, below in entries:
        yield from flat(below, f"{path}.{key}" if path else str(key))


TRACKER = Kind("tracker", "fedsim.trackers", Tracker)  # type: ignore[type-abstract]


class TrackerChoice(NamedChoice):
    """Where a run is shown."""

    KIND = TRACKER
