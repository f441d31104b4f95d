"""What clients spend while a run goes on, and what is left in their batteries.

A :class:`Meter` follows the phases of dispatches. The powers of a client are those of
:mod:`fedsim.report.energy`, which has the same sum where no battery runs empty and no dispatch is given up.
One that the server has given up waits here until its client has finished it, and there only until the last
event in which it takes part. Between events power is constant. So a level is piecewise linear, and is
computed only when something changes or somebody asks.

An empty battery gives nothing: its device is off, draws nothing any more, and leaves whatever it was at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

from fedsim.clock import EventClass, RecordKind, Trace, call_after, now_ns
from fedsim.clock.loop import to_ns
from fedsim.fleet import Fleet
from fedsim.fleet.battery import Battery
from fedsim.fleet.power import Power
from fedsim.network.faults import NEVER_NS
from fedsim.params import Array
from fedsim.runtime.records.dispatch_phases import COMPUTE, DOWNLOAD, UPLOAD, WAITING
from fedsim.runtime.records.dispatch_table import DispatchTable

BATTERY = RecordKind("battery", ("client", "dispatch", "level_j"))
"""What is left in a client's battery when nothing more is to come of a dispatch."""

EMPTY = "battery empty"
"""Why work is abandoned whose client has run empty."""

CHANGING = ("dispatch", "transfer_end", "job_start", "job_end", "leave", "return", "drop", "late")
"""Records of a client that may change what it draws, beside those of transfers that begin and of merges."""

_MAINS = Battery(inf, inf, 0.0, 0.0)
_MAX_STEPS = 1000
"""Changes that are looked at beforehand for the next instant at which a client is charged."""


@dataclass(slots=True, eq=False)
class _Client:
    """A client whose energy is metered, at the instant ``at_ns``.

    Attributes:
        level_j: What is left in its battery.
        spent_j: What it has spent.
        draws_w: What it draws.
        counted_w: What of that is counted in the sum of all clients.
        charges_w: What the battery is charged with.
        plug_changes_ns: When that may change.
        tail_ends_ns: When the tail of its radio ends, unless another transfer begins before.
        phases: The phase of each of its dispatches that are not over, by number.
        transfers: Those of them that are transferred, in the order in which that began.
        transferred: The same when time passed last.
        over: Open dispatches that are over for the client: it has replied, or run empty.
        timer: Looks at it again.
    """

    battery: Battery
    power: Power
    level_j: float
    at_ns: int = 0
    spent_j: float = 0.0
    draws_w: float = 0.0
    counted_w: float = 0.0
    charges_w: float = 0.0
    plug_changes_ns: int = 0
    tail_ends_ns: int = 0
    phases: dict[int, int] = field(default_factory=dict)
    transfers: dict[int, int] = field(default_factory=dict)
    transferred: dict[int, int] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return self.level_j <= 0

    @property
    def is_charged(self) -> bool:
        """Whether it may be asked."""
        return self.battery.allows(self.level_j)

    def alone(self) -> _Client:
        """Return a copy without dispatches."""
        copied = copy(self)
        copied.redraw({})
        return copied

    def redraw(self, phases: dict[int, int]) -> None:
        """See what it draws with dispatches in some phases."""
        before = {number: phase for number, phase in self.transferred.items() if phases.get(number) == phase}
        now = {number: phase for number, phase in phases.items() if phase in (DOWNLOAD, UPLOAD)}
        self.phases, self.transfers = phases, before | now
        under_way, power = list(phases.values()), self.power
        watts = power.compute_power_w * under_way.count(COMPUTE)
        if self.transfers:  # of those that overlap, the one that began first counts
            first = next(iter(self.transfers.values()))
            watts += power.receive_power_w if first == DOWNLOAD else power.transmit_power_w
        elif self.at_ns < self.tail_ends_ns:
            watts += power.tail_power_w
        if WAITING in under_way and not self.transfers and COMPUTE not in under_way:
            watts += power.idle_power_w
        self.draws_w = 0.0 if self.is_empty else watts

    def spend(self, joules: float) -> float:
        """Spend energy at once, as much as there is; return how much that was."""
        joules = min(joules, self.level_j)
        self.spent_j += joules
        self.level_j -= joules
        return joules

    def changes_ns(self) -> int:
        """Return the next instant at which power changes without an event, or the battery is empty."""
        changes = [self.plug_changes_ns]
        if not self.transfers and self.tail_ends_ns > self.at_ns:
            changes.append(self.tail_ends_ns)
        if self.draws_w > self.charges_w:
            changes.append(_after_ns(self.at_ns, self.level_j / (self.draws_w - self.charges_w)))
        return min(changes)

    def pass_until(self, at_ns: int) -> None:
        """Let time pass in which nothing changes."""
        seconds = (at_ns - self.at_ns) / 1e9
        self.transferred = self.transfers
        self.spent_j += self.draws_w * seconds
        level_j = self.level_j + (self.charges_w - self.draws_w) * seconds
        self.level_j, self.at_ns = min(self.battery.capacity_j, max(0.0, level_j)), at_ns
        if self.transfers:
            self.tail_ends_ns = at_ns + to_ns(self.power.radio_tail_s)
        if self.is_empty:
            self.tail_ends_ns = at_ns
        self.redraw(self.phases)


@dataclass(eq=False)
class Meter:
    """Meters the clients that have a battery, and all of them if a budget of energy is watched.

    It says as well who can be asked (:class:`fedsim.fleet.Readiness`): who is there, with a battery that is
    not below its floor.

    Attributes:
        fleet: Who has a battery, and what devices draw.
        trace: What is listened to.
        table: The dispatches, which has heard of each record before.
        is_metering_all: Whether clients without a battery are metered too.
        run_empty: Told of a client with an open dispatch that has run empty.
    """

    fleet: Fleet
    trace: Trace
    table: DispatchTable
    is_metering_all: bool = False
    run_empty: Callable[[int], object] = field(default=lambda client: None, init=False)
    is_constant: bool = field(default=False, init=False)
    _clients: dict[int, _Client] = field(default_factory=dict, init=False)
    # What all clients have spent until an instant, what they draw then, and how many draw something.
    _spent_j: float = field(default=0.0, init=False)
    _draws_w: float = field(default=0.0, init=False)
    _num_drawing: int = field(default=0, init=False)
    _at_ns: int = field(default=0, init=False)
    _budget_j: float = field(default=inf, init=False)
    _meet: Callable[[], object] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        listeners: dict[str, Callable[..., None]] = dict.fromkeys(CHANGING, self._changed_by)
        listeners |= {"transfer_start": self._transfer_began, "merge": self._merged}
        listeners["abandon"] = self._abandoned
        # Cohorts whose records come together have no client that is metered.
        self.trace.listen(listeners, dict.fromkeys(listeners.values(), lambda columns: None))

    @property
    def num(self) -> int:
        """Number of clients."""
        return len(self.fleet)

    def watch(self, budget_j: float, meet: Callable[[], object]) -> None:
        """Call a function when all clients together have spent so much, in place of the budget before."""
        self._budget_j, self._meet = budget_j, meet if budget_j < inf else None
        self._spent_j, self._at_ns = self.spent_j(), now_ns()
        self._draws_w, self._num_drawing = 0.0, 0
        for client, one in self._clients.items():
            one.counted_w = 0.0
            self._changed(client, one)
        self._count()

    def is_empty(self, client: int) -> bool:
        """Say whether a client's battery is empty, now."""
        one = self._metered(client, now_ns())
        return one is not None and one.is_empty

    def available(self, clients: Array, at_s: float) -> Array:
        """Return which of the clients ``[n]`` can be asked at an instant, ``[n]``."""
        can_be_asked = self.fleet.availability.available(clients, at_s)
        for place in np.flatnonzero(can_be_asked).tolist():
            one = self._metered(int(clients[place]), to_ns(at_s))
            can_be_asked[place] = one is None or one.is_charged
        return can_be_asked

    def look(self, client: int, at_s: float) -> tuple[bool, float]:
        """Return whether a client can be asked at an instant, and, if not, the earliest at which it may be.

        The instant is infinite if it never can.
        """
        is_there, next_s = self.fleet.availability.look(client, at_s)
        one = self._metered(client, to_ns(at_s))
        if one is None or one.is_charged:
            return is_there, next_s
        charged_ns = self._charged_ns(client, one.alone())
        charged_s = inf if charged_ns >= NEVER_NS else charged_ns / 1e9
        return False, charged_s if is_there else max(charged_s, next_s)

    def dismiss(self, client: int, dispatch: int) -> None:
        """Nothing more is to come of a dispatch; one without a reply waits until the server gives it up."""
        one = self._metered(client, now_ns())
        if one is None:
            return
        if not self.table.is_lost(client, dispatch):
            one.over.add(dispatch)
            self._changed(client, one)
        if one.battery is not _MAINS:
            self.trace.record(BATTERY, client, dispatch, one.level_j)

    def levels(self) -> Array:
        """Return the share that is left in each client's battery, now, ``[K]``; NaN where it has none."""
        result = np.full(self.num, np.nan)
        for group in self.fleet.groups:
            if (batteries := group.batteries) is None:
                continue
            result[group.start : group.stop] = batteries.level  # of those at which nothing has happened
            for client in range(group.start, group.stop):
                one = self._clients.get(client)
                if one is None and batteries.plugged is not None:
                    one = self._made(client)
                if one is not None:
                    self._advance(client, one, now_ns())
                    result[client] = one.level_j / one.battery.capacity_j
        return result

    def spent_j(self) -> float:
        """Return what the clients that are metered have spent until now, J."""
        for client, one in self._clients.items():
            self._advance(client, one, now_ns())
        return sum(one.spent_j for one in self._clients.values())

    # How time passes

    def _metered(self, client: int, at_ns: int) -> _Client | None:
        """Return a client as it is at an instant, or will be; None if it is not metered."""
        one = self._clients.get(client) or self._made(client)
        if one is None:
            return None
        self._clients[client] = one
        if at_ns > now_ns():
            one = one.alone()  # nobody can be asked who is at anything
        self._advance(client, one, at_ns)
        return one

    def _made(self, client: int) -> _Client | None:
        """Return a client as it is at the start; None if it is not metered, or is the server."""
        if client < 0:
            return None
        battery = self.fleet.battery(client) or (_MAINS if self.is_metering_all else None)
        return None if battery is None else _Client(battery, self.fleet.power(client), battery.level_j)

    def _advance(self, client: int, one: _Client, at_ns: int) -> None:
        while one.at_ns < at_ns:
            is_at_rest = not (one.draws_w or one.phases)
            if is_at_rest and (one.level_j >= one.battery.capacity_j or not one.battery.charge_w):
                one.at_ns = at_ns
                return
            self._plug(client, one)
            one.pass_until(min(at_ns, one.changes_ns()))

    def _plug(self, client: int, one: _Client) -> None:
        """See whether a client is being charged."""
        if one.plug_changes_ns <= one.at_ns:
            is_plugged, next_s = False, inf
            if one.battery.charge_w:
                is_plugged, next_s = self.fleet.plugged(client, one.at_ns / 1e9)
            one.charges_w = one.battery.charge_w if is_plugged else 0.0
            one.plug_changes_ns = _after_ns(one.at_ns, next_s - one.at_ns / 1e9)

    def _charged_ns(self, client: int, one: _Client) -> int:
        """Return when a client may be asked again at the earliest; NEVER_NS if it never may."""
        for _ in range(_MAX_STEPS):
            if one.is_charged:
                break
            self._plug(client, one)
            change_ns, rate_w = one.changes_ns(), one.charges_w - one.draws_w
            if rate_w > 0:
                missing_j = one.battery.floor_j - one.level_j
                change_ns = min(change_ns, _after_ns(one.at_ns, missing_j / rate_w))
            if change_ns >= NEVER_NS:
                return NEVER_NS
            one.pass_until(change_ns)
        return one.at_ns

    def _changed(self, client: int, one: _Client) -> None:
        """See what a client draws from now on, and look again when that changes or its battery is empty."""
        phases = self.table.phases_of(client)
        one.over &= phases.keys()
        one.redraw({number: phase for number, phase in phases.items() if number not in one.over})
        self._plug(client, one)
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
        if (one.phases and one.battery is not _MAINS) or (self._meet is not None and one.draws_w):
            one.timer = _call_at(now_ns() if one.is_empty else one.changes_ns(), self._look_again, client)
        self._count(one)

    def _look_again(self, client: int) -> None:
        one = self._clients[client]
        self._advance(client, one, now_ns())
        if one.is_empty:
            self.run_empty(client)
            one.over |= one.phases.keys()
        self._changed(client, one)

    def _count(self, changed: _Client | None = None, joules: float = 0.0) -> None:
        """Count what all clients spend, and look again when it is as much as the budget."""
        if self._meet is None:
            return
        at_ns = now_ns()
        self._spent_j += self._draws_w * (at_ns - self._at_ns) / 1e9 + joules
        self._at_ns = at_ns
        if changed is not None:
            self._num_drawing += bool(changed.draws_w) - bool(changed.counted_w)
            self._draws_w += changed.draws_w - changed.counted_w
            changed.counted_w = changed.draws_w
        if not self._num_drawing:
            self._draws_w = 0.0  # and no remainder of what was added and subtracted
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left_j = self._budget_j - self._spent_j
        if left_j <= 0:
            self._meet()
        elif self._draws_w > 0:
            self._timer = _call_at(_after_ns(at_ns, left_j / self._draws_w), self._count)

    # What the trace says

    def _changed_by(self, at_ns: int, client: int, *_: Any) -> None:
        if (one := self._metered(client, at_ns)) is not None:
            self._changed(client, one)

    def _abandoned(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        if (one := self._metered(client, at_ns)) is not None:
            one.over.add(dispatch)
            one.tail_ends_ns = at_ns
            self._changed(client, one)

    def _transfer_began(
        self, at_ns: int, client: int, dispatch: int, up: bool, message: str, num_bytes: int, *rest: Any
    ) -> None:
        if (one := self._metered(client, at_ns)) is not None:
            *_, overhead = rest
            per_mbit_j = one.power.transmit_per_mbit_s_w if up else one.power.receive_per_mbit_s_w
            self._count(joules=one.spend((num_bytes + overhead) * 8 / 1e6 * per_mbit_j))
            self._changed(client, one)

    def _merged(self, at_ns: int, *values: Any) -> None:
        *_, clients, _ = values
        for client in clients:
            if (one := self._clients.get(client)) is not None and one.phases:
                self._changed_by(at_ns, client)


def _after_ns(at_ns: int, seconds: float) -> int:
    """Return the instant after a time, at least a nanosecond later; NEVER_NS where that is no instant."""
    return at_ns + max(1, ceil(seconds * 1e9)) if seconds < NEVER_NS / 2e9 else NEVER_NS


def _call_at(at_ns: int, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle | None:
    """Schedule a call at the end of an instant, so that what ends then still counts; none at NEVER_NS."""
    if at_ns >= NEVER_NS:
        return None
    return call_after((at_ns - now_ns()) / 1e9, callback, *args, event_class=EventClass.DEADLINE)
