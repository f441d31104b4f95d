"""Settings that may change at the end of a round: in a fork they are not those of the run that it comes from.

All else is the same in both: data, fleet, models, algorithm and seed.

What begins after the change follows the later settings. What is under way goes on as it was begun: a frame in
its network and with its faults, a job on a device that is slow for a while, the lease of a dispatch. A
dispatch and its reply have the codecs of its round. Whatever holds something that was made of settings is
given another one, and keeps the former for what is under way (:mod:`fedsim.runtime.run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any, TypeAlias

from fedsim.plugins import Plugin
from fedsim.runtime.parts import Parts

Settings: TypeAlias = Mapping[str, Any]
"""Attributes of :class:`Parts` by name, as :func:`fedsim.scenario.build.settings` gives them."""

Stages: TypeAlias = Mapping[int, Settings]
"""Settings, by the number of rounds that have ended when they begin to hold: first of all 0."""


def changeable(parts: Parts, stages: Stages) -> Parts:
    """Return parts that can be changed, with the settings that hold first."""
    return replace(parts, **{**stages[0], "pacing": copy(stages[0]["pacing"])})


def changes(parts: Parts, settings: Settings) -> dict[str, Any]:
    """Return those of some settings that are not the same in parts."""
    return {name: later for name, later in settings.items() if not _are_alike(getattr(parts, name), later)}


def _are_alike(now: Any, later: Any) -> bool:
    if isinstance(now, Plugin) and type(now) is type(later):
        return bool(now.config == later.config)
    return bool(now == later)


def change(parts: Parts, settings: Settings) -> None:
    """Change parts to later settings, for all who hold the parts, or their pacing, which is running."""
    for name in vars(parts).keys() - {one.name for one in fields(parts)}:
        del vars(parts)[name]  # what was made of the settings before
    for name, later in settings.items():
        if name == "pacing" and type(later) is type(parts.pacing):
            vars(parts.pacing).clear()  # what it has found out for the settings before
            vars(parts.pacing).update(vars(later))
        else:
            object.__setattr__(parts, name, later)
