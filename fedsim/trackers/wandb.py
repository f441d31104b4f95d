"""Weights & Biases: a run in a local folder, which ``wandb sync`` sends, or on their server.

A run's group is called like the folder that the run's folder is in. Beside the figures of a round stand
``round``, ``simulated_s`` and ``total_bytes``, each of which can be the horizontal axis; it is the round at
first. The computer is not watched. A run that is written again is another run of theirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker, TrackerConfig, needed


class WandbConfig(TrackerConfig):
    """Settings of Weights & Biases."""

    mode: Literal["offline", "online"] = "offline"
    """Whether a run is written into the folder alone, or sent at once too."""
    project: str = Field("fedsim", min_length=1)
    """Project that it belongs to."""
    entity: str | None = Field(None, min_length=1)
    """Whose project it is; the user's own if left out."""


class Wandb(Tracker[WandbConfig]):
    """Writes a run of Weights & Biases'."""

    def open(self, run: TrackedRun) -> Follower:
        """Make the run, with the scenario as its configuration."""
        if self.config.mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = needed("wandb", "wandb")
        folder = self.folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        theirs = wandb.init(
            project=self.config.project,
            entity=self.config.entity,
            group=run.group,
            name=run.name,
            config=run.settings,
            dir=str(folder),
            reinit="create_new",
            settings=wandb.Settings(
                mode=self.config.mode,
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )
        return _Run(theirs)

    def folder(self, run: TrackedRun) -> Path:
        """Return the folder in which Weights & Biases makes its own, ``wandb``."""
        return Path(self.config.folder or run.parent).resolve()

    def how_to_look(self, run: TrackedRun) -> str:
        """Return the command that sends what was written."""
        return f"wandb sync {self.folder(run) / 'wandb' / 'offline-run-*'}"


class _Run(Follower):
    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        for axis in ("round", "simulated_s", "total_bytes"):
            theirs.define_metric(axis)
        theirs.define_metric("*", step_metric="round")

    def note(self, point: Point) -> None:
        self._theirs.log({"round": point.round, **point.axes, **point.figures})

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._theirs.summary.update(dict(summary))
        self._theirs.finish(exit_code=int(summary is None))


PLUGIN = Wandb
