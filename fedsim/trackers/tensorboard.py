"""TensorBoard: event files, which ``tensorboard --logdir`` shows, by round, simulated time and bytes.

Below ``by_round`` the step is the round, below ``by_bytes`` the bytes of all frames until its end. The time
of each event is simulated, so that the horizontal axis "Relative" is simulated time. What an earlier run of
the same name has left is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker, TrackerConfig, needed

AXES = ("by_round", "by_bytes")
"""Folders of the runs by their steps."""


class TensorBoard(Tracker[TrackerConfig]):
    """Writes a run's events in ``by_round/<run>`` and ``by_bytes/<run>``."""

    def open(self, run: TrackedRun) -> Follower:
        """Make the event files, with the scenario as a text."""
        writers = needed("tensorboard.summary.writer.event_file_writer", "tensorboard")
        folders = [self.folder(run) / axis / run.name for axis in AXES]
        for folder in folders:
            for file in folder.glob("events.out.tfevents.*"):
                file.unlink()
        return _Events([writers.EventFileWriter(str(folder)) for folder in folders], run.scenario_toml)

    def how_to_look(self, run: TrackedRun) -> str:
        """Return the command that shows it in a browser."""
        return f"tensorboard --logdir {self.folder(run)}"


class _Events(Follower):
    def __init__(self, writers: list[Any], scenario_toml: str) -> None:
        self._writers = writers
        self._event = needed("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._proto = needed("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._scenario(scenario_toml)

    def note(self, point: Point) -> None:
        values = [
            self._proto.Summary.Value(tag=name, simple_value=value) for name, value in point.figures.items()
        ]
        summary = self._proto.Summary(value=values)
        for writer, step in zip(self._writers, (point.round, point.total_bytes), strict=True):
            writer.add_event(self._event(wall_time=point.simulated_s, step=step, summary=summary))
            writer.flush()

    def close(self, summary: Mapping[str, Any] | None) -> None:
        for writer in self._writers:
            writer.close()

    def _scenario(self, toml: str) -> None:
        """Write a text, as TensorBoard's plugin for texts has them: Markdown, in a tensor of strings."""
        tensors = needed("tensorboard.compat.proto.tensor_pb2", "tensorboard")
        shapes = needed("tensorboard.compat.proto.tensor_shape_pb2", "tensorboard").TensorShapeProto
        indented = "\n".join(f"    {line}" for line in toml.splitlines())
        tensor = tensors.TensorProto(
            dtype="DT_STRING",
            string_val=[indented.encode()],
            tensor_shape=shapes(dim=[shapes.Dim(size=1)]),
        )
        metadata = self._proto.SummaryMetadata(
            plugin_data=self._proto.SummaryMetadata.PluginData(plugin_name="text")
        )
        value = self._proto.Summary.Value(tag="scenario", metadata=metadata, tensor=tensor)
        self._writers[0].add_event(self._event(summary=self._proto.Summary(value=[value])))


PLUGIN = TensorBoard
