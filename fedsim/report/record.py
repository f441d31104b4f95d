"""Doing a run and leaving its folder.

======================= =====================================================================
``scenario.toml``       the scenario with everything resolved; runs again as it is
``summary.json``        the run in fifty numbers (:mod:`fedsim.report.summary`)
``rounds.parquet`` ...  the tables (:mod:`fedsim.report.tables`)
``trace.msgpack``       every event (:mod:`fedsim.clock.trace`)
``log.jsonl``           drops, rejections and rounds in words (:mod:`fedsim.report.logs`)
``run.json``            versions, host, real time (:mod:`fedsim.report.provenance`)
======================= =====================================================================

``trace.msgpack`` and ``log.jsonl`` are written while the run goes on, in the hidden folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, BinaryIO, Protocol

from fedsim.clock import Trace
from fedsim.report.folder import MARK, check_folders, staged, unwritten
from fedsim.report.logs import line_log
from fedsim.report.plan import Plan
from fedsim.report.provenance import Bus, now, provenance
from fedsim.report.summary import Summary, summarise, to_json
from fedsim.report.tables import write_tables
from fedsim.runtime.log import Log
from fedsim.runtime.parts import Parts
from fedsim.runtime.recorder import RoundRow
from fedsim.runtime.run import RunResult, run

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A run that has come to its end, and its folder.

    Attributes:
        folder: Where it is.
        summary: What ``summary.json`` says.
        result: All that the run has shown.
    """

    folder: Path
    summary: Summary
    result: RunResult


class Perform(Protocol):
    """Does a run; :func:`fedsim.runtime.run.run` is one way."""

    def __call__(
        self, parts: Parts, *, trace: Trace, log: Log, watch: Callable[[RoundRow], None]
    ) -> RunResult:
        """Run, and return what the run has shown."""


def record(
    plan: Plan,
    folder: Path,
    *,
    force: bool = False,
    watch: Callable[[RoundRow], None] = lambda row: None,
    perform: Perform = run,
    bus: Bus = "memory",
) -> Recorded:
    """Run, and publish the run's folder when everything is there; otherwise leave nothing.

    Args:
        plan: What to run.
        folder: Where its results belong; missing parents are made.
        force: Whether a folder that holds a run may be replaced.
        watch: Told of each round as it ends.
        perform: What does the run: in virtual time, unless told otherwise.
        bus: What carries its messages then.

    Raises:
        OutputError: The place is occupied or cannot be written.
        RunError: The run failed.
    """
    check_folders([folder], force=force)
    started_at, began = now(), perf_counter()
    with staged(folder, force=force) as hidden:
        trace_file, log_file = (
            _growing(hidden / "trace.msgpack", folder),
            _growing(hidden / "log.jsonl", folder),
        )
        with trace_file as events, log_file as lines:
            log = line_log(lines)
            log.info("begin", scenario=plan.name, algorithm=plan.algorithm, seed=plan.parts.seed)
            result = perform(plan.parts, trace=Trace(events, keep=plan.parts.verify), log=log, watch=watch)
            if result.non_finite is not None:
                log.warning("not finite", cause=result.non_finite)
            log.info("end", simulated_s=result.simulated_s, trace_hash=result.trace_hash)
        try:
            (hidden / "scenario.toml").write_text(plan.scenario_toml, encoding="utf-8")
            write_tables(hidden, plan.parts, result)
            wall_s = perf_counter() - began
            summary = summarise(plan, result, wall_s)
            (hidden / "run.json").write_bytes(to_json(provenance(plan, started_at, wall_s, bus)))
            (hidden / MARK).write_bytes(to_json(summary))
        except OSError as error:
            raise unwritten(folder, error) from error
    return Recorded(folder.resolve(), summary, result)


class _Growing(FileIO):
    """A file that grows while the run goes on; a full disk is an error of the output, not of the run."""

    def __init__(self, path: Path, place: Path) -> None:
        super().__init__(path, "w")
        self._place = place

    def write(self, content: Buffer, /) -> int:
        try:
            return self._put(content)
        except OSError as error:
            raise unwritten(self._place, error) from error

    def _put(self, content: Buffer) -> int:
        return super().write(content)


def _growing(path: Path, place: Path) -> BinaryIO:
    try:
        return BufferedWriter(_Growing(path, place), _BUFFER)
    except OSError as error:
        raise unwritten(place, error) from error
