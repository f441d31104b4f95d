"""Doing a run and writing its folder.

======================= =====================================================================
``scenario.toml``       the scenario with everything resolved; runs again as it is
``summary.json``        the run in numbers (:mod:`fedsim.report.summary`)
``rounds.parquet`` ...  the tables (:mod:`fedsim.report.tables`)
``trace.msgpack``       every event (:mod:`fedsim.clock.event_trace`)
``log.jsonl``           drops, rejections and rounds in words, stamped with virtual time
``run.json``            versions, host, real time (:mod:`fedsim.report.provenance`)
``real_time.msgpack``   with ``profile``: when which thread was at work (:mod:`fedsim.report.job_time_file`)
``checkpoints``         what it needs to be continued (:mod:`fedsim.report.checkpoints`)
``fork.json``           where the past of a fork comes from (:mod:`fedsim.report.forked_runs`)
``models``              with ``run.save_models``: the models (:mod:`fedsim.report.saved_models`)
======================= =====================================================================

``trace.msgpack`` and ``log.jsonl`` grow while the run goes on. Until ``summary.json`` is there,
``state.json`` says how far the run has come (:mod:`fedsim.report.unfinished_runs`), and the tables show the
rounds until the last checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from fedsim.bus import Log
from fedsim.bus.http.messages import Names
from fedsim.clock import Trace, now_s
from fedsim.durable import sync, telling
from fedsim.engine.job_times import JobTimes
from fedsim.numerals import scalar
from fedsim.report.atomic_folder import MARK, MEND, check_folders, write_file
from fedsim.report.checkpoints import FOLDER, CheckpointFolder
from fedsim.report.cost_breakdown import Summary
from fedsim.report.divergence import divergence, rejections
from fedsim.report.energy import energy_of
from fedsim.report.job_time_file import REAL_TIME, packed, read_job_times
from fedsim.report.keep_checkpoints import LOG, TRACE, CheckpointKeeper, RunFiles, StoredPast
from fedsim.report.places import can_go_on, holds_run, is_own
from fedsim.report.provenance import Bus, provenance
from fedsim.report.read_results import to_json
from fedsim.report.remarks import remarks
from fedsim.report.saved_models import EndModels, write_models
from fedsim.report.summary import summarise
from fedsim.report.tables import write_tables
from fedsim.report.tracking import Following, Tell, warn
from fedsim.report.unfinished_runs import RUNNING, Beginning, read_state, state_of, unfinished
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.server_past import ServerSnapshot
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.records.recorder import Observe, Recorder, unobserved
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult, kinds_of, run
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
    goes_on: bool | None = None,
    watch: Callable[[RoundRow], None] = lambda row: None,
    observe: Observe = unobserved,
    perform: Perform = run,
    bus: Bus = "memory",
    tell: Tell = warn,
    known_as: Path | None = None,
    profile: bool = False,
    is_kept: bool = True,
    keeps_checkpoints: bool = True,
    clients_stay: bool = True,
) -> Recorded:
    """Run, and write the run's folder; go on with a run of the same scenario that was interrupted there.

    The folder is there from the beginning. If the run ends before its time and a round has ended, it stays,
    and the run can go on from its last checkpoint; otherwise nothing stays.

    Args:
        plan: The run.
        folder: Its folder.
        force: Whether another run may be replaced.
        goes_on: Whether an interrupted run that is there goes on; by default if it is known to be the same.
        watch: Told of each round as it ends, also of those of the past.
        observe: Given what records the run.
        perform: Does the run.
        bus: What carries messages.
        tell: Told what the user has to know meanwhile.
        known_as: What the folder is called to trackers, if not as it is.
        profile: Whether to note when each worker was at which jobs; a run that goes on does what it did.
        is_kept: Whether the folder of a run that ends before its time may stay, to be resumed.
        keeps_checkpoints: Whether the newest checkpoints stay in the end, so that the run can be extended.
        clients_stay: Whether client processes, over sockets, stay when this process ends before its time.
    """
    written, over_sockets = plan.scenario_toml, bus != "memory"
    with_checkpoints = plan.checkpoint.keep > 0 and not plan.parts.verify
    # What edges have averaged is in no checkpoint, and the past could not be repeated without it.
    with_checkpoints &= over_sockets or plan.parts.edges is None
    with_checkpoints &= not over_sockets or (clients_stay and is_kept)
    if goes_on is None:
        goes_on = with_checkpoints and can_go_on(folder, written, bus)
    is_repeated = holds_run(folder, written, bus)
    force = force or goes_on or is_own(folder, written, bus, goes_on=False)
    check_folders([folder], force=force)
    place = (known_as or folder).resolve()
    follow = Following(plan.trackers, TrackedRun(place.name, place.parent, written), tell)
    began = Beginning()
    names = Names()
    state = state_of(plan, began, has_checkpoints=with_checkpoints, bus=bus)
    state |= {"names": [names.run, names.server]} if over_sockets else {}
    with (
        closing(follow),
        unfinished(folder, state, force=force, goes_on=goes_on, at_end=is_repeated) as running,
    ):
        path = running.path
        checkpoints = CheckpointFolder(path, plan.checkpoint.keep, folder)
        past = None
        if goes_on:
            before = read_state(path)
            began = Beginning.of(before)
            state = state_of(plan, began, has_checkpoints=with_checkpoints, bus=bus)
            if over_sockets:
                state["names"] = [*before["names"], names.server]
            running.tell(**state | {"summary": before["summary"]})
            past = StoredPast.newest(path, checkpoints, tell)
            # Over sockets, processes keep no states for the checkpoints before this one.
            checkpoints.remove_after(-1 if past is None else past.checkpoint.rounds, before_too=over_sockets)
            tell(f"{folder}: {_going_on(past)}")
            if over_sockets:
                run_name, *servers = before["names"]
                first = servers.index(past.checkpoint.by) if past is not None else 0
                names = Names(run_name, names.server, servers[first:])
        if over_sockets:
            perform = partial(perform, names=names)
        write_file(path / "scenario.toml", written.encode(), place=folder)
        noted = read_job_times(path) if goes_on else None
        jobs, rounds = noted or ((), ())
        times = JobTimes(jobs, rounds, began.before_s) if profile or noted is not None else None
        plan.parts.executor.job_times = times
        observed: list[Recorder] = []

        def write_times() -> None:
            if times is not None:
                write_file(path / REAL_TIME, packed(times), place=folder)

        write_times()

        def end_round(row: RoundRow) -> None:
            running.is_worth_keeping = is_kept and with_checkpoints
            if times is not None:
                times.end_round(row.round)
            watch(row)
            follow.note(row)

        def observe_too(recorder: Recorder, parts: Parts) -> None:
            observed.append(recorder)
            observe(recorder, parts)

        def show() -> None:
            """Show in the folder how far the run has come."""
            result = observed[0].so_far()
            energy = energy_of(plan.parts, result)
            write_tables(path, plan.parts, result, folder, energy)
            summary = summarise(plan, result, began.passed_s(), None, energy)
            host = provenance(plan, began.at, summary["wall_s"], bus, status=RUNNING)
            write_file(path / "run.json", to_json(host), place=folder)
            running.tell(wall_s=summary["wall_s"], summary=summary)
            write_times()

        with RunFiles(path, folder, past, with_journal=with_checkpoints) as files:
            log = line_log(files.by_name[LOG])
            log.info("begin", scenario=plan.name, algorithm=plan.algorithm, seed=plan.parts.seed)
            trace = Trace(files.by_name[TRACE], keep=plan.parts.verify)
            if with_checkpoints:
                snapshot = ServerSnapshot if over_sockets else Snapshot
                classes = snapshot.classes(plan.parts, kinds_of(plan.parts, plan.stages))
                keeper = CheckpointKeeper(
                    *(plan.checkpoint, plan.parts.data, files, checkpoints, classes, tell, show),
                    by=names.server if over_sockets else "",
                )
                perform = partial(perform, keeper=keeper)
                if past is not None:
                    keeper.go_on(past.checkpoint)
                    make = past.server_past if over_sockets else past.past
                    perform = partial(perform, past=make(plan, files))
                    past = None  # what it holds may be large
            if plan.stages:
                perform = partial(perform, stages=plan.stages)
            recorded: list[Recorded] = []

            def complete(result: RunResult) -> None:
                """Write what the run has come to; from then on its folder is whole."""
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
                files.positions()
                files.close()
                energy = energy_of(plan.parts, result)
                write_tables(path, plan.parts, result, folder, energy)
                models = EndModels(result.models, plan.parts.data.task)
                if plan.save_models:
                    write_models(path, models, folder)
                wall_s = began.passed_s()
                summary = summarise(plan, result, wall_s, diverged, energy)
                facts = provenance(plan, began.at, wall_s, bus, follow.failures, result.cohorts)
                write_times()
                with telling(folder, MEND):
                    for file in path.rglob("*"):
                        sync(file)
                for name, content in {"run.json": facts, MARK: summary}.items():
                    write_file(path / name, to_json(content), place=folder)
                if over_sockets or not (keeps_checkpoints and checkpoints.numbers()):
                    shutil.rmtree(path / FOLDER, ignore_errors=True)
                follow.summary = summary
                recorded.append(Recorded(folder.resolve(), summary, result, models, notes))

            if over_sockets:  # the server tells processes that the run is over when nothing can be lost
                perform = partial(perform, complete=complete)
            result = perform(plan.parts, trace=trace, log=log, watch=end_round, observe=observe_too)
            if not over_sockets:
                complete(result)
    return recorded[0]


def _going_on(past: StoredPast | None) -> str:
    """Return what becomes of a run that goes on, in words."""
    if past is None:
        return "there is no whole checkpoint, so the run begins anew"
    return f"the run goes on after round {past.checkpoint.rounds}"


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
