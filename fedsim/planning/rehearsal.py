"""What a run will cost, from a rehearsal: the first rounds with the ``null`` executor, on the real scenario.

Nothing is estimated from formulas: the messages are encoded, the links and devices are simulated, and the
ledger and the trace say what it took. Only the models do not learn, and links that change over time are taken
at their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from fedsim import plugins
from fedsim.bus import Totals
from fedsim.clock import Trace
from fedsim.engine.executors.base import Due, Executor, Promise
from fedsim.engine.jobs import Evaluate, Fit, Job, Predict
from fedsim.engine.worker_state import Resources
from fedsim.params import Array
from fedsim.report import number_format
from fedsim.report.text_table import TextTable
from fedsim.runtime.budget import UntilConfig
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult, kinds_of, run
from fedsim.units import format_quantity
from fedsim.wire import SERVER
from fedsim.wire.codecs.choices import PLACES
from fedsim.wire.coded_messages import held_by

ROUNDS = 2
"""Rounds of a rehearsal: an algorithm's second round may differ from its first."""

QUANTILES = (0, 0.05, 0.5, 0.95, 1)
QUANTILE_HEADINGS = ("minimum", "5 %", "median", "95 %", "maximum")

MAX_EXAMPLES = 64
"""Jobs of a kind that are kept to be tried."""

Learning: TypeAlias = Fit | Predict | Evaluate
"""Jobs that an executor without learning does not do."""


@dataclass(slots=True)
class JobKind:
    """Jobs that do the same with other values, and some of them with their amounts.

    An amount is a number of operations for fits, of samples for others.
    """

    is_of_fits: bool
    count: int = 0
    amount: float = 0.0
    examples: list[tuple[Learning, float]] = field(default_factory=list)


Work: TypeAlias = dict[Hashable, JobKind]
"""Jobs by what they have in common."""


def record_job(work: Work, job: Learning, amount: float) -> None:
    """Add a job to those of its kind."""
    models = [job.model] if not isinstance(job, Fit) else list(job.models.values())
    step = type(job.step) if isinstance(job, Fit) else None
    key = (type(job), step, *(model.architecture for model in models))
    kind = work.setdefault(key, JobKind(isinstance(job, Fit)))
    kind.count += 1
    kind.amount += amount
    if len(kind.examples) < MAX_EXAMPLES:
        kind.examples.append((job, amount))


class JobRecorder(Executor):
    """Records jobs, and passes them on to another executor."""

    learns = False

    def __init__(self, inner: Executor) -> None:
        super().__init__(inner.config)
        self._inner = inner
        self._work: Work = {}

    def taken(self) -> Work:
        """Return the jobs recorded since the last call."""
        work, self._work = self._work, {}
        return work

    def open(self, resources: Resources) -> None:
        """Open the other executor."""
        self._resources = resources
        self._inner.open(resources)

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Record a job. Calls are not recorded: every executor does them."""
        match job:
            case Fit() if step_flops:
                record_job(self._work, job, step_flops * job.num_steps)
            case Predict():
                record_job(self._work, job, self._resources.num_samples(job.samples))
            case Evaluate():
                record_job(self._work, job, sum(map(self._resources.num_samples, job.parts)))
        return self._inner.submit(job, due, step_flops=step_flops)

    def wait(self, promise: Any) -> Any:
        """Wait for the other executor."""
        return self._inner.wait(promise)

    def close(self) -> None:
        """Close the other executor."""
        self._inner.close()


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """The real time and the work of a part of a rehearsal."""

    real_s: float
    works: Sequence[Work]


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """What a rehearsal has shown."""

    rounds: int
    parts: Parts
    result: RunResult
    jobs: Sequence[tuple[int, int, float, float]]
    once: MeasuredPart
    each: MeasuredPart

    @property
    def last(self) -> RoundRow:
        """The last round rehearsed, which stands for those that were not."""
        return next(row for row in self.result.rounds if row.round == self.rounds)

    @property
    def pace_s(self) -> float:
        """Simulated time of a round, from its beginning to that of the next, s."""
        last = self.last
        pace_s = last.ended_at_s - last.began_at_s
        before = next((row for row in self.result.rounds if row.round == self.rounds - 1), None)
        # With an interval between their beginnings, rounds do not begin as the one before ends.
        if before is not None and before.round > 0 and before.ended_at_s < last.began_at_s:
            pace_s = max(pace_s, last.began_at_s - before.began_at_s)
        return pace_s

    @property
    def planned(self) -> int | None:
        """Rounds of the whole run, until its time, bytes or energy are spent; None where nothing tells."""
        ends = [] if self.parts.rounds is None else [float(self.parts.rounds)]
        if (until := self.parts.until) is not None:
            traffics = (self.result.totals, self.last.traffic)
            sent = (traffic.sent_up + traffic.sent_down for traffic in traffics)
            for budget, (spent, each) in (
                (until.simulated, (self.result.simulated_s, self.pace_s)),
                (until.bytes, tuple(sent)),
                (until.joules, (spent_j := self.result.spent_j or 0.0, spent_j / self.rounds)),
            ):
                if budget is not None and each:
                    ends.append(max(1.0, self.rounds + (budget - spent) / each))
        return ceil(min(ends)) if ends else None

    @property
    def simulated_s(self) -> float:
        """Simulated time of the whole run, s, if its later rounds are like the last one rehearsed."""
        return self.result.simulated_s + self._rest * self.pace_s

    @property
    def totals(self) -> Totals:
        """Traffic of the whole run, if its later rounds are like the last one rehearsed."""
        return self.result.totals + self._rest * self.last.traffic

    @property
    def _rest(self) -> int:
        """Rounds that were not rehearsed; none where nobody knows."""
        return max(0, (self.planned or 0) - self.rounds)

    def compute(self) -> TextTable:
        """Return operations and time: of a client per dispatch, and of each of the server's jobs."""
        work: dict[tuple[int, int], list[float]] = {}
        for client, dispatch, flops, duration_s in self.jobs:
            if client != SERVER:
                before = work.get((client, dispatch), [0.0, 0.0])
                work[client, dispatch] = [before[0] + flops, before[1] + duration_s]
        at_server = [costs for client, _, *costs in self.jobs if client == SERVER]
        rows = []
        for who, spent in (("client", list(work.values())), ("server's jobs", at_server)):
            if spent:
                operations, seconds = zip(*spent, strict=True)
                rows.append((f"{who}, operations", *quantiles(operations, operations_text)))
                rows.append((f"{who}, time", *quantiles(seconds, number_format.duration)))
        return TextTable(("per dispatch", *QUANTILE_HEADINGS), rows, title="Computing")

    def frames(self) -> TextTable:
        """Return the frames by exchange, kind and direction, as the ledger has them."""
        frames = self.result.ledger.columns()
        keys = list(zip(frames["exchange"], frames["kind"], frames["up"].tolist(), strict=True))
        alike = [np.array([other == key for other in keys]) for key in dict.fromkeys(keys)]

        def median_plain(own: Array) -> str:
            return number_format.size(float(np.median(frames["bytes_plain"][own])))

        columns: dict[str, Callable[[Array], str]] = {
            "exchange": lambda own: str(frames["exchange"][own][0]),
            "kind": lambda own: frames["kind"][own][0] + (" (data)" if frames["data"][own][0] else ""),
            "direction": lambda own: "up" if frames["up"][own][0] else "down",
            "frames": lambda own: str(np.count_nonzero(own)),
            **({"without\ncodecs": median_plain} if (frames["bytes_plain"] != frames["bytes"]).any() else {}),
            "smallest": lambda own: number_format.size(float(frames["bytes"][own].min())),
            "median": lambda own: number_format.size(float(np.median(frames["bytes"][own]))),
            "largest": lambda own: number_format.size(float(frames["bytes"][own].max())),
            "parameters\n(median)": lambda own: number_format.count(
                float(np.median(frames["parameters"][own]))
            ),
            "total": lambda own: number_format.size(float(frames["bytes"][own].sum())),
        }
        title = f"Frames in {number_format.several(self.rounds, 'round')}"
        if any(row.round < 1 or row.round > self.rounds for row in self.result.rounds):
            title += ", and before the first and after the last"
        return TextTable.of(alike, columns, text_columns=frozenset({0, 1, 2}), title=title)


def rehearse(parts: Parts) -> Rehearsal:
    """Run the first rounds of a run without learning.

    Links that follow traces are constant here, at the mean of theirs: two rounds say nothing of a lap. Codecs
    whose lengths depend on values give their longest: changes of untrained models would be shorter. There are
    no faults: two rounds that happen to be struck say nothing of the others.
    """
    null: Any = plugins.load("fedsim.engine.executors", "null")
    executor = JobRecorder(null(null.Config()))
    rounds = min(ROUNDS, parts.num_rounds)
    marks = [(-1, perf_counter(), Work())]
    trace, until = Trace(keep=True), None
    if parts.until is not None and parts.until.joules is not None:  # energy is metered, and ends nothing
        until = UntilConfig.model_construct(joules=inf)
    result = run(
        replace(
            parts,
            fleet=parts.fleet.without_traces() if parts.fleet.is_traced else parts.fleet,
            cells=parts.cells and parts.cells.without_traces(),
            edges=parts.edges and parts.edges.without_traces(),
            executor=executor,
            codec=parts.codec.at_longest(),
            faults=(),
            retry=None,
            until=until,
            evaluation=EvaluationConfig(every=0, clients=1),
        ),
        trace=trace,
        rounds=rounds,
        watch=lambda row: marks.append((row.round, perf_counter(), executor.taken())),
    )
    marks.append((rounds + 2, perf_counter(), executor.taken()))
    passed = [(number, at_s - before_s, work) for (_, before_s, _), (number, at_s, work) in pairwise(marks)]
    once, each = (
        MeasuredPart(
            sum(real_s for number, real_s, _ in passed if (number == rounds) == is_last),
            [work for number, _, work in passed if (number == rounds) == is_last],
        )
        for is_last in (False, True)
    )
    starts = [values for _, kind, *values in trace.kept if kind == "job_start"]
    jobs = [
        (client, dispatch, float(flops), float(duration_s))
        for client, dispatch, _, flops, duration_s in starts
    ]
    return Rehearsal(rounds, parts, result, jobs, once, each)


def unused_codecs(rehearsal: Rehearsal) -> list[str]:
    """Return remarks on codecs by which nothing was coded."""
    config, frames = rehearsal.parts.codec, rehearsal.result.ledger.columns()
    kinds, seen = kinds_of(rehearsal.parts), set[tuple[bool, str]]()
    for up, word in dict.fromkeys(zip(frames["up"].tolist(), frames["kind"], strict=True)):
        original = kinds[word].owner.ORIGINAL
        seen |= {(up, held) for held in held_by(original).values()} if original is not None else set()
    return [
        f"codec.{way}.{held}: nothing that it could code was sent in the rehearsed rounds"
        for way, held in PLACES
        if config.of(way, held).chain and (way == "up", held) not in seen
    ]


def quantiles(values: Any, show: Any) -> tuple[str, ...]:
    """Return minimum, 5 %, median, 95 % and maximum as text."""
    return tuple(show(float(value)) for value in np.quantile(values, QUANTILES))


def operations_text(flops: float) -> str:
    """Return a number of floating-point operations, ``"1.2 MFLOP"``."""
    return format_quantity(flops, "compute").removesuffix("/s")
