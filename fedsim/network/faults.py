"""Faults of the network, as a carrier around the carrier of a network model.

Whether a frame is lost, doubled, late or spoilt is drawn by its client, dispatch, direction and attempt,
never by the order of events. A frame that is struck crosses the link as any other, and counts as sent:

- *loss*: it is lost at the end of its way.
- *corrupt*: it arrives, the checksum of the link is wrong, and it is thrown away as undecodable.
- *delay*: it arrives later, while the link is free for others. While its client is away, this time stands
  still too, as all that comes from or goes to the client does.
- *duplicate*: it arrives twice at the same instant; the second copy takes no time of the link.
- *partition*: nothing passes. What is on its way when a partition begins is lost then, unless it arrives at
  this very instant, and what leaves while it lasts is lost at the end of its way.

Crashes of clients are in :mod:`fedsim.runtime.clients.crashes`, slow devices in
:mod:`fedsim.engine.slowdowns`, and attacks in :mod:`fedsim.runtime.clients.attacks`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import isfinite
from typing import Any, cast

import numpy as np

from fedsim.clock import (
    EventClass,
    RecordKind,
    Trace,
    VirtualTimeLoop,
    call_after,
    now_ns,
    now_s,
    running_loop,
)
from fedsim.clock.loop import to_ns
from fedsim.network.base import Arrivals, Carrier, Departures, Listener, Parcel, Passage, has_timetable
from fedsim.network.fault_settings import BaseFaultConfig
from fedsim.params import Array
from fedsim.rng import Key

FAULT = RecordKind("fault", ("client", "dispatch", "up", "fault"))
"""A fault of a frame, or of a client at work on a dispatch, at the instant at which it shows."""

SPOILT = object()
"""What arrives in place of a frame whose bits have changed."""

SPOILT_CAUSE = "the checksum of the link is wrong"
"""Why such a frame cannot be decoded."""

LOSSES = ("partition", "loss")
"""Faults that lose a frame at the end of its way; the first one that strikes it is the cause."""

_WAYS = "down", "up"
NEVER_NS = 2**61
"""An instant that no run comes to."""


@dataclass(eq=False)
class RunFault:
    """A fault of a run.

    Attributes:
        config: Its settings.
        key: Names its draws.
        members: Of which clients, booleans ``[K]``; None for all.
    """

    config: BaseFaultConfig
    key: Key
    members: Array | None

    def __post_init__(self) -> None:
        lasts_s, every_s = self.config.lasts_s, self.config.every
        self._first_ns = to_ns(self.config.at)
        self._lasts_ns = to_ns(lasts_s) if isfinite(lasts_s) else NEVER_NS
        self._every_ns = NEVER_NS if every_s is None else to_ns(every_s)
        self._keys = [self.key.child(way) for way in _WAYS]

    def is_on(self, at_ns: Any) -> Any:
        """Return whether it is on at instants, ns: a number or an array."""
        since_ns = at_ns - self._first_ns
        return (since_ns >= 0) & (since_ns % self._every_ns < self._lasts_ns)

    def next_start_ns(self, after_ns: Any) -> Any:
        """Return when it begins next after instants, ns; not before :data:`NEVER_NS` if never."""
        begun = (after_ns - self._first_ns) // self._every_ns + 1
        return self._first_ns + self._every_ns * (begun * (begun > 0))

    def phase(self, at_ns: int) -> tuple[int | None, int]:
        """Return when it began, ns, None while it is not on; and when that changes next."""
        next_ns: int = self.next_start_ns(at_ns)
        if not self.is_on(at_ns):
            return None, next_ns
        began_ns = next_ns - self._every_ns
        return began_ns, began_ns + self._lasts_ns

    def is_for(self, client: int) -> bool:
        """Say whether it is for a client; it is not for the server."""
        return client >= 0 and (self.members is None or bool(self.members[client]))

    def strikes_client(self, client: int, began_ns: int) -> bool:
        """Say whether it strikes a client that it is for, when it begins at an instant, ns."""
        probability = self.config.probability
        return probability is None or self.key.child(client, began_ns).uniform() <= probability

    def concerns(self, parcel: Parcel) -> bool:
        """Say whether it is for frames of this direction from or to this client."""
        return self.is_for(parcel.client) and self.config.concerns(parcel.sender >= 0)

    def strikes(self, parcel: Parcel, at_ns: int) -> bool:
        """Say whether it strikes a frame that leaves, or, of a partition, is under way, at an instant, ns."""
        probability = self.config.probability
        if not (self.concerns(parcel) and self.is_on(at_ns)):
            return False
        if probability is None:
            return True
        key = self._keys[parcel.sender >= 0].child(parcel.client, parcel.dispatch, parcel.attempt)
        return key.uniform() <= probability

    def strikes_any(self, parcels: Departures, arrived_ns: Array, up: bool) -> bool:
        """Say whether it strikes any of some frames, which arrive at these instants, ns."""
        config, clients = self.config, parcels.clients
        if not config.concerns(up):
            return False
        are_struck = self.is_on(parcels.at_ns)
        if config.kind == "partition":
            are_struck |= self.next_start_ns(parcels.at_ns) <= arrived_ns
        if self.members is not None:
            are_struck = are_struck & self.members[clients]
        (places,) = np.nonzero(are_struck)
        if config.probability is None or not len(places):
            return len(places) > 0
        frames = zip(clients[places].tolist(), parcels.dispatches[places].tolist(), repeat(0), strict=False)
        return min(self._keys[up].child(0, 0, 0).uniforms(frames)) <= config.probability


def struck(faults: Sequence[RunFault], parcel: Parcel, at_ns: int) -> tuple[Counter[str], float]:
    """Return how many faults of each kind strike a frame that leaves at an instant, ns, and its delay, s."""
    those = [one.config for one in faults if one.strikes(parcel, at_ns)]
    return Counter(one.kind for one in those), sum(one.delay or 0.0 for one in those)


class FaultyCarrier:
    """Carries parcels as another carrier does, with faults.

    Args:
        carrier: The other carrier.
        faults: The faults.
        trace: Where they are recorded.
    """

    def __init__(self, carrier: Carrier, faults: Sequence[RunFault], trace: Trace) -> None:
        self._carrier = carrier
        self._faults = faults
        self._trace = trace
        self._partitions = [one for one in faults if one.config.kind == "partition"]

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now."""
        at_ns, cut_ns = now_ns(), NEVER_NS
        kinds, delay_s = struck(self._faults, parcel, at_ns)
        if not kinds["partition"]:  # else it is lost at the end of its way
            begins_ns = (one.next_start_ns(at_ns) for one in self._partitions if one.concerns(parcel))
            cut_ns = min(begins_ns, default=NEVER_NS)
        if not kinds and cut_ns >= NEVER_NS:
            return self._carrier.carry(parcel, listener)
        passage = _Struck(self, parcel, listener, kinds, delay_s)
        passage.inner = self._carrier.carry(parcel, passage)
        if cut_ns < NEVER_NS:
            passage.cut_off_at(cut_ns)
        return passage

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return the arrivals of parcels; none of them if a fault strikes one."""
        if not has_timetable(self._carrier):
            return Arrivals.of([])
        found = self._carrier.arrivals(parcels, up=up, all_at_once=all_at_once, by_ns=by_ns)
        if len(found.place) < len(parcels.at_ns):
            return found
        arrived_ns = np.empty(len(parcels.at_ns), np.int64)
        arrived_ns[found.place] = found.at_ns
        is_struck = any(one.strikes_any(parcels, arrived_ns, up) for one in self._faults)
        return Arrivals.of([]) if is_struck else found

    def record(self, parcel: Parcel, kind: str) -> None:
        """Record that a fault shows."""
        self._trace.record(FAULT, parcel.client, parcel.dispatch, parcel.sender >= 0, kind)


class _Struck:
    """A transfer with faults: listens to the transfer of the other carrier, and is the passage of its own.

    Attributes:
        inner: The transfer of the other carrier.
    """

    inner: Passage

    def __init__(
        self, carrier: FaultyCarrier, parcel: Parcel, listener: Listener, kinds: Counter[str], delay_s: float
    ) -> None:
        self._carrier, self._parcel, self._listener = carrier, parcel, listener
        self._kinds, self._left_s = kinds, delay_s
        self._timer: asyncio.TimerHandle | None = None  # while it is late
        self._is_late = False
        self._cut: asyncio.TimerHandle | None = None

    def cut_off_at(self, at_ns: int) -> None:
        """Lose it at an instant, ns, at which a partition begins, unless it has arrived until then."""
        loop = cast(VirtualTimeLoop, running_loop())  # by a time in s it could be a nanosecond off
        self._cut = loop.call_at_ns(at_ns, self._cut_off, event_class=EventClass.DEADLINE)

    def left(self) -> None:
        """Its last byte has left."""
        self._listener.left()

    def arrived(self, parcel: Parcel) -> None:
        """It has arrived, but for what faults do with it."""
        self._parcel = parcel
        for kind in LOSSES:
            if self._kinds[kind]:
                self._lose(kind)
                return
        if not self._left_s:
            self._arrive()
            return
        self._carrier.record(parcel, "delay")
        self._is_late = True
        self.resume()

    def lost(self, cause: str) -> None:
        """The other carrier has lost it."""
        self._end()
        self._listener.lost(cause)

    def _arrive(self) -> None:
        self._end()
        carrier, parcel = self._carrier, self._parcel
        if self._kinds["corrupt"]:
            carrier.record(parcel, "corrupt")
            parcel = parcel._replace(payload=SPOILT)
        self._listener.arrived(parcel)
        for _ in range(self._kinds["duplicate"]):
            carrier.record(parcel, "duplicate")
            self._listener.arrived(parcel)

    def _cut_off(self) -> None:
        self.cancel()
        self._lose("partition")

    def _lose(self, kind: str) -> None:
        self._end()
        self._carrier.record(self._parcel, kind)
        self._listener.lost(kind)

    def _end(self) -> None:
        self._timer, self._is_late = None, False
        if self._cut is not None:
            self._cut.cancel()

    def cancel(self) -> None:
        """Cancel the transfer."""
        self.pause()
        self._end()
        self.inner.cancel()

    def pause(self) -> None:
        """Pause the transfer."""
        if self._timer is not None:
            self._left_s = self._timer.when() - now_s()
            self._timer.cancel()
            self._timer = None
        self.inner.pause()

    def resume(self) -> None:
        """Continue after a pause."""
        if self._is_late and self._timer is None:
            self._timer = call_after(self._left_s, self._arrive)
        else:
            self.inner.resume()

    @property
    def remaining_bytes(self) -> float:
        """Bytes that have not crossed yet."""
        return self.inner.remaining_bytes
