"""Frames between edges and the server: a table built by listening to the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.clock import Records
from fedsim.params import Array


class EdgeFrames:
    """The table, and how often edges have averaged replies.

    Attributes:
        num_means: How often.
    """

    def __init__(self, trace: Records) -> None:
        self.num_means = 0
        self._rows: list[tuple[int, int, str, bool, int, int, int, float]] = []
        self._arrived_at_s: list[float] = []
        self._outcome: list[str] = []
        self._under_way: dict[tuple[int, bool], int] = {}  # an edge sends one frame at a time
        trace.listen({"edge_start": self._sent, "edge_end": self._ended, "edge_merge": self._averaged})

    def columns(self, names: Sequence[str]) -> dict[str, Array]:
        """Return all rows as columns, one array ``[frames]`` for each name, given the names of edges."""
        number, edge, kind, up, num_bytes, parameters, overhead, sent_at_s = (
            zip(*self._rows, strict=True) if self._rows else ((),) * 8
        )
        return {
            "round": np.array(number, np.int32),
            "edge": np.array([names[one] for one in edge], object),
            "kind": np.array(kind, object),
            "up": np.array(up, bool),
            "bytes": np.array(num_bytes, np.int64),
            "parameters": np.array(parameters, np.int64),
            "overhead": np.array(overhead, np.int64),
            "outcome": np.array(self._outcome, object),
            "sent_at_s": np.array(sent_at_s, float),
            "arrived_at_s": np.array(self._arrived_at_s, float),
        }

    def totals(self) -> dict[str, int]:
        """Return sums over frames: their number, bytes and overhead, up (to the server) and down."""
        sums = Counter[str]()
        for _, _, _, up, num_bytes, _, overhead, _ in self._rows:
            way = "up" if up else "down"
            sums.update({f"frames_{way}": 1, f"bytes_{way}": num_bytes, f"overhead_{way}": overhead})
        ways = [f"{what}_{way}" for what in ("frames", "bytes", "overhead") for way in ("up", "down")]
        return {name: sums[name] for name in ways}

    # What the trace says

    def _sent(self, at_ns: int, edge: int, number: int, up: bool, *what: Any) -> None:
        kind, num_bytes, parameters, _, overhead = what
        self._under_way[edge, up] = len(self._rows)
        self._rows.append((number, edge, kind, up, num_bytes, parameters, overhead, at_ns / 1e9))
        self._arrived_at_s.append(np.nan)
        self._outcome.append("in_flight")

    def _ended(self, at_ns: int, edge: int, number: int, up: bool, outcome: str) -> None:
        row = self._under_way.pop((edge, up))
        self._outcome[row] = outcome
        if outcome == "delivered":
            self._arrived_at_s[row] = at_ns / 1e9

    def _averaged(self, *_: object) -> None:
        self.num_means += 1
