"""What a run has shown, and the books from which it is drawn up: the same for every bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite

from fedsim.bus import Ledger, Totals
from fedsim.clock import Trace, now_ns, now_s
from fedsim.params import Array
from fedsim.runtime.dispatches import Dispatches
from fedsim.runtime.invariants import check_counts, check_dispatches, check_phases, check_trace
from fedsim.runtime.log import Log
from fedsim.runtime.observer import Accuracy, FinalModels
from fedsim.runtime.recorder import Recorder, RoundRow
from fedsim.runtime.records import ROUND_END


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a run has shown; of one in virtual time, nothing depends on the host.

    Attributes:
        simulated_s: Virtual time at the end, s; the real time that it took, over sockets.
        rounds: One row per round; and where the algorithm has any, one for the opening before the first and
            one for the closing after the last.
        by_client: Tallies of dispatches, ``[K]`` each: asked, merged, dropped, rejected, late.
        ledger: Every frame.
        dispatches: Every asking, and where its time went.
        drops: Dispatches without an answer in time, by cause.
        rejections: Replies that could not be merged, by reason.
        trace_hash: Fingerprint of the event trace.
        model_hash: Digest of the evaluated models of all measured clients, in client order.
        non_finite: Which of these models, or which loss of the last evaluation, is not finite, and the first
            sign of it, with its round, as far as that is known. None where all are finite.
    """

    simulated_s: float
    rounds: Sequence[RoundRow]
    by_client: Mapping[str, Array]
    ledger: Ledger
    dispatches: Dispatches
    drops: Counter[str]
    rejections: Counter[str]
    trace_hash: str
    model_hash: str
    non_finite: str | None = None

    @property
    def totals(self) -> Totals:
        """Frames, bytes and parameters over the whole run."""
        return self.ledger.totals()

    @property
    def final(self) -> Accuracy | None:
        """The last accuracy and loss measured."""
        return last_measured(self.rounds)

    @property
    def best(self) -> float | None:
        """The highest mean over clients of any evaluation."""
        means = [row.accuracy.mean for row in self.rounds if row.accuracy and row.accuracy.mean is not None]
        return max(means, default=None)

    @property
    def best_global(self) -> float | None:
        """The highest accuracy on the global test set of any evaluation."""
        values = [row.accuracy.global_ for row in self.rounds if row.accuracy is not None]
        return max((value for value in values if value is not None), default=None)

    @property
    def best_loss(self) -> float | None:
        """The lowest mean over clients of the loss of any evaluation, of those that are finite."""
        means = [row.accuracy.mean_loss for row in self.rounds if row.accuracy]
        return min((mean for mean in means if mean is not None and isfinite(mean)), default=None)


def last_measured(rounds: Sequence[RoundRow]) -> Accuracy | None:
    """Return the last accuracy and loss measured."""
    return next((row.accuracy for row in reversed(rounds) if row.accuracy is not None), None)


class Books:
    """All that is noted while a run goes on.

    Args:
        num_clients: K.
        ledger: Where the bus enters every frame.
        trace: Where events are recorded.
        log: Where rounds are noted.
        watch: Told of each round as it ends.
    """

    def __init__(
        self, num_clients: int, ledger: Ledger, trace: Trace, log: Log, watch: Callable[[RoundRow], None]
    ) -> None:
        self._ledger = ledger
        self._trace = trace
        self._log = log
        self._watch = watch
        self._dispatches = Dispatches(trace)
        self.recorder = Recorder(num_clients, ledger, self._row_ended)

    def close(self, *, verify: bool, is_going_on: bool = False) -> Callable[[FinalModels], RunResult]:
        """End the books with the run, now, and check them.

        Args:
            verify: Also check the whole trace, which must have been kept.
            is_going_on: The bus goes on entering frames, which belong to the run no more.

        Returns:
            What makes the result once the models at the end are known.

        Raises:
            InvariantError: They contradict themselves.
        """
        simulated_s = now_s()
        ledger = deepcopy(self._ledger) if is_going_on else self._ledger
        dispatches, recorder = self._dispatches, self.recorder
        recorder.close(simulated_s)
        dispatches.finish(now_ns())
        check_counts(ledger, recorder)
        check_dispatches(dispatches, recorder)
        if verify:
            check_trace(self._trace, ledger)
            check_phases(self._trace, dispatches)
        trace_hash = self._trace.hash()
        return lambda models: RunResult(
            simulated_s,
            tuple(recorder.rows),
            recorder.by_client,
            ledger,
            dispatches,
            recorder.drops,
            recorder.reasons,
            trace_hash,
            models.digest,
            self._non_finite(models.non_finite),
        )

    def _row_ended(self, row: RoundRow) -> None:
        self._trace.record(ROUND_END, row.round, row.asked, row.merged)
        self._log.info("round", round=row.round, asked=row.asked, merged=row.merged, dropped=row.dropped)
        self._watch(row)

    def _non_finite(self, model: str | None) -> str | None:
        """Return what is not finite at the end, if anything, and its first sign."""
        rows, refusals = self.recorder.rows, self.recorder.refusals
        last = last_measured(rows)
        fault = model or (last and last.non_finite)
        if not fault:
            return None
        measured = [(row.round, row.accuracy.non_finite) for row in rows if row.accuracy is not None]
        signs = [*refusals, *((number, sign) for number, sign in measured if sign is not None)]
        if not signs:
            return f"at the end {fault}; no evaluation tells since which round"
        number, sign = min(signs, key=lambda one: one[0])  # of one round's, a merge is before the evaluation
        return f"at the end {fault}; the first sign of it, in round {number}: {sign}"
