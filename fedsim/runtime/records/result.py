"""What a run has shown: one row per round, tallies per client, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from fedsim.bus import Ledger, Totals
from fedsim.params import Array
from fedsim.runtime.evaluation import Accuracy, ClientModels
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.edge_frames import EdgeFrames


@dataclass(frozen=True, slots=True, eq=False)
class RoundRow:
    """One round.

    Attributes:
        round: Its number; 0 is what came before the first, one more than the last what came after it.
        began_at_s: Virtual time at its start, s.
        ended_at_s: Virtual time at its end, s.
        asked: Dispatches.
        merged: Replies merged.
        dropped: Dispatches without an answer in time.
        rejected: Replies that could not be merged.
        late: Replies that came after their dispatch was closed.
        traffic: Frames, bytes and parameters sent during it.
        accuracy: What was measured at its end, if anything.
        drops: Dispatches without an answer in time, by cause.
    """

    round: int
    began_at_s: float
    ended_at_s: float
    asked: int
    merged: int
    dropped: int
    rejected: int
    late: int
    traffic: Totals
    accuracy: Accuracy | None
    drops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a run has shown; of one in virtual time, nothing depends on the host.

    Attributes:
        simulated_s: Virtual time at the end, s; the real time that it took, over sockets.
        rounds: One row per round; and where the algorithm has any, one for the opening before the first and
            one for the closing after the last.
        by_client: Tallies of dispatches, ``[K]`` each: asked, merged, dropped, rejected, late.
        ledger: Every frame.
        dispatches: Every dispatch, and where its time went.
        drops: Dispatches without an answer in time, by cause.
        rejections: Replies that could not be merged, by reason.
        trace_hash: Fingerprint of the event trace.
        model_hash: Digest of the evaluated models of all measured clients, in client order.
        non_finite: Which of these models, or which loss of the last evaluation, is not finite, and the first
            sign of it, with its round, as far as that is known. None where all are finite.
        models: The models of all measured clients.
        num_rounds: How many rounds were begun.
        stopped_by: The budget that ended the rounds; None where they came to their end.
        num_saturated: Values that were beyond the range of a codec.
        cohorts: How many cohorts were asked, and of how many the hooks ran beforehand; empty over sockets.
        faults: How many faults have struck, by kind.
        spent_j: What all clients have spent, J, under ``until.joules``; None else.
        battery_levels: The share that is left in each client's battery, ``[K]``, NaN where it has none; None
            where nobody has one.
        edge_frames: Every frame between edges and the server; None where there are no edges.
        emulation: How late the host of an emulation was (:class:`fedsim.runtime.sockets.emulate.Lateness`);
            None of other runs.
    """

    simulated_s: float
    rounds: Sequence[RoundRow]
    by_client: Mapping[str, Array]
    ledger: Ledger
    dispatches: DispatchTable
    drops: Counter[str]
    rejections: Counter[str]
    trace_hash: str
    model_hash: str
    non_finite: str | None = None
    models: ClientModels = field(default_factory=dict)
    num_rounds: int = 0
    stopped_by: str | None = None
    num_saturated: int = 0
    cohorts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    spent_j: float | None = None
    battery_levels: Array | None = None
    edge_frames: EdgeFrames | None = None
    emulation: Mapping[str, float] | None = None

    @property
    def failure(self) -> str | None:
        """Why the run, though it came to its end, is no success; None if it is one."""
        if self.non_finite is not None or self.by_client["merged"].any() or not self.by_client["asked"].any():
            return self.non_finite
        what = "all that came were rejected" if self.rejections else "none came in time"
        reasons = (self.rejections or self.drops).most_common()
        listed = ", ".join(f"{count}: {reason}" for reason, count in reasons)
        return f"no reply was ever merged: {what} ({listed})"

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
