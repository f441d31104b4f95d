"""The settings of cells, one table ``[[cell]]`` each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from fedsim.config import AsTuple, Config
from fedsim.network.link_traces import TRACED, LinkTrace, LinkTraceConfig, one_rate
from fedsim.ranges import PositiveShare
from fedsim.units import Seconds, Unit

Rate = Annotated[float, Unit("bit rate", positive=True)]


class CellConfig(Config):
    """A network that clients share on their way to the server."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Name in tables; each cell has its own."""
    groups: Annotated[tuple[str, ...], AsTuple] = ()
    """Whose network it is: clients of these groups or labels; all if left out. A client is in one cell at
    most."""
    share: PositiveShare = 1.0
    """The share of these clients that are in the cell, drawn once; cells of the same groups draw different
    ones."""
    up: Rate | None = None
    """Capacity towards the server, for all clients of the cell together; unlimited if left out."""
    down: Rate | None = None
    """Capacity towards clients, likewise."""
    up_trace: LinkTrace | None = None
    """Capacity towards the server over time, instead of `up`: a file, a list of files, of which the cell gets
    one at random, or a table of file, name and shift."""
    down_trace: LinkTrace | None = None
    """Capacity towards clients over time, instead of `down`, likewise."""
    latency: Seconds = Field("0 s", validate_default=True)
    """One-way latency of the cell, added to that of a client's link and of the server's."""

    @field_validator(*TRACED.values(), mode="after")
    @classmethod
    def _one_rate(cls, trace: LinkTraceConfig | None, info: ValidationInfo) -> LinkTraceConfig | None:
        return one_rate(trace, info)

    @property
    def link_traces(self) -> Mapping[str, LinkTraceConfig]:
        """The traces by direction, of those that have one."""
        return {way: trace for way, key in TRACED.items() if (trace := getattr(self, key)) is not None}
