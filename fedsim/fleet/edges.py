"""The settings of edge aggregators, one table ``[[edge]]`` each, and their devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, field_validator

from fedsim.config import Config
from fedsim.errors import Fault
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.device_class import DevicePlugin, check_values
from fedsim.fleet.distributions import Distribution
from fedsim.fleet.entries import DEVICES, no_table
from fedsim.network.cells import Cells
from fedsim.network.edges import Edges
from fedsim.plugins import load
from fedsim.quoting import nearest, quoted
from fedsim.ranges import Rounds
from fedsim.rng import Key

LINKS = ("up", "down", "latency")
"""The quantities of an edge's device that play a part: its mean, like that of the server, takes no time."""


class EdgeConfig(Config):
    """An aggregator at the door of a cell, which stands for the server towards the cell's clients."""

    cell: Annotated[str, Field(min_length=1, max_length=100)]
    """Name of its cell; a cell has one edge at most."""
    rounds: Rounds = 1
    """How often it averages its clients' replies, kappa_2, in a round of the server."""
    device: str = "server"
    """Device class whose links it has to the server: one of ``fedsim.fleet.devices``, or a dotted path."""
    up: Annotated[Distribution, QUANTITIES["up"].spread] | None = None
    """Its uplink to the server, instead of the class's."""
    down: Annotated[Distribution, QUANTITIES["down"].spread] | None = None
    """Its downlink from the server, instead of the class's."""
    latency: Annotated[Distribution, QUANTITIES["latency"].spread] | None = None
    """One-way latency between it and the server's door, instead of the class's."""

    _one_device = field_validator("device", mode="after")(no_table)

    def profile(self) -> DevicePlugin:
        """Return the device class with this edge's links."""
        plugin: type[DevicePlugin] = load(DEVICES, self.device)  # type: ignore[assignment]
        own: dict[str, Any] = {name: law for name in LINKS if (law := getattr(self, name)) is not None}
        profile = plugin(plugin.Config.model_validate(own))
        check_values(self.device, profile)
        return profile

    def explicit(self) -> Self:
        """Return the edge with the links of its device class written out."""
        config = self.profile().config
        return self.model_copy(update={name: getattr(config, name) for name in LINKS})


def misplaced(configs: Sequence[EdgeConfig], cells: Sequence[str]) -> Iterator[Fault]:
    """Yield each edge whose cell there is not, or has another edge, given the names of all cells."""
    taken = set[str]()
    for number, config in enumerate(configs):
        path = f"edge.{number}.cell"
        if config.cell in taken:
            problem = f"cell {quoted(config.cell)} has another edge"
            yield Fault(path, problem, "leave one of them out, or give each a cell of its own")
        elif config.cell not in cells:
            mend = nearest(config.cell, cells) if cells else "add a [[cell]] of this name"
            yield Fault(path, f"no cell is called {quoted(config.cell)}", mend)
        taken.add(config.cell)


def build_edges(configs: Sequence[EdgeConfig], cells: Cells, key: Key) -> Edges:
    """Return edges with the devices that are drawn for them; each has a cell of its own."""
    drawn = [config.profile().draw(1, key.child(config.cell)) for config in configs]
    up_bps, down_bps, latency_s = ([np.asarray(one[name]).item() for one in drawn] for name in LINKS)
    rounds, cell = [one.rounds for one in configs], [cells.names.index(one.cell) for one in configs]
    return Edges(cells, cell, rounds, up_bps, down_bps, latency_s)
