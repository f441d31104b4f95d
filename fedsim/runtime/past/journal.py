"""The journal: what values decided at the server, so that a run can be repeated without values.

The trace says what clients did, and how long their frames were. All else that depends on values is here. A
journal is a sequence of entries, one for each call of a server's hook or of the observer, in their order. An
entry is a list of a word and what the call returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgpack

from fedsim.algorithms.hook_work import HookWork
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.state_encoding import encode

if TYPE_CHECKING:
    from fedsim.runtime.past.server_past import ServerSnapshot
    from fedsim.runtime.past.snapshot import Snapshot
    from fedsim.runtime.start_values import StartValues

Entry: TypeAlias = list[Any]
AnySnapshot: TypeAlias = "Snapshot | ServerSnapshot"

INSTRUCTED, VETTED, MERGED, TOLD, MEASURED, FOUND = "instruct", "vet", "merge", "told", "measure", "find"


class Keeper(Protocol):
    """Keeps what a run needs to be continued later.

    Attributes:
        journal: Notes what values decide.
    """

    journal: Journal

    def end_round(self, rounds: int, snapshot: Callable[[], AnySnapshot], initial: StartValues) -> bool:
        """Keep a snapshot if it is time to; return whether it was.

        Args:
            rounds: Rounds that have ended.
            snapshot: Takes it.
            initial: The start models, which every run of the scenario has.
        """


class Journal:
    """Collects entries, and hands them on at the end of each round.

    Args:
        write: Takes the entries of a round, packed.

    Attributes:
        fault: Why the run cannot be repeated from the journal; None if it can.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._entries: list[Entry] = []
        self._works: list[HookWork] = []
        self.fault: str | None = None

    def instructed(self, work: HookWork | None, omitted: Sequence[int]) -> None:
        """Note an *instruct* hook: what it did, and which of its clients got no message."""
        self._add(INSTRUCTED, self._steps(work), list(omitted))

    def vetted(self, reasons: Sequence[str | None]) -> None:
        """Note why replies were rejected, None for those that were not."""
        self._add(VETTED, {place: reason for place, reason in enumerate(reasons) if reason is not None})

    def merged(self, work: HookWork | None, refusal: str | None) -> None:
        """Note a *merge* hook: what it did, and why its merge was refused, if it was."""
        self._add(MERGED, self._steps(work), refusal)

    def told(self, losses: Mapping[int, float]) -> None:
        """Note the losses that replies told."""
        self._add(TOLD, {client: float(loss) for client, loss in losses.items()})

    def measured(self, accuracy: Accuracy | None, num_observed: int) -> None:
        """Note an evaluation, and how many jobs were observed for it one after the other."""
        self._add(MEASURED, encode(accuracy), num_observed)

    def found(self, accuracies: Mapping[int, float], num_observed: int) -> None:
        """Note accuracies of clients, likewise."""
        self._add(FOUND, {client: float(value) for client, value in accuracies.items()}, num_observed)

    def end_round(self) -> None:
        """Hand on the entries since the last round."""
        for work in self._works:
            self.fault = self.fault or work.fault
        self._write(b"".join(map(msgpack.packb, self._entries)))
        self._entries.clear()
        self._works.clear()

    def _add(self, *entry: Any) -> None:
        self._entries.append(list(entry))

    def _steps(self, work: HookWork | None) -> Any:
        if work is None:
            return []
        work.end()
        self._works.append(work)
        return work.steps  # to which background work still adds
