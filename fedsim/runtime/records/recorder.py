"""The recorder: makes the result of a run from the records of its trace, the same for every bus.

What begins or ends a dispatch is recorded in the trace and nowhere else. The recorder and its table of
dispatches listen to the trace: rows of rounds, tallies, causes and lines of the log follow from its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import structlog

from fedsim.bus import Ledger, Log, Totals
from fedsim.clock import RecordKind, Trace, now_ns, now_s
from fedsim.errors import MergeError
from fedsim.runtime.evaluation import Accuracy, FinalModels
from fedsim.runtime.records.dispatch_rows import OUTCOMES
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.invariants import check_counts, check_trace
from fedsim.runtime.records.result import RoundRow, RunResult, last_measured

if TYPE_CHECKING:
    from fedsim.runtime.parts import Parts

ROUND_END = RecordKind("round_end", ("round", "asked", "merged"))

Observe: TypeAlias = Callable[["Recorder", "Parts"], object]
"""Given the recorder of a run that begins, and what the run is made of, in the run's thread.

Another thread may read the rows and the counts of both while the run goes on.
"""


def unobserved(recorder: Recorder, parts: Parts) -> None:
    """Let nobody look."""


def silent() -> Log:
    """Return a logger that writes nothing."""
    log: Log = structlog.wrap_logger(None, processors=[_drop]).bind()
    return log


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent


@dataclass(eq=False)
class Recorder:
    """Listens to a trace until :meth:`close`.

    What happens between two rounds counts in the second, and what is left when the run ends gets a row of its
    own, so that rows always sum to the whole.

    Attributes:
        num_clients: K.
        ledger: Where the bus enters every frame.
        trace: What to listen to; the end of a round is recorded there.
        log: Where drops, rejections, late replies and rounds are noted.
        watch: Told of each round as it ends.
        keep_spans: Whether it is kept when each dispatch was in which phase.
        dispatches: Every dispatch, and where its time went.
        rows: One per finished round.
        rejections: Replies that could not be merged, by reason.
        faults: How many faults have struck, by kind.
        num_rounds: How many rounds were begun, once they are over.
    """

    num_clients: int
    ledger: Ledger
    trace: Trace
    log: Log
    watch: Callable[[RoundRow], None] = lambda row: None
    keep_spans: bool = False

    def __post_init__(self) -> None:
        self.dispatches = DispatchTable(self.trace, keep_spans=self.keep_spans)
        self.rows: list[RoundRow] = []
        self.rejections, self.faults = Counter[str](), Counter[str]()
        self._round = 0
        self._began_at_s: float | None = None  # of the round at hand
        self._before = Totals()
        self._counted = Counter[str]()  # of the table's counts, in rows before
        self._drops = Counter[str]()
        self._refusal: tuple[int, str] | None = None  # the first: round and reason
        self.num_rounds = 0
        self._stopped_by: str | None = None
        self.trace.listen(
            {
                "stop": self._was_stopped,
                "drop": self._dropped,
                "reject": self._rejected,
                "late": self._came_late,
                "fault": self._struck,
            }
        )

    def begin_round(self, round: int) -> None:  # noqa: A002
        """A round begins."""
        self._round, self._began_at_s = round, now_s()

    @property
    def is_in_round(self) -> bool:
        """Whether a round has begun that has not ended."""
        return self._began_at_s is not None

    @property
    def is_measured(self) -> bool:
        """Whether the last round was evaluated."""
        return bool(self.rows) and self.rows[-1].accuracy is not None

    def refused(self, error: MergeError) -> None:
        """Note that a merge was refused: the first is the first sign of divergence."""
        self._refusal = self._refusal or (self._round, str(error))

    def end_round(self, accuracy: Accuracy | None = None) -> None:
        """It ends, with what was measured at its end, if anything."""
        at_s, totals = now_s(), self.ledger.totals()
        counts = Counter(self.dispatches.counts)
        row = RoundRow(
            round=self._round,
            began_at_s=at_s if self._began_at_s is None else self._began_at_s,
            ended_at_s=at_s,
            **{name: counts[name] - self._counted[name] for name in OUTCOMES},
            traffic=totals - self._before,
            accuracy=accuracy,
            drops=dict(self._drops),
        )
        self._began_at_s, self._before, self._counted, self._drops = None, totals, counts, Counter()
        self.rows.append(row)
        self.trace.record(ROUND_END, row.round, row.asked, row.merged)
        self.log.info("round", round=row.round, asked=row.asked, merged=row.merged, dropped=row.dropped)
        self.watch(row)

    def remembered(self) -> dict[str, Any]:
        """Return the rows, and the first merge that was refused: what the trace does not tell."""
        return {"rows": tuple(self.rows), "refusal": self._refusal}

    def remember(self, rows: Sequence[RoundRow], refusal: tuple[int, str] | None) -> None:
        """Go on after the last of these rounds; the trace has told what happened in them."""
        self.rows, self._refusal = list(rows), refusal
        self._before, self._counted = self.ledger.totals(), Counter(self.dispatches.counts)
        self._drops = Counter()
        for row in rows:
            self._round = row.round
            self.watch(row)

    def close(self, *, verify: bool = False, is_going_on: bool = False) -> Callable[[FinalModels], RunResult]:
        """End the record with the run, now, and check it.

        Args:
            verify: Also check the whole trace, which must have been kept.
            is_going_on: The bus goes on entering frames, which belong to the run no more.

        Returns:
            What makes the result once the models at the end are known.

        Raises:
            InvariantError: It contradicts itself.
        """
        simulated_s, dispatches, rows = now_s(), self.dispatches, self.rows
        ledger = deepcopy(self.ledger) if is_going_on else self.ledger
        if self.dispatches.counts != self._counted or ledger.totals() != self._before:
            if self._began_at_s is None:
                self._round += 1
            self.end_round()
        self.trace.end()
        dispatches.finish(now_ns())
        check_counts(ledger, rows, dispatches)
        if verify:
            check_trace(self.trace, ledger)
        return self._result(simulated_s, ledger, dispatches)

    def so_far(self) -> RunResult:
        """Return what the rounds that have ended have shown; it has no models."""
        dispatches = self.dispatches.until(now_ns())
        result = self._result(now_s(), self.ledger, dispatches)(FinalModels("", None))
        return replace(result, num_rounds=self._round)

    def _result(
        self, simulated_s: float, ledger: Ledger, dispatches: DispatchTable
    ) -> Callable[[FinalModels], RunResult]:
        rows, trace_hash, client = tuple(self.rows), self.trace.hash(), dispatches.client()
        by_client = {
            outcome: np.bincount(client[mask], minlength=self.num_clients).astype(np.int32)
            for outcome, mask in dispatches.outcomes().items()
        }
        return lambda models: RunResult(
            simulated_s,
            rows,
            by_client,
            ledger,
            dispatches,
            sum((Counter(row.drops) for row in rows), Counter[str]()),
            self.rejections,
            trace_hash,
            models.digest,
            self._non_finite(models.non_finite),
            models.by_client,
            self.num_rounds,
            self._stopped_by,
            faults=self.faults,
        )

    # What the trace says

    def _was_stopped(self, at_ns: int, budget: str) -> None:
        self._stopped_by = budget
        self.log.info("stop", budget=budget)

    def _dropped(self, at_ns: int, client: int, dispatch: int, cause: str) -> None:
        self._drops[cause] += 1
        self.log.warning("dropped", client=client, dispatch=dispatch, cause=cause)

    def _rejected(self, at_ns: int, client: int, dispatch: int, reason: str) -> None:
        self.rejections[reason] += 1
        self.log.warning("rejected", client=client, dispatch=dispatch, reason=reason)

    def _came_late(self, at_ns: int, client: int, dispatch: int) -> None:
        self.log.info("late", client=client, dispatch=dispatch)

    def _struck(self, at_ns: int, client: int, dispatch: int, up: bool, kind: str) -> None:
        self.faults[kind] += 1

    def _non_finite(self, model: str | None) -> str | None:
        """Return what is not finite at the end, if anything, and its first sign."""
        last = last_measured(self.rows)
        fault = model or (last and last.non_finite)
        if not fault:
            return None
        measured = [(row.round, row.accuracy.non_finite) for row in self.rows if row.accuracy is not None]
        signs = [(number, sign) for number, sign in measured if sign is not None]
        if self._refusal is not None:
            signs.insert(0, self._refusal)
        if not signs:
            return f"at the end {fault}; no evaluation tells since which round"
        number, sign = min(signs, key=lambda one: one[0])  # of one round's, a merge is before the evaluation
        return f"at the end {fault}; the first sign of it, in round {number}: {sign}"
