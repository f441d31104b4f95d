"""What becomes of work when a client's device goes away in the middle of it.

Only clients at work are watched: one timer each, at the next instant at which its availability may change.
Leaving stops the client's transfers and the virtual time of its jobs at once; what happens next is the
scenario's choice. ``resume``: on its return all goes on where it was. ``restart``: on its return transfers
and jobs under way begin anew. ``lost``: the work is over, that which sets out while the client is away too,
and the server learns of it when the lease runs out.

Beside it, a device may drop out for good at a constant hazard while it is at work; then the work is lost too.
While it is away, the hazard stands still like the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite, log
from typing import Literal, Protocol

from fedsim.clock import RecordKind, Trace, call_after, now_s
from fedsim.fleet import Fleet
from fedsim.rng import Key

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


class _Hazard:
    """Until a device drops out, in the time that it is there."""

    __slots__ = ("_drop_out", "_lasts_s", "_timer")

    def __init__(self, lasts_s: float, drop_out: Callable[[], None]) -> None:
        self._lasts_s = lasts_s
        self._drop_out = drop_out
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        self._timer = call_after(self._lasts_s, self._drop_out)

    def stop(self) -> None:
        if self._timer is not None:
            self._lasts_s = self._timer.when() - now_s()
            self._timer.cancel()
            self._timer = None


@dataclass(slots=True)
class _Watched:
    dispatches: dict[int, _Hazard | None]
    is_away: bool = False
    change: asyncio.TimerHandle | None = None


class Churn:
    """Watches the clients at work.

    Args:
        fleet: Whose availability and hazards.
        on_leave: What becomes of work.
        pausables: Bus and engine.
        give_up: Ends a client's work for good, naming the cause.
        trace: Where comings and goings are recorded.
        key: Names the draws of drop-outs.
    """

    def __init__(
        self,
        fleet: Fleet,
        on_leave: OnLeave,
        pausables: tuple[Pausable, ...],
        give_up: Callable[[int, str], None],
        trace: Trace,
        key: Key,
    ) -> None:
        self._fleet = fleet
        self._drops_out = fleet.drops_out
        self._on_leave = on_leave
        self._pausables = pausables
        self._give_up = give_up
        self._trace = trace
        self._key = key
        self._watched: dict[int, _Watched] = {}

    def expect(self, client: int, dispatch: int) -> bool:
        """A client is at work on a dispatch from now on; say whether it is, and not lost at once."""
        hazard = self._draw_drop_out(client, dispatch) if self._drops_out else None
        watched = self._watched.get(client)
        if watched is None:
            self._watched[client] = _Watched({dispatch: hazard})
            if hazard is not None:
                hazard.go_on()
            self._look(client)
            return client in self._watched
        watched.dispatches[dispatch] = hazard
        if hazard is not None and not watched.is_away:
            hazard.go_on()
        return True

    def _draw_drop_out(self, client: int, dispatch: int) -> _Hazard | None:
        hazard_per_s = self._fleet.device(client).drop_out_per_s
        if not hazard_per_s:
            return None
        lasts_s = -log(self._key.child("drop_out", client, dispatch).uniform()) / hazard_per_s
        return _Hazard(lasts_s, partial(self._abandon, client, "dropped out"))

    def dismiss(self, client: int, dispatch: int) -> None:
        """Nothing more is to come of a dispatch."""
        watched = self._watched.get(client)
        if watched is None or dispatch not in watched.dispatches:
            return
        _stop(watched.dispatches.pop(dispatch))
        if not watched.dispatches:
            if watched.is_away:
                # Nobody looks whether it is back before it is asked again: its absence is over for the trace.
                self._trace.record(RETURN, client)
            self._forget(client)

    def close(self) -> None:
        """Watch nobody any more."""
        for client in list(self._watched):
            self._forget(client)

    def _look(self, client: int) -> None:
        """See whether a client is there, act on a change, and look again when it may change next."""
        watched, at_s = self._watched[client], now_s()
        is_there, next_s = self._fleet.availability.look(client, at_s)
        is_away = not is_there
        if is_away != watched.is_away:
            watched.is_away = is_away
            if not is_away:
                self._come(client)
            elif self._on_leave == "lost":
                self._abandon(client, "left")
                return
            else:
                self._trace.record(LEAVE, client, self._on_leave)
                for hazard in watched.dispatches.values():
                    _stop(hazard)
                for one in self._pausables:
                    one.pause(client)
        # Time is whole nanoseconds here: a look that comes a rounding too early looks again a little later.
        wait_s = max(next_s - at_s, 1e-9)
        watched.change = call_after(wait_s, self._look, client) if isfinite(next_s) else None

    def _come(self, client: int) -> None:
        self._trace.record(RETURN, client)
        for hazard in self._watched[client].dispatches.values():
            if hazard is not None:
                hazard.go_on()
        for one in self._pausables:
            one.resume(client, restart=self._on_leave == "restart")

    def _abandon(self, client: int, cause: str) -> None:
        for dispatch in self._watched[client].dispatches:
            self._trace.record(ABANDON, client, dispatch, cause)
        self._forget(client)
        self._give_up(client, cause)

    def _forget(self, client: int) -> None:
        watched = self._watched.pop(client)
        for hazard in watched.dispatches.values():
            _stop(hazard)
        if watched.change is not None:
            watched.change.cancel()
        if watched.is_away:
            # Nothing of it is under way any more; what comes next is watched anew.
            for one in self._pausables:
                one.resume(client, restart=False)


def _stop(hazard: _Hazard | None) -> None:
    if hazard is not None:
        hazard.stop()
