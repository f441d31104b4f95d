"""Runs the hooks of a whole cohort beforehand, where nothing else goes on.

Then the clients get in the way of each other on the links alone, and everything that follows can be computed
at once: the arrivals of the dispatches; from these the hooks, all clients one request at a time; from their
durations the departures of the replies; from these their arrivals. What happens is recorded at its instants,
without events of the loop.

The records, the rows of the ledger and those of the table are the same as if the loop drove the cohort,
because the same functions make them. Where that is not certain, the loop does drive it: it takes over the
hooks as far as they have come, with the results of their jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias, cast

import numpy as np

from fedsim.bus import Delivery, Header, MemoryBus
from fedsim.bus.ledger import Ledger
from fedsim.clock import Trace, VirtualTimeLoop, running_loop
from fedsim.engine.engine import Engine
from fedsim.errors import InvariantError
from fedsim.network import Carrier, has_timetable
from fedsim.runtime import told_losses
from fedsim.runtime.clients.cohort import Cohort
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.clients.shared_hook import SharedHook
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import fingerprint
from fedsim.wire import Message, Packed

MAX_DOUBLINGS = 4
"""Doublings of the number of cohorts that the loop drives after each attempt in vain, at most."""

MAX_SHARED = 1024
"""The number of kept hooks at which all are forgotten."""

Kind: TypeAlias = tuple[int, int, str]
"""What like clients have in common: the identity of the message, training samples, architecture."""


@dataclass(eq=False)
class CohortDrivers:
    """Drives cohorts, where the settings that hold allow it.

    Under ``verify`` the loop drives every cohort, and each is rehearsed here and compared.

    Attributes:
        parts: What the run is made of.
        host: The clients.
        bus: Where frames travel.
        presence: Watches clients that may go away; None where none ever does.
        engine: Who does the jobs.
        trace: Where everything is recorded.
        num_cohorts: How many cohorts there were.
        num_driven: How many of them were driven here.
    """

    parts: Parts
    host: ClientHost
    bus: MemoryBus
    presence: Churn | None
    engine: Engine
    trace: Trace
    num_cohorts: int = field(default=0, init=False)
    num_driven: int = field(default=0, init=False)
    # What hooks have done in earlier rounds, by what is alike.
    _shared: dict[Hashable, SharedHook] = field(default_factory=dict, init=False)
    _unshared: set[str] = field(default_factory=set, init=False)  # exchanges with a hook for each client
    _num_in_vain: int = field(default=0, init=False)  # attempts in a row
    _num_left_out: int = field(default=0, init=False)  # cohorts for which there is no attempt
    _rehearsal: Rehearsal | None = field(default=None, init=False)

    @property
    def carrier(self) -> Carrier:
        """What carries the frames now; under ``verify`` one that is not audited."""
        if not self.parts.verify:
            return self.bus.carrier
        return self.parts.with_faults(self.parts.network.carrier(self.parts.links()), self.trace)

    @property
    def counts(self) -> dict[str, int]:
        """How many cohorts there were, and how many were driven here, or would have been under ``verify``.

        Empty where the settings have never allowed it.
        """
        counts = {"asked": self.num_cohorts, "run_beforehand": self.num_driven}
        return counts if self.num_cohorts else {}

    def drive(
        self, headers: Sequence[Header], sent: Sequence[Packed | None], num_runnable: int
    ) -> Cohort | None:
        """Return the cohort of dispatches that are sent now; None where the loop has to drive it.

        Args:
            headers: Those of the dispatches, in the order of sending.
            sent: What each carries.
            num_runnable: Tasks of the server that have not started yet.
        """
        self.check()
        if not (headers and self._may_drive()):
            return None
        self.num_cohorts += 1
        loop, is_verified = cast(VirtualTimeLoop, running_loop()), self.parts.verify
        cohort = Cohort(self, headers, loop, num_runnable, self.bus.ledger, self.trace)
        if not self._is_alone(cohort) or not self._is_waited_for(headers[0].exchange):
            return None
        self.host.give_up_ahead()  # what is left of cohorts that the loop took over
        if not cohort.knows_kinds(sent):
            return None
        if self._num_left_out:
            self._num_left_out -= 1
            return None
        rehearsal = Rehearsal(cohort) if is_verified else None
        is_certain = cohort.run_ahead(sent, self.host.copied_turn if is_verified else self._turn)
        # Where it is mostly in vain, as where clients leave, it is tried more and more seldom.
        self._num_in_vain = 0 if is_certain else min(self._num_in_vain + 1, MAX_DOUBLINGS)
        self._num_left_out = 2**self._num_in_vain - 1
        if not is_certain:
            return None
        self.num_driven += 1
        if rehearsal is not None:
            rehearsal.record()
            self._rehearsal = rehearsal
            return None
        self.host.ahead.clear()
        return cohort

    def like_clients(self, headers: Any, sent: Sequence[Packed | None]) -> Mapping[Kind, list[int]]:
        """Return the places of dispatches whose hooks may run once for all of them, by what is alike.

        Args:
            headers: Those of the dispatches, as one with arrays where they differ.
            sent: What each carries.
        """
        exchange, clients = headers.exchange, headers.client
        if exchange in self._unshared or not self.host.can_share(exchange, int(clients[0]), headers.round):
            return {}
        sizes = self.parts.data.sizes_of(clients, "train").tolist()
        models = self.parts.fleet.models(clients.tolist())
        alike = defaultdict[Kind, list[int]](list)
        attacks = self.parts.attacks
        alone = np.zeros(len(clients), bool) if attacks is None else attacks.send_other_replies(clients)
        for place, kind in enumerate(zip(map(id, sent), sizes, models, strict=True)):
            if not alone[place]:
                alike[kind].append(place)
        return alike

    @property
    def keeps_hooks(self) -> bool:
        """Whether what hooks do may be kept for later rounds: only those of fedsim's own algorithms."""
        return type(self.parts.algorithm).__module__.startswith("fedsim.")

    def shared_hook(self, like: Hashable, number: int) -> SharedHook | None:
        """Return what hooks of earlier rounds have done that are like these, if it holds for them.

        Args:
            like: What is alike (:meth:`keep`).
            number: The round.
        """
        hook, training = self._shared.get(like), self.parts.training.in_round(number, self.parts.num_rounds)
        return hook if hook and (hook.training is training or hook.training == training) else None

    def keep(self, hook: SharedHook, like: Hashable) -> None:
        """Keep what a hook has done, for later rounds, if it holds there.

        Args:
            hook: What it has done.
            like: Exchange, training samples, architecture, and the message apart from its trees.
        """
        if hook.is_lasting:
            if len(self._shared) == MAX_SHARED:
                self._shared.clear()
            self._shared[like] = hook

    def forget_hooks(self) -> None:
        """Keep nothing of what hooks have done, and of the frames that they have sent."""
        self._shared.clear()

    def do_not_share(self, exchange: str) -> None:
        """Run the hooks of an exchange for each client from now on."""
        self._unshared.add(exchange)

    def check(self) -> None:
        """Compare what has been rehearsed with what the loop did, if anything was.

        Raises:
            InvariantError: They differ.
        """
        rehearsal, self._rehearsal = self._rehearsal, None
        if rehearsal is not None:
            rehearsal.check()

    def _turn(self, delivery: Delivery) -> Turn:
        """Return a turn that the loop can take over."""
        turn = self.host.turn(delivery)
        self.host.hold_ahead(turn)
        return turn

    def _is_alone(self, cohort: Cohort) -> bool:
        """Return whether nothing goes on but work of the server."""
        is_away = self.presence is not None and not self.presence.is_idle
        return (
            self.bus.is_idle
            and self.host.is_idle
            and not is_away
            and cohort.is_quiet_until(cohort.loop.now_ns)
        )

    def _may_drive(self) -> bool:
        """Return whether the settings allow to drive cohorts, which may change in a fork."""
        until, pacing = self.parts.until, self.parts.pacing
        may_end_between = until is not None and not (until.bytes is None and until.joules is None)
        if may_end_between or self.parts.edges is not None:  # cohorts of several edges overlap
            return False
        meter = None if self.presence is None else self.presence.meter
        if meter is not None and meter.is_metering_all:  # also in a fork whose budget of energy comes later
            return False
        return pacing.waits_for_all and has_timetable(self.carrier)

    def _is_waited_for(self, exchange: str) -> bool:
        """Return whether the server waits for all replies of an exchange."""
        return exchange != told_losses.QUESTION or self.parts.selector.answer_within_s is None


class Rehearsal:
    """A cohort whose hooks run beforehand on copies, for a comparison with what the loop does.

    The cohort gets a ledger and a trace of its own.
    """

    def __init__(self, cohort: Cohort) -> None:
        self._cohort, self._drivers = cohort, cohort.drivers
        bus = self._drivers.bus
        self._first_row, self._first_record = len(bus.ledger), len(self._drivers.trace.kept)
        cohort.trace, cohort.ledger = Trace(keep=True), Ledger()
        self._replies: dict[tuple[int, int], Message | None] = {}

    def record(self) -> None:
        """Record all events, and keep the replies; from now on keep those of the loop too."""
        headers = self._cohort.headers
        for place, _, message, _ in self._cohort.record_all():
            self._replies[headers[place].receiver, headers[place].dispatch] = message
        self._drivers.host.sent = {}

    def check(self) -> None:
        """Compare with what the loop did.

        Raises:
            InvariantError: They differ.
        """
        host, trace, ledger = self._drivers.host, self._cohort.trace, self._cohort.ledger
        kinds = {kind for _, kind, *_ in trace.kept}
        kept = self._drivers.trace.kept[self._first_record :]
        of_loop = [record for record in kept if record[1] in kinds and record[2] >= 0]
        for ours, theirs in zip_longest(trace.kept, of_loop[: len(trace.kept)]):
            _compare(f"record {theirs}", ours, theirs)
        columns, rows = (
            self._drivers.bus.ledger.columns(),
            slice(self._first_row, self._first_row + len(ledger)),
        )
        for name, column in ledger.columns().items():
            _compare(f"column {name!r} of the ledger", column.tolist(), columns[name][rows].tolist())
        replies, host.sent = host.sent or {}, None
        for key, reply in self._replies.items():
            _compare(f"the reply of client {key[0]}", fingerprint(reply), fingerprint(replies.get(key)))


def _compare(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise InvariantError(
            f"{what} would be another one if the cohort's hooks ran beforehand: {ours}. This is a bug in "
            "fedsim: report it with the scenario"
        )
