"""A fleet: the devices of all clients as arrays, group by group.

Clients are numbered through the groups in order. A quantity that is the same throughout a group is kept once,
exactly; one that is drawn is kept as a float32 for each client, whose seven digits are more than any device
model deserves and hide the last bits in which processors differ. A link that follows a trace is two numbers
more (:mod:`fedsim.network.traces`). So a client costs 64 bytes at most, and becomes a :class:`Device` only
when asked for. When clients are there is :attr:`Fleet.availability`, a function of client and time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import InvariantError
from fedsim.fleet.architecture_assignment import Places, assign
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, Clients, EverPresent, Grouped
from fedsim.fleet.device import QUANTITIES, Device
from fedsim.fleet.device_class import DevicePlugin
from fedsim.fleet.entries import TRACED, GroupConfig, ServerConfig
from fedsim.network import InGroups, Traces
from fedsim.plugins import name_of
from fedsim.rng import Key

Column = float | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive clients of one ``[[fleet]]`` entry.

    Attributes:
        label: Name in tables.
        models: Labels of the architectures of its clients.
        start: First client.
        stop: One past the last client.
        columns: For each quantity one value, or one for each client of the group.
        row_labels: Names of the rows of a table of devices; empty if they have none.
        rows: For each client of the group the place of its name among them.
        places: For each client of the group the place of its architecture among ``models``; None for one.
        traces: By quantity, ``up`` or ``down``, what the links follow over time; its column then holds means.
    """

    label: str
    models: tuple[str, ...]
    start: int
    stop: int
    columns: Mapping[str, Column]
    row_labels: tuple[str, ...] = ()
    rows: NDArray[np.int32] | None = None
    places: Places | None = None
    traces: Mapping[str, Traces] = field(default_factory=dict)

    def model(self, offset: int) -> str:
        """Return the label of the architecture of the client ``start + offset``."""
        return self.models[0 if self.places is None else self.places[offset]]

    def shares(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield each architecture, and which clients of the group have it, ``[stop - start]``."""
        places = np.zeros(self.stop - self.start, np.uint8) if self.places is None else self.places
        for place, label in enumerate(self.models):
            yield label, places == place

    @property
    def is_uniform(self) -> bool:
        """Whether all devices of the group are the same."""
        return self.rows is None and all(isinstance(column, float) for column in self.columns.values())

    def column(self, quantity: str) -> Column:
        """Return a quantity's one value, or one for each client of the group."""
        return self.columns[quantity]

    def device(self, offset: int) -> Device:
        """Return the device of the client ``start + offset``."""
        label = self.label if self.rows is None else self.row_labels[self.rows[offset]]
        values = {
            QUANTITIES[name].attribute: column if isinstance(column, float) else column.item(offset)
            for name, column in self.columns.items()
        }
        return Device(**values, label=label)


class Fleet:
    """The devices of all clients, and the server's.

    Attributes:
        groups: The groups in order.
        server: The server's device.
        server_model: Label of the server's architecture.
        availability: When clients are there; without it, always.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        server: Device,
        server_model: str,
        availability: Availability | None = None,
    ) -> None:
        self.groups = tuple(groups)
        self.server = server
        self.server_model = server_model
        self.availability = availability or EverPresent(self.groups[-1].stop)
        self._starts = [group.start for group in self.groups]
        self._stop = self.groups[-1].stop
        # A group whose devices are all alike has one record for all.
        self._alike = [group.device(0) if group.is_uniform else None for group in self.groups]

    def __len__(self) -> int:
        return self._stop

    def group(self, client: int) -> int:
        """Return the number of the client's group, its place in :attr:`groups`.

        Raises:
            IndexError: No such client.
        """
        if not 0 <= client < self._stop:
            raise IndexError(f"no client {client}: the fleet has 0 to {len(self) - 1}")
        return bisect_right(self._starts, client) - 1

    def device(self, client: int) -> Device:
        """Return the client's device; :exc:`IndexError` if there is no such client."""
        number = self.group(client)
        alike = self._alike[number]
        if alike is not None:
            return alike
        group = self.groups[number]
        return group.device(client - group.start)

    def model(self, client: int) -> str:
        """Return the label of the client's architecture; :exc:`IndexError` if there is no such client."""
        group = self.groups[self.group(client)]
        return group.model(client - group.start)

    def values(self, quantity: str) -> NDArray[np.float64]:
        """Return a quantity of every client in base units, ``[K]``, as a new array.

        Args:
            quantity: One of :data:`fedsim.fleet.device.QUANTITIES`.
        """
        result = np.empty(len(self))
        for group in self.groups:
            result[group.start : group.stop] = group.column(quantity)
        return result

    def each(self, quantity: str) -> InGroups:
        """Return a quantity of every client in base units, one by one; it costs no memory of its own."""
        return InGroups([(group.stop - group.start, group.column(quantity)) for group in self.groups])

    def traces(self, quantity: str) -> Traces | None:
        """Return what clients' links follow over time, ``[K]``, for ``up`` or ``down``; None if none does."""
        return Traces.joined(
            [(group.stop - group.start, group.traces.get(quantity)) for group in self.groups]
        )

    @property
    def is_traced(self) -> bool:
        """Whether any client's link follows a trace."""
        return any(group.traces for group in self.groups)

    def without_traces(self) -> Fleet:
        """Return the fleet with links that are constant at the mean of their traces."""
        groups = [replace(group, traces={}) for group in self.groups]
        return Fleet(groups, self.server, self.server_model, self.availability)

    @property
    def is_always_there(self) -> bool:
        """Whether every client is available at any time."""
        return self.availability.is_constant

    @property
    def drops_out(self) -> bool:
        """Whether any client may drop out."""
        return any(bool(np.any(group.column("drop_out"))) for group in self.groups)

    @property
    def is_steady(self) -> bool:
        """Whether no client ever goes away or drops out."""
        return self.is_always_there and not self.drops_out

    def available(self, clients: Clients, at_s: float) -> NDArray[np.bool_]:
        """Return which of the clients ``[n]`` are there at an instant, ``[n]``.

        Raises:
            IndexError: A client outside the fleet.
            ValueError: No instant of a run.
        """
        return self.availability.available(clients, at_s)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that describe devices."""
        columns = [
            column for group in self.groups for column in (*group.columns.values(), group.rows, group.places)
        ]
        arrays = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
        return arrays + sum(traces.nbytes for group in self.groups for traces in group.traces.values())


def build_fleet(
    groups: Sequence[GroupConfig],
    server: ServerConfig,
    key: Key,
    *,
    default_model: str = "model",
    availability: Sequence[AvailabilityPlugin[Any]] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Fleet:
    """Draw every device.

    Args:
        groups: The ``[[fleet]]`` entries, at least one; a group's draws depend on its place, not on others.
        server: The ``[server]`` entry.
        key: The run's root key.
        default_model: Label of the architecture where an entry names none.
        availability: When the clients of each group are there, one model for each group; without it,
            everybody is always there.
        sizes: Training samples of each client, by which groups may assign architectures; without them all
            count as equal.

    Raises:
        UnknownPluginError: A device class that does not exist.
        DataError: A file of devices, of their links, or of when they are there, that cannot be used.
        InvariantError: A device class that draws values which no device can have.
        ValueError: No group, or not one availability model for each.
    """
    if not groups:
        raise ValueError("a fleet needs at least one group")
    if availability is not None and len(availability) != len(groups):
        raise ValueError(
            f"{len(groups)} groups and {len(availability)} availability models: give one for each"
        )
    built: list[Group] = []
    presence: list[Availability] = []
    start = 0
    for index, group in enumerate(groups):
        own, stop = key.child("fleet", index), start + group.count
        held = np.zeros(group.count, np.int64) if sizes is None else sizes[start:stop]
        labels, places = _architectures(group, default_model, held, own.child("models"))
        plain = _group(group.profile(), group.label, labels, places, start, stop, own)
        built.append(_traced(plain, group, own))
        if availability is not None:
            presence.append(availability[index].bind(group.count, own.child("availability")))
        start = stop
    model = server.model or default_model
    hardware = _group(server.profile(), "server", (model,), None, 0, 1, key.child("fleet", "server"))
    return Fleet(built, hardware.device(0), model, Grouped(presence) if presence else None)


def _architectures(
    group: GroupConfig, default: str, sizes: NDArray[np.int64], key: Key
) -> tuple[tuple[str, ...], Places | None]:
    if not group.shares:
        return (group.model or default,), None
    labels, places = assign(group.shares, sizes, key)
    return labels, _read_only(places)


def _group(
    profile: DevicePlugin,
    label: str,
    models: tuple[str, ...],
    places: Places | None,
    start: int,
    stop: int,
    key: Key,
) -> Group:
    columns = _columns(profile, stop - start, key)
    named = profile.labels(stop - start, key)
    if named is None:
        return Group(label, models, start, stop, columns, places=places)
    names, rows = named
    return Group(label, models, start, stop, columns, tuple(names), _read_only(rows.astype(np.int32)), places)


def _traced(plain: Group, config: GroupConfig, key: Key) -> Group:
    """Return a group whose links follow the entry's traces."""
    num, columns = plain.stop - plain.start, dict(plain.columns)
    traces = {
        quantity: Traces.draw(trace, num, key.child(TRACED[quantity]))
        for quantity, trace in config.traces.items()
    }
    for quantity, drawn in traces.items():
        mean_bps = drawn.mean_bps()
        if isinstance(mean_bps, float):
            columns[quantity] = mean_bps
        else:
            columns[quantity] = _read_only(mean_bps.astype(np.float32))
    return replace(plain, columns=columns, traces=traces) if traces else plain


def _columns(profile: DevicePlugin, num: int, key: Key) -> dict[str, Column]:
    drawn = profile.draw(num, key)
    columns: dict[str, Column] = {}
    for name, quantity in QUANTITIES.items():
        value, spread = drawn[name], quantity.spread
        # Before it is cut to a float32, which may be infinite or 0 where the number drawn is not.
        if not spread.holds(value):
            limits = spread.limits
            words = f"{limits.least:g} to {limits.most:g}" + ("" if spread.positive else " or zero")
            raise InvariantError(
                f"device class {name_of(profile)!r} draws {name} values that are not from {words}, in base "
                "units: mend its draw()"
            )
        column: Column = value.astype(np.float32) if isinstance(value, np.ndarray) else float(value)
        columns[name] = _read_only(column) if isinstance(column, np.ndarray) else column
    return columns


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
