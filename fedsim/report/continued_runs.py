"""Plans of runs that go on: interrupted ones, and finished ones with more rounds.

With such a plan :func:`fedsim.report.record_run.record` goes on in the folder of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsim.durable import telling
from fedsim.errors import Fault, OutputError, ScenarioError
from fedsim.report.atomic_folder import MARK, MEND, STATE, write_file
from fedsim.report.checkpoints import Checkpoint, CheckpointFolder
from fedsim.report.keep_checkpoints import StoredPast
from fedsim.report.read_results import read_object, read_provenance, to_json
from fedsim.report.summary import read_summary
from fedsim.report.tracking import Tell, warn
from fedsim.report.unfinished_runs import (
    FORK,
    INTERRUPTED,
    RUNNING,
    Beginning,
    check_not_over_sockets,
    check_resumable,
    is_unfinished,
    read_state,
    state_of,
    why_not_resumable,
)
from fedsim.runtime.parts import Parts
from fedsim.scenario import Overrides, Plan, Scenario, load_scenario, tracked
from fedsim.scenario.build import read_resolved, settings
from fedsim.scenario.load import Override, parsed

SAME_RESULTS = ("engine.workers", "engine.batching")
"""Settings that change no result, so that a run may go on with others."""


def resumed_plan(folder: Path, overrides: Overrides = (), trackers: Sequence[str] = ()) -> Plan:
    """Return the plan of an unfinished run, which this process can go on with.

    Args:
        folder: The run's folder.
        overrides: Values that replace the scenario's, by path, of :data:`SAME_RESULTS`.
        trackers: Names of trackers; without any, those that it had.

    Raises:
        OutputError: There is none, or another process or another version of fedsim has to go on with it.
        ScenarioError: Values of other tables are replaced, or by what cannot be there.
    """
    state, file = check_resumable(folder), folder / "scenario.toml"
    read = [".".join(one.keys) for one in parsed(overrides, str(file)) if isinstance(one, Override)]
    problem, mend = "a run that goes on keeps it", f"replace {' or '.join(SAME_RESULTS)} alone"
    if faults := [Fault(path, problem, mend) for path in read if path not in SAME_RESULTS]:
        raise ScenarioError(faults, str(file))
    aside = {"run.checkpoint": state["checkpoint"], "run.trackers": state.get("trackers", ())}
    scenario = load_scenario(file, aside)
    plan = planned(load_scenario(scenario, overrides), trackers, folder, origin_of(folder))
    return replace(plan, scenario_toml=file.read_text("utf-8"))


def extended_plan(folder: Path, rounds: int, trackers: Sequence[str] = (), tell: Tell = warn) -> Plan:
    """Make a finished run an unfinished one of more rounds; return its plan.

    Args:
        folder: The run's folder.
        rounds: How many rounds it has in all.
        trackers: Names of trackers.
        tell: Told of checkpoints that are damaged.

    Raises:
        OutputError: There is no such run, or it would have been another one with more rounds.
        ScenarioError: So many rounds cannot be.
    """
    if is_unfinished(folder):
        raise OutputError(f"the run in {folder} has not come to its end: resume it first")
    facts, summary, file = facts_of(folder, "extended"), read_summary(folder), folder / "scenario.toml"
    scenario, anew = load_scenario(file), f"begin it anew, with run.rounds = {rounds}"
    had = scenario.run.rounds
    if (budget := summary["stopped_by"]) is not None:
        raise OutputError(
            f"the run in {folder} was ended by run.until.{budget}, and not by its rounds: fork it, or begin "
            "it anew, with another budget"
        )
    if had is None or rounds <= had:
        raise OutputError(f"the run in {folder} has {had} rounds already: write more than {had}")
    cannot = f"the run in {folder} cannot be extended, since"
    if any(one.by == "round" and one.needs_length for one in scenario.training.schedule):
        raise OutputError(f"{cannot} its training.schedule depends on the number of rounds: {anew}")
    plan = planned(load_scenario(scenario, {"run.rounds": rounds}), trackers, folder, origin_of(folder))
    if shown_in := [name for name in facts.get("tracker_failures", {}) if name not in trackers]:
        tell(f"{folder}: {', '.join(shown_in)} showed the run, and shows no further rounds without --track")
    checkpoints = CheckpointFolder(folder, plan.checkpoint.keep)
    past = usable(folder, checkpoints, plan.parts, tell, lambda one: not one.has_used_length)
    if past is None and checkpoints.numbers():
        raise OutputError(
            f"{cannot} its checkpoints depend on the number of rounds: {plan.algorithm!r} has asked for it, "
            f"or they are from after its last evaluation: {anew}"
        )
    checkpoints.remove_after(-1 if past is None else past.checkpoint.rounds)
    state = state_of(plan, Beginning.of(facts), has_checkpoints=True)
    write_file(folder / STATE, to_json(state | {"status": INTERRUPTED, "summary": summary}))
    with telling(folder, MEND):
        (folder / MARK).unlink()  # before its scenario changes, or a crash would leave a false one
    write_file(file, plan.scenario_toml.encode())
    return plan


def planned(scenario: Scenario, trackers: Sequence[str], folder: Path, origin: Mapping[str, Any]) -> Plan:
    """Return the plan of a run that goes on, with its stages if it is a fork.

    Args:
        scenario: What holds at last.
        trackers: Names of trackers.
        folder: Where the scenario comes from, for errors.
        origin: What ``fork.json`` of a fork says; empty for another run.
    """
    plan = Plan.of(tracked(scenario, trackers), str(folder))
    if not origin:
        return plan
    ends, scenarios = zip(*origin["scenarios"], strict=True)
    held = [*(settings(read_resolved(one)) for one in scenarios), settings(scenario)]
    told = {name: value for name, value in origin.items() if name != "scenarios"}
    return replace(plan, stages=dict(zip((0, *ends), held, strict=True)), origin=told)


def origin_of(folder: Path) -> dict[str, Any]:
    """Return what ``fork.json`` of a fork says; nothing for another run."""
    return read_object(folder / FORK, ("scenarios",)) if (folder / FORK).exists() else {}


def facts_of(folder: Path, done: str) -> Mapping[str, Any]:
    """Return how a run was done.

    Args:
        folder: The run's folder.
        done: What is done with it, for errors.

    Raises:
        OutputError: There is none, or this process cannot go on with it.
    """
    if is_unfinished(folder):
        facts = read_state(folder)
        if facts["status"] == RUNNING:
            raise OutputError(f"another process is at work on the run in {folder}: wait for its end")
        check_not_over_sockets(folder, facts)
    elif not (folder / MARK).is_file():
        raise OutputError(f"{folder} holds no run: name a folder in which is {MARK}")
    else:
        facts = read_provenance(folder)
        facts["has_checkpoints"] = facts["bus"] == "memory" and not facts["verify"]
        facts["libraries"] = {name: facts["libraries"][name] for name in ("torch", "numpy")}
    if (why := why_not_resumable(facts)) is not None:
        raise OutputError(f"the run in {folder} cannot be {done}, {why}: begin it anew")
    return facts


def usable(
    folder: Path,
    checkpoints: CheckpointFolder,
    parts: Parts,
    tell: Tell,
    suits: Callable[[Checkpoint], bool],
) -> StoredPast | None:
    """Return the newest whole checkpoint that suits; None where there is none.

    Raises:
        RunError: The data are others now.
    """
    past = StoredPast.newest(folder, checkpoints, tell, suits)
    if past is not None:
        past.check(parts.data)
    return past
