"""What is alive in a run between two events, as plain values: the rest follows from trace and journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedsim.bus import MemoryBus
from fedsim.runtime.clients.held import Held
from fedsim.runtime.message_codecs import Unreadable
from fedsim.runtime.state_encoding import classes_of
from fedsim.wire import Kinds

if TYPE_CHECKING:
    from fedsim.runtime.clients.host import ClientHost
    from fedsim.runtime.parts import Parts
    from fedsim.runtime.server.actor import ServerActor

ByDispatch = Mapping[int, Mapping[int, Any]]
"""By client, then by the number of the dispatch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is alive at the end of a round.

    Attributes:
        state: The server's state.
        held: What clients hold.
        down: Messages of dispatches whose client has not ended its work: on their way, waiting, at work.
        up: Replies that are on their way to the server, or wait there for a merge.
        sent: What the server has sent with dispatches whose replies may be coded as differences from it.
        num_saturated: Values beyond the range of a codec, up and down.
        has_used_length: Whether something would have been different with another number of rounds.
    """

    state: Any
    held: Mapping[int, Held]
    down: ByDispatch
    up: ByDispatch
    sent: ByDispatch = field(default_factory=dict)
    num_saturated: Sequence[int] = (0, 0)
    has_used_length: bool = False

    @classmethod
    def of(cls, actor: ServerActor, host: ClientHost, bus: MemoryBus) -> Snapshot:
        """Return what is alive now."""
        down, up, sent = dict[int, dict[int, Any]](), dict[int, dict[int, Any]](), dict[int, dict[int, Any]]()
        for header, message in (*bus.under_way(), *actor.unmerged()):
            (up if header.sender >= 0 else down).setdefault(header.client, {})[header.dispatch] = message
        for delivery in host.unserved():
            header = delivery.header
            if header.dispatch not in up.get(header.client, {}):
                down.setdefault(header.client, {})[header.dispatch] = delivery.message
        for header, message in actor.references():
            sent.setdefault(header.client, {})[header.dispatch] = message
        return cls(actor.state, host.all_held, down, up, sent, actor.saturations, actor.has_used_length)

    @staticmethod
    def classes(parts: Parts, kinds: Kinds) -> Collection[type]:
        """Return the classes that may occur in one."""
        messages = (plan.owner for plan in kinds.values())
        return (Snapshot, Held, Unreadable, *classes_of(parts.algorithm), *messages)
