"""What a run will cost, from a rehearsal: the first rounds with the ``null`` executor, on the real scenario.

Nothing is estimated from formulas: the messages are encoded, the links and devices are simulated, and the
ledger and the trace say what it took. Only the models do not learn, and links that change over time are taken
at their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim import plugins
from fedsim.bus import Totals
from fedsim.clock import Trace
from fedsim.engine.executors.base import Executor
from fedsim.report import text
from fedsim.report.text_table import TextTable
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult, run
from fedsim.units import format_quantity
from fedsim.wire import SERVER

ROUNDS = 2
"""Rounds of a rehearsal: an algorithm's second round may differ from its first."""

QUANTILES = (0, 0.05, 0.5, 0.95, 1)
QUANTILE_HEADINGS = ("minimum", "5 %", "median", "95 %", "maximum")


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """What a rehearsal has shown.

    Attributes:
        rounds: Rounds rehearsed.
        planned: Rounds of the whole run.
        result: Of the rehearsal.
        jobs: For each job its client, dispatch, operations and duration in s.
    """

    rounds: int
    planned: int
    result: RunResult
    jobs: Sequence[tuple[int, int, float, float]]

    @property
    def last(self) -> RoundRow:
        """The last round rehearsed, which stands for those that were not."""
        return next(row for row in self.result.rounds if row.round == self.rounds)

    @property
    def simulated_s(self) -> float:
        """Simulated time of the whole run, s, if its later rounds are like the last one rehearsed."""
        more = self.planned - self.rounds
        return self.result.simulated_s + more * (self.last.ended_at_s - self.last.began_at_s)

    @property
    def totals(self) -> Totals:
        """Traffic of the whole run, if its later rounds are like the last one rehearsed."""
        return self.result.totals + (self.planned - self.rounds) * self.last.traffic

    def compute(self) -> TextTable:
        """Return operations and time: of a client per dispatch, and of each of the server's jobs."""
        flops: dict[tuple[int, int], float] = {}
        seconds: dict[tuple[int, int], float] = {}
        for client, dispatch, operations, duration_s in self.jobs:
            if client != SERVER:
                flops[client, dispatch] = flops.get((client, dispatch), 0.0) + operations
                seconds[client, dispatch] = seconds.get((client, dispatch), 0.0) + duration_s
        rows = []
        if flops:
            rows += [
                ("client, operations", *quantiles(list(flops.values()), operations_text)),
                ("client, time", *quantiles(list(seconds.values()), text.duration)),
            ]
        at_server = [job for job in self.jobs if job[0] == SERVER]
        if at_server:
            rows += [
                ("server's jobs, operations", *quantiles([job[2] for job in at_server], operations_text)),
                ("server's jobs, time", *quantiles([job[3] for job in at_server], text.duration)),
            ]
        return TextTable(("per dispatch", *QUANTILE_HEADINGS), rows, title="Computing")

    def frames(self) -> TextTable:
        """Return the frames by exchange, kind and direction, as the ledger has them."""
        columns = self.result.ledger.columns()
        keys = list(zip(columns["exchange"], columns["kind"], columns["up"].tolist(), strict=True))
        rows = []
        for key in dict.fromkeys(keys):
            chosen = np.array([other == key for other in keys])
            exchange, kind, up = key
            sizes, is_data = columns["bytes"][chosen], bool(columns["data"][chosen][0])
            rows.append(
                (
                    exchange,
                    kind + (" (data)" if is_data else ""),
                    "up" if up else "down",
                    str(len(sizes)),
                    text.size(float(sizes.min())),
                    text.size(float(np.median(sizes))),
                    text.size(float(sizes.max())),
                    text.count(float(np.median(columns["parameters"][chosen]))),
                    text.size(float(sizes.sum())),
                )
            )
        headings = (
            "exchange",
            "kind",
            "direction",
            "frames",
            "smallest",
            "median",
            "largest",
            "parameters\n(median)",
            "total",
        )
        title = f"Frames in {text.several(self.rounds, 'round')}"
        if any(row.round < 1 or row.round > self.rounds for row in self.result.rounds):
            title += ", and before the first and after the last"
        return TextTable(headings, rows, text_columns=frozenset({0, 1, 2}), title=title)


def rehearse(parts: Parts) -> Rehearsal:
    """Run the first rounds of a run without learning.

    Links that follow traces are constant here, at the mean of theirs: two rounds say nothing of a lap.

    Raises:
        RunError: They failed.
    """
    null: Any = plugins.load("fedsim.engine.executors", "null")
    executor: Executor = null(null.Config())
    rounds = min(ROUNDS, parts.rounds)
    trace = Trace(keep=True)
    result = run(
        replace(
            parts,
            fleet=parts.fleet.without_traces() if parts.fleet.is_traced else parts.fleet,
            executor=executor,
            rounds=rounds,
            evaluation=EvaluationConfig(every=0, clients=1),
        ),
        trace=trace,
    )
    jobs = [
        (client, dispatch, float(flops), float(duration_s))
        for _, kind, *values in trace.kept
        if kind == "job_start"
        for client, dispatch, _, flops, duration_s in [values]
    ]
    return Rehearsal(rounds, parts.rounds, result, jobs)


def quantiles(values: Any, show: Any) -> tuple[str, ...]:
    """Return minimum, 5 %, median, 95 % and maximum as text."""
    return tuple(show(float(value)) for value in np.quantile(values, QUANTILES))


def operations_text(flops: float) -> str:
    """Return a number of floating-point operations, ``"1.2 MFLOP"``."""
    return format_quantity(flops, "compute").removesuffix("/s")
