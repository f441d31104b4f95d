"""The past of a run over sockets, whose server was started again.

Times are real there, so nothing can be repeated. The records of the trace are told again to all that listen,
what the server remembers beside comes from the checkpoint, and dispatches that were open count as dropped.
Client processes go back to the checkpoint by themselves (:mod:`fedsim.bus.http.client`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from fedsim.algorithms.contexts import Initial
from fedsim.bus import Header, Ledger, Totals
from fedsim.bus.ledger import Outcome
from fedsim.bus.memory import TRANSFER_END, transfer_end_values
from fedsim.clock import RecordKind, Trace, now_ns
from fedsim.engine.confusion import Confusion
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.selectors.base import Selector
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.state_encoding import classes_of
from fedsim.wire import SERVER, Kinds

STARTED_AGAIN = "the server was started again"
"""Why dispatches are dropped that were open at the checkpoint."""

_NOTHING = RecordKind("", ()), ()


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """What a server remembers at the end of a round.

    Attributes:
        values: As :meth:`fedsim.runtime.server.actor.ServerActor.remembered` gives them.
        has_used_length: Whether something would have been different with another number of rounds.
    """

    values: Mapping[str, Any]
    has_used_length: bool

    @staticmethod
    def classes(parts: Parts, kinds: Kinds) -> Collection[type]:
        """Return the classes that may occur in one."""
        messages = (plan.owner for plan in kinds.values())
        plugins = *classes_of(parts.algorithm), *classes_of(parts.selector, Selector)
        return (ServerSnapshot, RoundRow, Totals, Accuracy, Confusion, *plugins, *messages)


@dataclass(eq=False)
class ServerPast:
    """What a server goes on from.

    Attributes:
        load: Gives what it remembers, given what makes start models.
        records: Those of the trace until the checkpoint; none any more once they are told.
        at_ns: The time of the checkpoint, ns.
        end: Called when the records are told.
    """

    load: Callable[[Initial], ServerSnapshot]
    records: Sequence[tuple[RecordKind, Sequence[Any]]]
    at_ns: int
    end: Callable[[], object]

    @cached_property
    def firsts(self) -> Mapping[int, int]:
        """Return the next dispatch of each client that had one."""
        return Counter(record[2] for kind, record in self.records if kind.name == "dispatch")

    def tell(self, trace: Trace, ledger: Ledger) -> Callable[[], None]:
        """Tell the records again, and enter the frames.

        Returns:
            What records that the frames are lost that were under way.
        """
        headers, rows = dict[tuple[int, int], Header](), dict[Header, int]()
        under_way = dict[Header, int]()
        for (kind, (_, at_ns, *values)), (following, after) in pairwise([*self.records, _NOTHING]):
            trace.repeat(kind, (at_ns, *values))
            if kind.name == "dispatch":
                client, dispatch, round_, exchange, turn = values
                headers[client, dispatch] = Header(SERVER, client, round_, exchange, dispatch, turn)
            elif kind.name in ("transfer_start", "transfer_end", "transfer_copy"):
                client, dispatch, up, *others = values
                header = headers[client, dispatch]
                header = header.reply() if up else header
                if kind.name == "transfer_start":
                    plain_bytes = after[-1] if following.name == "coded" else None
                    row = ledger.sent(at_ns, header, up, tuple(others), plain_bytes)
                    rows[header] = under_way[header] = row
                else:
                    under_way.pop(header, None)
                    ledger.ended(at_ns, rows[header], Outcome[others[0].upper()])
        self.end()
        self.records = ()  # which may be many

        def lose() -> None:
            for header, row in under_way.items():
                ledger.ended(now_ns(), row, Outcome.LOST)
                lost = transfer_end_values(header, header.sender >= 0, Outcome.LOST, STARTED_AGAIN)
                trace.record(TRANSFER_END, *lost)

        return lose
