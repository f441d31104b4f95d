"""Faults: their settings, and those of the network as a carrier around the carrier of a network model.

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
:mod:`fedsim.engine.slowdowns`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf, isfinite
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, ValidationInfo, create_model, field_validator

from fedsim.clock import RecordKind, Trace, VirtualTimeLoop, call_after, now_ns, now_s, running_loop
from fedsim.clock.loop import to_ns
from fedsim.config import AsTuple, Config, fault
from fedsim.network.base import Arrivals, Carrier, Departures, Listener, Parcel, Passage, has_timetable
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.units import PositiveSeconds, Seconds

FAULT = RecordKind("fault", ("client", "dispatch", "up", "fault"))
"""A fault of a frame, or of a client at work on a dispatch, at the instant at which it shows."""

Kind = Literal["loss", "duplicate", "delay", "corrupt", "partition", "crash", "slow"]
FATAL: frozenset[str] = frozenset({"loss", "corrupt", "partition"})
"""Faults after which a message does not arrive."""

OF_DEVICES: frozenset[str] = frozenset({"crash", "slow"})
"""Faults of clients' devices, and not of frames."""

LEAST_CRASHES = 0.001
"""The least share of clients that crash at an instant, but for none."""

LEAST_APART_S = 1.0
"""The least time after which devices slow down again, s."""

SPOILT = object()
"""What arrives in place of a frame whose bits have changed."""

_WAYS = "down", "up"
NEVER_NS = 2**61
"""An instant that no run comes to."""


class BaseFaultConfig(Config):
    """A fault of the network, or of clients."""

    kind: Kind
    """What happens: frames are lost (loss), arrive twice (duplicate), late (delay) or spoilt (corrupt),
    nothing passes for a while (partition), clients crash and lose what they are at (crash), or their devices
    are slow for a while (slow)."""
    probability: Annotated[float, Field(ge=0, le=1)] | None = Field(None, validate_default=True)
    """For how many of the frames, or, each time, of the clients that crash or are slow; a partition is for
    all."""
    delay: PositiveSeconds | None = Field(None, validate_default=True)
    """How much later a frame arrives, for a delay."""
    factor: Annotated[float, Field(gt=1, le=1000)] | None = Field(None, validate_default=True)
    """How many times as long computing takes, for slow devices."""
    keeps_state: bool = Field(True, validate_default=True)
    """Whether clients that crash still hold afterwards what they held before."""
    direction: Literal["both", "up", "down"] = "both"
    """Which frames: those towards the server (up), those towards clients (down), or both."""
    groups: Annotated[tuple[str, ...], AsTuple] = ()
    """Of which clients: those of these groups or labels; all if left out."""
    at: Seconds = Field("0 s", validate_default=True)
    """When it begins."""
    every: PositiveSeconds | None = None
    """After how long it begins again; once if left out."""

    @field_validator("probability", mode="after")
    @classmethod
    def _suits(cls, probability: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind == "crash" and probability is not None and 0 < probability < LEAST_CRASHES:
            raise fault(
                f"each crash is looked for, and {probability:g} is rare", f"write {LEAST_CRASHES} or more"
            )
        if kind == "partition" and probability is not None:
            raise fault(
                "a partition is for all frames of its clients", "leave probability out, or write 'loss'"
            )
        if kind not in ("partition", *OF_DEVICES, None) and probability is None:
            raise fault(f"it does not say how many frames {kind!r} is for", "add probability = 0.05, say")
        return probability

    @field_validator("delay", mode="after")
    @classmethod
    def _is_late(cls, delay: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind == "delay" and delay is None:
            raise fault("it does not say how late frames are", 'add delay = "2 s", say')
        if kind not in ("delay", None) and delay is not None:
            raise fault(f"{kind!r} delays nothing", "leave delay out, or write kind = 'delay'")
        return delay

    @field_validator("factor", mode="after")
    @classmethod
    def _is_slow(cls, factor: float | None, info: ValidationInfo) -> float | None:
        kind = info.data.get("kind")
        if kind == "slow" and factor is None:
            raise fault("it does not say how slow devices are", "add factor = 4, say")
        if kind not in ("slow", None) and factor is not None:
            raise fault(f"{kind!r} slows no device down", "leave factor out, or write kind = 'slow'")
        return factor

    @field_validator("keeps_state", mode="after")
    @classmethod
    def _may_be_lost(cls, keeps_state: bool, info: ValidationInfo) -> bool:
        kind = info.data.get("kind")
        if kind not in ("crash", None) and not keeps_state:
            raise fault(f"{kind!r} leaves clients' states alone", "leave it out, or write kind = 'crash'")
        return keeps_state

    @field_validator("direction", mode="after")
    @classmethod
    def _is_of_frames(cls, direction: str, info: ValidationInfo) -> str:
        kind = info.data.get("kind")
        if kind in OF_DEVICES and direction != "both":
            raise fault(f"{kind!r} is of clients, and not of frames in one direction", "leave it out")
        return direction

    @field_validator("every", mode="after")
    @classmethod
    def _is_seldom(cls, every_s: float | None, info: ValidationInfo) -> float | None:
        if info.data.get("kind") == "slow" and every_s is not None and every_s < LEAST_APART_S:
            raise fault("each begin is looked at, and that is often", f"write {LEAST_APART_S:g} s or more")
        return every_s

    @property
    def lasts_s(self) -> float:
        """How long it lasts, s; infinite if it does not end."""
        lasts_s: float | None = getattr(self, "for")
        return inf if lasts_s is None else lasts_s

    def concerns(self, up: bool) -> bool:
        """Whether it is for frames of a direction."""
        return self.direction == "both" or (self.direction == "up") == up


def _has_an_end(lasts_s: float | None, info: ValidationInfo) -> float | None:
    kind, every_s = info.data.get("kind"), info.data.get("every")
    if kind == "crash":
        if lasts_s is not None:
            raise fault("a crash is over at once", "leave it out")
        return None
    if every_s is not None and (lasts_s is None or lasts_s >= every_s):
        raise fault("it lasts until it begins again", "write a time that is shorter than every")
    return lasts_s


_LASTS: Any = (
    PositiveSeconds | None,
    Field(None, description="How long it lasts; to the end if left out.", validate_default=True),
)
FaultConfig: type[BaseFaultConfig] = create_model(
    "FaultConfig",
    __base__=BaseFaultConfig,
    __module__=__name__,
    __validators__={"has_an_end": field_validator("for", mode="after")(_has_an_end)},
    **{"for": _LASTS},
)
"""The settings of a fault; made so, since one of the keys is a keyword of Python."""


class RetryConfig(Config):
    """How a frame is sent again that a fault has kept from arriving; in each direction by itself."""

    times: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often, at most."""
    after: PositiveSeconds
    """How long after it has left its sender, or was cut off before that."""


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
