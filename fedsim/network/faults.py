"""Faults of the network, as a carrier around the carrier of a network model.

Whether a frame is lost, doubled, late or spoilt is drawn by its client, dispatch, direction and attempt,
never by the order of events. A frame that is struck crosses the link as any other, and counts as sent:

- *loss*: it is lost at the end of its way.
- *corrupt*: it arrives, the checksum of the link is wrong, and it is thrown away as undecodable.
- *delay*: it arrives later, while the link is free for others. While its client is away, this time stands
  still too, as all that comes from or goes to the client does.
- *duplicate*: it arrives twice at the same instant; the second copy takes no time of the link.
- *partition*: nothing passes. What is on its way when a partition begins is lost then, and what leaves while
  it lasts is lost at the end of its way.

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

from fedsim.clock import RecordKind, Trace, VirtualTimeLoop, call_after, now_ns, now_s, running_loop
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
        passed = np.maximum((after_ns - self._first_ns) // self._every_ns + 1, 0)
        return self._first_ns + self._every_ns * passed

    def phase(self, at_ns: int) -> tuple[int | None, int]:
        """Return when it began, ns, None while it is not on; and when that changes next."""
        next_ns = int(self.next_start_ns(at_ns))
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
        struck = self.is_on(parcels.at_ns)
        if config.kind == "partition":
            struck |= self.next_start_ns(parcels.at_ns) <= arrived_ns
        if self.members is not None:
            struck = struck & self.members[clients]
        (places,) = np.nonzero(struck)
        if config.probability is None or not len(places):
            return len(places) > 0
        frames = zip(clients[places].tolist(), parcels.dispatches[places].tolist(), repeat(0), strict=False)
        return min(self._keys[up].child(0, 0, 0).uniforms(frames)) <= config.probability


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
        self._under_way: dict[_Struck, None] = {}  # those that a partition may cut off
        self._timer: asyncio.TimerHandle | None = None

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer now."""
        at_ns = now_ns()
        struck = [one.config for one in self._faults if one.strikes(parcel, at_ns)]
        may_be_cut_off = any(one.concerns(parcel) for one in self._partitions)
        if not struck and not may_be_cut_off:
            return self._carrier.carry(parcel, listener)
        passage = _Struck(self, parcel, listener, struck)
        passage.inner = self._carrier.carry(parcel, passage)
        if may_be_cut_off:
            self._under_way[passage] = None
            self._watch()
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
        struck = any(one.strikes_any(parcels, arrived_ns, up) for one in self._faults)
        return Arrivals.of([]) if struck else found

    def record(self, parcel: Parcel, kind: str) -> None:
        """Record that a fault shows."""
        self._trace.record(FAULT, parcel.client, parcel.dispatch, parcel.sender >= 0, kind)

    def ended(self, passage: _Struck) -> None:
        """Forget a transfer."""
        self._under_way.pop(passage, None)
        if not self._under_way and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Look at what is under way when the next partition begins."""
        if self._timer is not None:
            return
        next_ns = min(int(one.next_start_ns(now_ns())) for one in self._partitions)
        if next_ns < NEVER_NS:
            loop = cast(VirtualTimeLoop, running_loop())  # by a time in s it could be a nanosecond off
            self._timer = loop.call_at_ns(next_ns, self._cut)

    def _cut(self) -> None:
        """Partitions begin: what is under way there is lost."""
        self._timer, at_ns = None, now_ns()
        begins = [one for one in self._partitions if one.is_on(at_ns) and not one.is_on(at_ns - 1)]
        for passage in list(self._under_way):
            # What leaves at this very instant is lost at the end of its way, whichever event comes first.
            if not passage.is_cut_off and any(one.strikes(passage.parcel, at_ns) for one in begins):
                passage.cancel()
                passage.lose("partition")
        if self._under_way:
            self._watch()


class _Struck:
    """A transfer with faults: listens to the transfer of the other carrier, and is the passage of its own.

    Attributes:
        parcel: What is carried.
        inner: The transfer of the other carrier.
    """

    inner: Passage

    def __init__(
        self, carrier: FaultyCarrier, parcel: Parcel, listener: Listener, struck: Sequence[BaseFaultConfig]
    ) -> None:
        self._carrier, self.parcel, self._listener = carrier, parcel, listener
        self._struck = Counter[str](one.kind for one in struck)
        self._left_s = sum(one.delay or 0.0 for one in struck)
        self._timer: asyncio.TimerHandle | None = None  # while it is late
        self._is_late = False

    @property
    def is_cut_off(self) -> bool:
        """Whether it has left in a partition."""
        return self._struck["partition"] > 0

    def left(self) -> None:
        """Its last byte has left."""
        self._listener.left()

    def arrived(self, parcel: Parcel) -> None:
        """It has arrived, but for what faults do with it."""
        for kind in ("partition", "loss"):
            if self._struck[kind]:
                self.lose(kind)
                return
        self.parcel = parcel
        if not self._left_s:
            self._arrive()
            return
        self._carrier.record(parcel, "delay")
        self._is_late = True
        self.resume()

    def lost(self, cause: str) -> None:
        """The other carrier has lost it."""
        self._carrier.ended(self)
        self._listener.lost(cause)

    def lose(self, kind: str) -> None:
        """A fault loses it."""
        self._carrier.ended(self)
        self._carrier.record(self.parcel, kind)
        self._listener.lost(kind)

    def _arrive(self) -> None:
        self._timer, self._is_late = None, False
        carrier, parcel = self._carrier, self.parcel
        carrier.ended(self)
        if self._struck["corrupt"]:
            carrier.record(parcel, "corrupt")
            parcel = parcel._replace(payload=SPOILT)
        self._listener.arrived(parcel)
        for _ in range(self._struck["duplicate"]):
            carrier.record(parcel, "duplicate")
            self._listener.arrived(parcel)

    def cancel(self) -> None:
        """Cancel the transfer."""
        self._carrier.ended(self)
        self.pause()
        self._is_late = False
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
