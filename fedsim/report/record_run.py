"""Doing a run and writing its folder.

======================= =====================================================================
``scenario.toml``       the scenario with everything resolved; runs again as it is
``summary.json``        the run in numbers (:mod:`fedsim.report.summary`)
``rounds.parquet`` ...  the tables (:mod:`fedsim.report.tables`)
``trace.msgpack``       every event (:mod:`fedsim.clock.event_trace`)
``log.jsonl``           drops, rejections and rounds in words, stamped with virtual time
``run.json``            versions, host, real time (:mod:`fedsim.report.provenance`)
``real_time.msgpack``   with ``profile``: when which thread was at work (:mod:`fedsim.report.job_time_file`)
``models``              with ``run.save_models``: the models (:mod:`fedsim.report.saved_models`)
======================= =====================================================================

``trace.msgpack`` and ``log.jsonl`` are written while the run goes on, in the hidden folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from fedsim.bus import Log
from fedsim.clock import Trace, now_s
from fedsim.engine.job_times import JobTimes
from fedsim.numerals import scalar
from fedsim.report.atomic_folder import MARK, check_folders, new, staged
from fedsim.report.cost_breakdown import Summary
from fedsim.report.divergence import divergence, rejections
from fedsim.report.job_time_file import REAL_TIME, packed
from fedsim.report.places import holds_run
from fedsim.report.provenance import Bus, provenance
from fedsim.report.remarks import remarks
from fedsim.report.saved_models import EndModels, write_models
from fedsim.report.summary import summarise, to_json
from fedsim.report.tables import write_tables
from fedsim.report.tracking import Following, Tell, warn
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult, run
from fedsim.scenario.build import Plan
from fedsim.trackers.base import TrackedRun

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A finished run and its folder."""

    folder: Path
    summary: Summary
    result: RunResult
    models: EndModels
    remarks: Sequence[str] = ()


Perform: TypeAlias = Callable[..., RunResult]
"""Does a run; takes and returns what :func:`fedsim.runtime.run.run` does."""


def record(
    plan: Plan,
    folder: Path,
    *,
    force: bool = False,
    watch: Callable[[RoundRow], None] = lambda row: None,
    observe: Observe = unobserved,
    perform: Perform = run,
    bus: Bus = "memory",
    tell: Tell = warn,
    known_as: Path | None = None,
    profile: bool = False,
) -> Recorded:
    """Run, and publish the run's folder when everything is there; otherwise leave nothing."""
    force = force or holds_run(folder, plan.scenario_toml, bus)
    check_folders([folder], force=force)
    place = (known_as or folder).resolve()
    run_here = TrackedRun(place.name, place.parent, plan.scenario_toml)
    follow = Following(plan.trackers, run_here, tell)
    with closing(follow), staged(folder, force=force) as hidden:
        started_at, began = datetime.now(UTC), perf_counter()  # for run.json alone, never for a result

        times = plan.parts.executor.job_times = JobTimes() if profile else None

        def end_round(row: RoundRow) -> None:
            if times is not None:
                times.end_round(row.round)
            watch(row)
            follow.note(row)

        with new(hidden / "trace.msgpack", folder) as events, new(hidden / "log.jsonl", folder) as lines:
            log = line_log(lines)
            log.info("begin", scenario=plan.name, algorithm=plan.algorithm, seed=plan.parts.seed)
            trace = Trace(events, keep=plan.parts.verify)
            result = perform(plan.parts, trace=trace, log=log, watch=end_round, observe=observe)
            if result.non_finite is not None:
                log.warning("not finite", cause=result.non_finite)
            notes = remarks(plan.parts, result) if bus == "memory" else []
            for remark in notes:
                log.warning("simulated time", remark=remark)
            diverged, rejected = divergence(plan.parts, result), rejections(plan.parts, result)
            for text, event in {rejected: "rejections", diverged: "divergence"}.items():  # once if equal
                if text is not None:
                    log.warning(event, remark=text)
                    notes.append(text)
            log.info("end", simulated_s=result.simulated_s, trace_hash=result.trace_hash)
        write_tables(hidden, plan.parts, result, folder)
        models = EndModels(result.models, plan.parts.data.task)
        if plan.save_models:
            write_models(hidden, models, folder)
        wall_s = perf_counter() - began
        summary = summarise(plan, result, wall_s, diverged)
        contents = {
            "scenario.toml": plan.scenario_toml.encode(),
            "run.json": to_json(provenance(plan, started_at, wall_s, bus, follow.failures, result.cohorts)),
            MARK: to_json(summary),
        }
        if times is not None:
            contents[REAL_TIME] = packed(times.jobs, times.rounds)
        for name, content in contents.items():
            with new(hidden / name, folder) as file:
                file.write(content)
        follow.summary = summary
    return Recorded(folder.resolve(), summary, result, models, notes)


class _Lines:
    """Writes finished lines of structlog to a file."""

    def __init__(self, sink: SupportsWrite[bytes]) -> None:
        self._sink = sink

    def info(self, line: str) -> None:
        self._sink.write(line.encode() + b"\n")

    warning = error = debug = info


def line_log(sink: SupportsWrite[bytes]) -> Log:
    """Return a logger that writes lines: ``at_s`` if a loop runs, ``level``, ``event``, values.

    No real time is in them, so equal runs have equal logs.
    """
    log: Log = structlog.wrap_logger(_Lines(sink), processors=[_line]).bind()
    return log


def _line(logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
    stamp = {}
    with suppress(RuntimeError):  # before and after the simulation there is no virtual time
        stamp["at_s"] = now_s()
    values = {name: _plain(value) for name, value in event.items() if name != "event"}
    record = {**stamp, "level": level, "event": event["event"], **values}
    return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Convert a value to one of JSON: a plain scalar, a list, a map, or text."""
    value = scalar(value)
    return value if isinstance(value, int | float | str | bool | list | tuple | dict | None) else str(value)
