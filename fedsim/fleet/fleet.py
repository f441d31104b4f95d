"""A fleet: the devices of all clients as arrays, group by group.

Clients are numbered through the groups in order. A quantity that is the same throughout a group is kept once,
exactly; one that is drawn is kept as a float32 for each client, whose seven digits are more than any device
model deserves and hide the last bits in which processors differ. A link that follows a trace is two numbers
more (:mod:`fedsim.network.link_traces`), and a battery is three (:mod:`fedsim.fleet.battery`). So a client
costs 84 bytes at most, and becomes a :class:`Device` only when asked for. :attr:`Fleet.availability` says
when clients are there, as a function of client and time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import InvariantError
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, EverPresent, Grouped
from fedsim.fleet.battery import Batteries, Battery
from fedsim.fleet.device import QUANTITIES, Device
from fedsim.fleet.device_class import DevicePlugin
from fedsim.fleet.distributions import Values
from fedsim.fleet.entries import GroupConfig, ServerConfig
from fedsim.fleet.load import Load
from fedsim.fleet.power import ALL_QUANTITIES, POWERS, Power
from fedsim.network.base import InGroups, Links, TraceOf
from fedsim.network.capacity_trace import Capacity
from fedsim.network.link_traces import TRACED, LinkTraces
from fedsim.params import Array
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.shares import apportion

Shares = Mapping[str, float]
"""Label of an architecture to its weight."""


def assign(parts: Sequence[Shares], sizes: Array, key: Key) -> tuple[tuple[str, ...], Array]:
    """Return the architectures of a group, and the place of each client's among them (specification 7.2).

    Clients, ordered by training samples, are cut into equally large parts, each with shares of its own, which
    hold to within one client; who gets which is drawn.

    ``sizes`` are the clients' training samples; of equal ones the first counts as smaller.
    """
    labels = tuple(dict.fromkeys(label for shares in parts for label in shares))
    places = np.zeros(len(sizes), np.int32)
    by_size = np.argsort(sizes, kind="stable")
    for number, (shares, clients) in enumerate(zip(parts, np.array_split(by_size, len(parts)), strict=True)):
        weights = np.array([shares.get(label, 0.0) for label in labels])
        dealt = np.repeat(np.arange(len(labels)), apportion(len(clients), weights))
        places[clients] = key.child(number).numpy().permutation(dealt)
    return labels, places


Column = float | NDArray[np.float32]

_LABEL, _LOAD = Device._fields.index("label"), Device._fields.index("load")


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive clients of one ``[[fleet]]`` entry."""

    label: str
    models: tuple[str, ...]
    start: int
    stop: int
    columns: Mapping[str, Column]
    row_labels: Sequence[str]
    rows: NDArray[np.integer]
    loads: Sequence[Load | None]
    load_rows: NDArray[np.integer]
    places: NDArray[np.integer]
    link_traces: Mapping[str, LinkTraces] = field(default_factory=dict)
    batteries: Batteries | None = None
    common: Sequence[Any] = field(init=False, repr=False)
    variables: Sequence[tuple[int, NDArray[np.float64]]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Told apart once, since a device is asked for at every dispatch.
        named: dict[str, Any] = {**Device._field_defaults, "label": "", "load": None}
        named |= {ALL_QUANTITIES[name].attribute: column for name, column in self.columns.items()}
        columns = [named[name] for name in Device._fields]
        variables = [
            (place, column) for place, column in enumerate(columns) if isinstance(column, np.ndarray)
        ]
        object.__setattr__(self, "common", columns)
        object.__setattr__(self, "variables", variables)

    def model(self, offset: int) -> str:
        """Return the label of the architecture of the client ``start + offset``."""
        return self.models[int(self.places[offset])]

    def shares(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield each architecture, and which clients of the group have it, ``[stop - start]``."""
        for place, label in enumerate(self.models):
            yield label, self.places == place

    @property
    def is_uniform(self) -> bool:
        """Whether all devices of the group are the same."""
        return len(self.row_labels) == len(self.loads) == 1 and not self.variables

    def device(self, offset: int) -> Device:
        """Return the device of the client ``start + offset``."""
        values = list(self.common)
        for place, column in self.variables:
            values[place] = column.item(offset)
        values[_LABEL] = self.row_labels[self.rows.item(offset)]
        values[_LOAD] = self.loads[self.load_rows.item(offset)]
        return Device._make(values)


_SPEEDS = ("speed", "efficiency", "memory_bandwidth", "overhead", "variation")
"""What the time of a job depends on."""


class Fleet:
    """The devices of all clients, and the server's.

    Attributes:
        time_scales: The availability models that change, each with the time over which it does, s.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        server: Device,
        server_model: str,
        availability: Availability | None = None,
        time_scales: Sequence[tuple[str, float]] = (),
    ) -> None:
        self.groups = tuple(groups)
        self.server = server
        self.server_model = server_model
        self.availability = availability or EverPresent(self.groups[-1].stop)
        self.time_scales = tuple(time_scales)
        self._starts = [group.start for group in self.groups]
        self._stop = self.groups[-1].stop
        # A group whose devices are all alike has one record for all.
        self._alike = [group.device(0) if group.is_uniform else None for group in self.groups]
        labels = {label for group in self.groups for label in group.models}
        self._only_model = labels.pop() if len(labels) == 1 else None

    def __len__(self) -> int:
        return self._stop

    def group(self, client: int) -> int:
        """Return the number of the client's group, its place in :attr:`groups`."""
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

    def speeds(self, clients: Array) -> Device:
        """Return the devices of clients as one, with an array for all that the time of a job depends on.

        Its ``load`` is such an array, ``[clients]``, or None where none has a load.
        """
        groups = np.searchsorted(self._starts, clients, "right") - 1
        columns = {name: np.empty(len(clients)) for name in _SPEEDS}
        loads: Any = np.full(len(clients), None, object) if self.is_loaded else None
        for number in dict.fromkeys(groups.tolist()):
            group, its = self.groups[number], groups == number
            offsets = clients[its] - group.start
            for name, values in columns.items():
                value = group.columns[name]
                values[its] = value[offsets] if isinstance(value, np.ndarray) else value
            if loads is not None:
                loads[its] = [group.loads[row] for row in group.load_rows[offsets].tolist()]
        named: dict[str, Any] = {QUANTITIES[name].attribute: values for name, values in columns.items()}
        return self.server._replace(**named, load=loads)

    def model(self, client: int) -> str:
        """Return the label of the client's architecture; :exc:`IndexError` if there is no such client."""
        if self._only_model is not None and 0 <= client < self._stop:
            return self._only_model
        group = self.groups[self.group(client)]
        return group.model(client - group.start)

    def models(self, clients: Sequence[int]) -> Sequence[str]:
        """Return the labels of clients' architectures."""
        if self._only_model is not None:
            return [self._only_model] * len(clients)
        return [self.model(client) for client in clients]

    def clients_of(self, groups: Collection[str]) -> NDArray[np.bool_] | None:
        """Return which clients are of some groups or labels, ``[K]``; None for all."""
        if not groups:
            return None
        return np.concatenate(
            [
                np.array([group.label in groups or label in groups for label in group.row_labels])[group.rows]
                for group in self.groups
            ]
        )

    @property
    def names(self) -> Sequence[str]:
        """The groups and labels that there are."""
        every = (name for group in self.groups for name in (group.label, *group.row_labels))
        return list(dict.fromkeys(name for name in every if name))

    def values(self, quantity: str) -> NDArray[np.float64]:
        """Return a quantity of every client in base units, ``[K]``, as a new array."""
        result = np.empty(len(self))
        for group in self.groups:
            result[group.start : group.stop] = group.columns[quantity]
        return result

    def labels(self) -> NDArray[np.object_]:
        """Return the name of every client's device, ``[K]``: that of its row of a table, or its group's."""
        named = [np.array(group.row_labels, object)[group.rows] for group in self.groups]
        return np.concatenate(named)

    def each(self, quantity: str) -> InGroups:
        """Return a quantity of every client in base units, one by one; it costs no memory of its own."""
        return InGroups([(group.stop - group.start, group.columns[quantity]) for group in self.groups])

    def trace_of(self, quantity: str) -> TraceOf | None:
        """Return what says which trace a client's ``up`` or ``down`` follows; None if all are constant."""
        if not any(quantity in group.link_traces for group in self.groups):
            return None
        return partial(self._trace, quantity)

    def _trace(self, quantity: str, client: int) -> Capacity | None:
        group = self.groups[self.group(client)]
        traces = group.link_traces.get(quantity)
        return None if traces is None else traces.of(client - group.start)

    def links(self) -> Links:
        """Return the links of all clients and the server."""
        server = self.server
        return Links(
            self.each("up"),
            self.each("down"),
            self.each("latency"),
            server.up_bps,
            server.down_bps,
            server.latency_s,
            self.trace_of("up"),
            self.trace_of("down"),
        )

    @property
    def is_traced(self) -> bool:
        """Whether any client's link follows a trace."""
        return any(group.link_traces for group in self.groups)

    def without_traces(self) -> Fleet:
        """Return the fleet with links that are constant at the mean of their traces."""
        groups = [replace(group, link_traces={}) for group in self.groups]
        return Fleet(groups, self.server, self.server_model, self.availability, self.time_scales)

    @property
    def has_batteries(self) -> bool:
        """Whether any client has a battery."""
        return any(group.batteries is not None for group in self.groups)

    def battery(self, client: int) -> Battery | None:
        """Return the client's battery, if it has one; :exc:`IndexError` if there is no such client."""
        group = self.groups[self.group(client)]
        return None if group.batteries is None else group.batteries.of(client - group.start)

    def plugged(self, client: int, at_s: float) -> tuple[bool, float]:
        """Return whether a client's battery is charged at an instant, and the next at which that may change.

        The instant is infinite if it never does.
        """
        group = self.groups[self.group(client)]
        plugged = None if group.batteries is None else group.batteries.plugged
        if plugged is None:
            return False, inf
        if isinstance(plugged, Availability):
            return plugged.look(client - group.start, at_s)
        is_there, next_s = self.availability.look(client, at_s)
        return is_there == (plugged == "available"), next_s

    def may_be_charged(self, client: int) -> bool:
        """Say whether a client is above the floor of its battery when a run begins, or may be later."""
        battery = self.battery(client)
        if battery is None or battery.allows(battery.level_j):
            return True
        is_plugged, next_s = self.plugged(client, 0.0)
        return battery.charge_w > 0 and (is_plugged or next_s < inf)

    def power(self, client: int) -> Power:
        """Return what the client's device draws; :exc:`IndexError` if there is no such client."""
        group = self.groups[self.group(client)]
        columns = (group.columns[name] for name in POWERS)
        return Power._make(
            column.item(client - group.start) if isinstance(column, np.ndarray) else column
            for column in columns
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the time of any client's jobs varies by a load."""
        return any(load is not None for group in self.groups for load in group.loads)

    @property
    def is_always_there(self) -> bool:
        """Whether every client is available at any time."""
        return self.availability.is_constant

    @property
    def drops_out(self) -> bool:
        """Whether any client may drop out."""
        return any(bool(np.any(group.columns["drop_out"])) for group in self.groups)


def build_fleet(
    groups: Sequence[GroupConfig],
    server: ServerConfig,
    key: Key,
    *,
    default_model: str = "model",
    availability: Sequence[AvailabilityPlugin[Any]] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Fleet:
    """Draw every device; a group's draws depend on its place, not on other groups."""
    built: list[Group] = []
    start = 0
    for index, group in enumerate(groups):
        held = np.zeros(group.count, np.int64) if sizes is None else sizes[start : start + group.count]
        built.append(_group(group, start, held, default_model, key.child("fleet", index)))
        start += group.count
    models = availability or ()
    presence = [
        model.bind(groups[index].count, key.child("fleet", index, "availability"))
        for index, model in enumerate(models)
    ]
    scales = [
        (name_of(model), bound.time_scale_s)
        for model, bound in zip(models, presence, strict=True)
        if bound.time_scale_s is not None
    ]
    model = server.model or default_model
    hardware = _hardware(server.profile(), "server", 1, key.child("fleet", "server"))
    device = Group("server", (model,), 0, 1, *hardware, _same(1)).device(0)
    return Fleet(built, device, model, Grouped(presence) if presence else None, list(dict.fromkeys(scales)))


def _group(config: GroupConfig, start: int, sizes: NDArray[np.int64], default_model: str, key: Key) -> Group:
    models: tuple[str, ...] = (config.model or default_model,)
    places: NDArray[np.integer] = _same(config.count)
    if config.shares:
        models, places = assign(config.shares, sizes, key.child("models"))
    hardware = _hardware(config.profile(), config.label, config.count, key)
    traces = {
        quantity: LinkTraces.draw(trace, config.count, key.child(TRACED[quantity]))
        for quantity, trace in config.link_traces.items()
    }
    columns = hardware[0] | {quantity: _column(drawn.mean_bps()) for quantity, drawn in traces.items()}
    stop = start + config.count
    battery = config.battery
    batteries = None if battery is None else battery.draw(config.count, key.child("battery"))
    return Group(
        config.label, models, start, stop, columns, *hardware[1:], _read_only(places), traces, batteries
    )


def _hardware(
    profile: DevicePlugin, label: str, num: int, key: Key
) -> tuple[dict[str, Column], Sequence[str], NDArray[np.integer], Sequence[Load | None], NDArray[np.integer]]:
    """Return the columns of devices, names and laws of load, each with the place of a device's own."""
    columns = _columns(profile, num, key)
    row_labels, rows = profile.labels(num, key) or ((label,), _same(num))
    loads, load_rows = profile.loads(num, key)
    return columns, row_labels, _read_only(rows), loads, _read_only(load_rows)


def _columns(profile: DevicePlugin, num: int, key: Key) -> dict[str, Column]:
    drawn = profile.draw(num, key)
    columns: dict[str, Column] = {}
    for name, quantity in ALL_QUANTITIES.items():
        value, spread = drawn.get(name, quantity.default), quantity.spread
        if value is None:
            raise InvariantError(f"device class {name_of(profile)!r} draws no {name}: mend its draw()")
        # Before it is cut to a float32, which may be infinite or 0 where the number drawn is not.
        if not spread.holds(value):
            limits = spread.limits
            words = f"{limits.least:g} to {limits.most:g}" + ("" if spread.positive else " or zero")
            raise InvariantError(
                f"device class {name_of(profile)!r} draws {name} values that are not from {words}, in base "
                "units: mend its draw()"
            )
        columns[name] = _column(value)
    return columns


def _column(values: float | Values) -> Column:
    return _read_only(values.astype(np.float32)) if isinstance(values, np.ndarray) else float(values)


def _same(num: int) -> NDArray[np.uint8]:
    """Return ``num`` zeros in one byte."""
    return np.broadcast_to(np.uint8(0), num)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
