"""What becomes of a client's work when its device leaves before the work is done.

Only clients at work are watched, by one timer each, which fires when the client's availability may change
next. When a client leaves, its transfers and the virtual time of its jobs stop; ``on_leave`` says what
happens then. ``resume``: they go on when it returns. ``restart``: they begin anew when it returns. ``lost``:
the work is lost, and so is work that is sent while the client is away; the server learns of it when the lease
runs out.

A device may also drop out, at a constant hazard while it is at work and available, crash at an instant that
the scenario gives, or run empty; then its work is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf, isfinite, log
from typing import TYPE_CHECKING, Literal, Protocol

from fedsim.clock import RecordKind, Trace, call_after, now_ns, now_s
from fedsim.clock.loop import to_ns
from fedsim.network.faults import FAULT, NEVER_NS
from fedsim.rng import Key
from fedsim.runtime.clients.batteries import EMPTY, Meter

if TYPE_CHECKING:
    from fedsim.runtime.parts import Parts

LEAVE = RecordKind("leave", ("client", "policy"))
RETURN = RecordKind("return", ("client",))
ABANDON = RecordKind("abandon", ("client", "dispatch", "cause"))

OnLeave = Literal["resume", "restart", "lost"]


class Pausable(Protocol):
    """What stands still while a client is away: the bus and the engine."""

    def pause(self, client: int) -> None:
        """Hold all that the client does."""

    def resume(self, client: int, *, restart: bool) -> None:
        """Let it go on, or begin anew."""


@dataclass(slots=True, eq=False)
class _Hazard:
    """The time that is left until a device drops out, which passes while it is there."""

    lasts_s: float
    drop_out: Callable[[], None]
    timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        if isfinite(self.lasts_s):
            self.timer = call_after(self.lasts_s, self.drop_out)

    def stop(self) -> None:
        if self.timer is not None:
            self.lasts_s = self.timer.when() - now_s()
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True)
class _Watched:
    dispatches: dict[int, _Hazard]
    is_away: bool = False
    change: asyncio.TimerHandle | None = None
    crash: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Churn:
    """Watches the clients at work.

    Attributes:
        parts: Whose fleet has the availability and the hazards, when clients crash, and what becomes of work.
        pausables: Bus and engine.
        give_up: Ends a client's work for good, naming the cause.
        trace: Where comings and goings are recorded.
        key: Names the draws of drop-outs.
        meter: What is left in batteries; None where nobody's energy is metered.
    """

    parts: Parts
    pausables: tuple[Pausable, ...]
    give_up: Callable[[int, str], None]
    trace: Trace
    key: Key
    meter: Meter | None = None
    _watched: dict[int, _Watched] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.meter is not None:
            self.meter.run_empty = self._run_empty

    @cached_property
    def _drops_out(self) -> bool:
        return self.parts.fleet.drops_out

    def expect(self, client: int, dispatch: int) -> bool:
        """A client is at work on a dispatch from now on; say whether it is, and not lost at once."""
        hazard = self._draw_drop_out(client, dispatch)
        watched = self._watched.get(client)
        if watched is None:
            self._watched[client] = _Watched({dispatch: hazard})
            hazard.go_on()
            self._await_crash(client)
            self._look(client)
        else:
            watched.dispatches[dispatch] = hazard
            if not watched.is_away:
                hazard.go_on()
        if self.meter is not None and self.meter.is_empty(client):
            self._run_empty(client)
        return client in self._watched

    @property
    def is_idle(self) -> bool:
        """Whether no client is monitored."""
        return not self._watched

    def stays(self, client: int, dispatch: int, until_ns: int) -> bool:
        """Say whether a client would be there from now to an instant, itself included, for a dispatch.

        Nobody is watched for it. Of one with a battery it is not known.
        """
        if self.meter is not None and self.parts.fleet.battery(client) is not None:
            return False
        started_ns = now_ns()
        lasts_s = self._lasts_s(client, dispatch)
        if isfinite(lasts_s) and started_ns + to_ns(lasts_s) <= until_ns:
            return False
        crashes = self.parts.crashes
        if crashes is not None and crashes.next_ns(client, started_ns) <= until_ns:
            return False
        at_s, until_s = started_ns / 1e9, until_ns / 1e9
        while at_s <= until_s:
            is_there, next_s = self.parts.fleet.availability.look(client, at_s)
            if not is_there:
                return False
            at_s = max(next_s, at_s + 1e-9)
        return True

    def _draw_drop_out(self, client: int, dispatch: int) -> _Hazard:
        return _Hazard(self._lasts_s(client, dispatch), partial(self._abandon, client, "dropped out"))

    def _lasts_s(self, client: int, dispatch: int) -> float:
        """Return how long a device is at work on a dispatch before it drops out, s."""
        if self._drops_out and (hazard_per_s := self.parts.fleet.device(client).drop_out_per_s):
            return -log(self.key.child("drop_out", client, dispatch).uniform()) / hazard_per_s
        return inf

    def dismiss(self, client: int, dispatch: int) -> None:
        """Nothing more is to come of a dispatch."""
        watched = self._watched.get(client)
        if watched is None or dispatch not in watched.dispatches:
            return
        watched.dispatches.pop(dispatch).stop()
        if not watched.dispatches:
            if watched.is_away:
                # Its return is not watched before its next dispatch: for the trace the absence ends here.
                self.trace.record(RETURN, client)
            self._forget(client)
        if self.meter is not None:
            self.meter.dismiss(client, dispatch)

    def close(self) -> None:
        """Watch nobody any more."""
        for client in list(self._watched):
            self._forget(client)

    def _look(self, client: int) -> None:
        """See whether a client is there, act on a change, and look again when it may change next."""
        watched, at_s = self._watched[client], now_s()
        is_there, next_s = self.parts.fleet.availability.look(client, at_s)
        is_away = not is_there
        if is_away != watched.is_away:
            watched.is_away = is_away
            if not is_away:
                self._come(client)
            elif self.parts.on_leave == "lost":
                self._abandon(client, "left")
                return
            else:
                self.trace.record(LEAVE, client, self.parts.on_leave)
                for hazard in watched.dispatches.values():
                    hazard.stop()
                for one in self.pausables:
                    one.pause(client)
        # Time is whole nanoseconds here: a look that comes a rounding too early looks again a little later.
        wait_s = max(next_s - at_s, 1e-9)
        watched.change = call_after(wait_s, self._look, client) if isfinite(next_s) else None

    def _come(self, client: int) -> None:
        self.trace.record(RETURN, client)
        for hazard in self._watched[client].dispatches.values():
            hazard.go_on()
        for one in self.pausables:
            one.resume(client, restart=self.parts.on_leave == "restart")

    def _await_crash(self, client: int) -> None:
        """Let a client crash when it is time to; it cannot while it is away."""
        crashes = self.parts.crashes
        if crashes is not None and (next_ns := crashes.next_ns(client, now_ns())) < NEVER_NS:
            wait_s = (next_ns - now_ns()) / 1e9
            self._watched[client].crash = call_after(wait_s, self._crash, client)

    def _crash(self, client: int) -> None:
        watched = self._watched[client]
        watched.crash = None
        if watched.is_away:
            self._await_crash(client)
            return
        for dispatch in watched.dispatches:
            self.trace.record(FAULT, client, dispatch, True, "crash")
        self._abandon(client, "crash")

    def _run_empty(self, client: int) -> None:
        if client in self._watched:
            self._abandon(client, EMPTY)

    def _abandon(self, client: int, cause: str) -> None:
        for dispatch in self._watched[client].dispatches:
            self.trace.record(ABANDON, client, dispatch, cause)
            if self.meter is not None:
                self.meter.dismiss(client, dispatch)
        self._forget(client)
        self.give_up(client, cause)

    def _forget(self, client: int) -> None:
        watched = self._watched.pop(client)
        for hazard in watched.dispatches.values():
            hazard.stop()
        for timer in (watched.change, watched.crash):
            if timer is not None:
                timer.cancel()
        if watched.is_away:
            # Nothing of it is under way any more; what comes next is watched anew.
            for one in self.pausables:
                one.resume(client, restart=False)
