"""Forks: runs that begin with the past of another run, and go on with other settings.

``fork.json`` in the folder of a fork says which run it comes from, after which round it has left that run,
and which scenario held until then; ``scenario.toml`` is what holds afterwards.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedsim.errors import Fault, OutputError, ScenarioError
from fedsim.report.atomic_folder import STATE, is_free, staged, write_file
from fedsim.report.checkpoints import FOLDER, CheckpointFolder
from fedsim.report.continued_runs import SAME_RESULTS, facts_of, origin_of, planned, usable
from fedsim.report.keep_checkpoints import LOG
from fedsim.report.number_format import several
from fedsim.report.places import first_fit
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import to_json
from fedsim.report.run_difference import flat
from fedsim.report.summary import read_summary
from fedsim.report.tracking import Tell, warn
from fedsim.report.unfinished_runs import FORK, INTERRUPTED, Beginning, state_of
from fedsim.runtime.parts import Parts
from fedsim.scenario import Overrides, Plan, Scenario, load_scenario, resolved_toml
from fedsim.scenario.build import read_resolved, settings
from fedsim.units import format_quantity

_OF_ROUNDS = ("run.rounds", "participation.clients_per_round", "participation.pacing.params.")
_OF_OPTIMISER = ("training.optimiser", "training.momentum", "training.keep_optimiser", "training.schedule.")
CHANGEABLE = (
    *("training.", "participation.", "aggregation.", "network.", "codec.", "faults", "faults."),
    *("run.rounds", "run.until.", "run.name", "run.save_models"),
    *("evaluation.every", "evaluation.every_s", *SAME_RESULTS),
)
"""Settings that a fork may change; with a dot at the end, those of a table."""


def forked(
    folder: Path,
    at_s: float,
    overrides: Overrides,
    out: Path | None = None,
    trackers: Sequence[str] = (),
    *,
    force: bool = False,
    tell: Tell = warn,
) -> tuple[Plan, Path]:
    """Make a folder for a run that leaves another one at an instant; return its plan and the folder.

    It leaves the other run at the end of the last round that had ended by then. Its folder has the newest
    checkpoint before that, from which the rest of the past is computed; without one, all of the past is.

    Args:
        folder: That of the other run.
        at_s: The instant, in virtual time, s.
        overrides: Values that replace the scenario's from then on, by path, of :data:`CHANGEABLE`.
        out: The folder; if left out, a free one beside the other run's.
        trackers: Names of trackers.
        force: Whether another run in ``out`` may be replaced.
        tell: Told of checkpoints that are damaged.

    Raises:
        OutputError: There is no such run, no round of it had ended by then, or it had come to its end.
        ScenarioError: Other settings are replaced, or by what cannot be there.
    """
    facts_of(folder, "forked")
    before = load_scenario(folder / "scenario.toml")
    after = load_scenario(before, overrides)
    rounds, left_at_s = _last_round(folder, at_s, after.run.rounds)
    earlier = origin_of(folder).get("scenarios", [])
    if later := [text for ended, text in earlier if ended > rounds]:
        # Before the instant at which a fork has left its run, the settings that held are those of that run.
        before = read_resolved(later[0])
        after = load_scenario(before, overrides)
    origin = {
        "of": str(folder.resolve()),
        "trace_hash": read_summary(folder)["trace_hash"],
        "after_round": rounds,
        "at_s": left_at_s,
        "scenarios": [*(one for one in earlier if one[0] <= rounds), [rounds, resolved_toml(before)]],
    }
    plan = planned(after, trackers, folder, origin)
    if faults := list(_faults(before, after, plan.parts)):
        raise ScenarioError(faults, str(folder / "scenario.toml"))
    checkpoints = CheckpointFolder(folder, plan.checkpoint.keep)
    past = usable(folder, checkpoints, plan.parts, tell, lambda one: one.rounds <= rounds)
    name = folder.resolve().name
    beside = folder if folder.name == name else folder.resolve()  # that of . or of a link
    place = out or first_fit(beside.with_name(f"{name}-fork"), is_free)
    with staged(place, force=force) as new:
        (new / FOLDER).mkdir()
        if past is not None:
            for name, content in past.contents.items():
                write_file(new / name, content)
            checkpoints.copy(past.checkpoint.rounds, new / FOLDER)
        state = state_of(plan, Beginning(), has_checkpoints=True) | {"status": INTERRUPTED}
        write_file(new / STATE, to_json(state))
        write_file(new / FORK, to_json(origin))
        write_file(new / "scenario.toml", plan.scenario_toml.encode())
    return plan, place


def _last_round(folder: Path, at_s: float, rounds: int | None) -> tuple[int, float]:
    """Return the number of the last round that had ended by an instant, and when that was, s.

    Args:
        folder: Of the run.
        at_s: The instant, s.
        rounds: How many rounds the fork has.
    """
    summary = read_summary(folder)
    table = read_columns(folder / "rounds.parquet", ["round", "ended_at_s"])
    is_round = (table["round"] >= 1) & (table["round"] <= summary["rounds"])
    if summary["stopped_by"] is not None:  # by a budget, mostly in the middle of a round
        is_round &= table["ended_at_s"] < _stopped_at_s(folder)
    ends_s, at = table["ended_at_s"][is_round], _time(at_s)
    if at_s > summary["simulated_s"]:
        until = _time(summary["simulated_s"])
        raise OutputError(
            f"the run in {folder} is known until {until}, and not at {at}: choose an earlier time"
        )
    num_ended = int(np.searchsorted(ends_s, at_s, side="right"))
    if not num_ended:
        first = f": the first ended at {_time(ends_s[0])}" if len(ends_s) else ""
        raise OutputError(f"no round of the run in {folder} had ended by {at}{first}; choose a later time")
    if num_ended >= (rounds or math.inf):
        raise OutputError(
            f"by {at} {several(num_ended, 'round')} of the run in {folder} had ended, and the fork has "
            f"run.rounds = {rounds}: choose an earlier time, or give it more rounds"
        )
    return num_ended, float(ends_s[num_ended - 1])


def _stopped_at_s(folder: Path) -> float:
    """Return when a budget has ended the rounds of a run, s."""
    lines = map(json.loads, (folder / LOG).read_text("utf-8").splitlines())
    return next((float(line["at_s"]) for line in lines if line["event"] == "stop"), math.inf)


def _time(seconds: float) -> str:
    return format_quantity(float(seconds), "time")


def _faults(before: Scenario, after: Scenario, parts: Parts) -> Iterator[Fault]:
    """Yield what a fork changes and cannot, given its parts."""
    then, now = (dict(flat(tomllib.loads(resolved_toml(one)))) for one in (before, after))
    changed = [path for path in {**then, **now} if then.get(path) != now.get(path)]
    earlier = replace(parts, **settings(before))
    is_same_pacing = type(earlier.pacing) is type(parts.pacing)
    keeps_optimisers = before.training.keep_optimiser or after.training.keep_optimiser
    for path in changed:
        problem = None
        if not _is_among(path, CHANGEABLE):
            problem = "a fork has it from the run that it comes from"
        elif is_same_pacing and _is_among(path, _OF_ROUNDS) and not parts.pacing.may_change:
            problem = f"pacing {before.participation.pacing.name!r} has it from the beginning of the run"
        elif _is_among(path, _OF_OPTIMISER) and keeps_optimisers:
            problem = "optimisers that clients keep have it from the beginning of the run"
        elif path == "training.batch_size" and not np.array_equal(parts.eligible(), earlier.eligible()):
            problem = "other clients than before would have the memory to train with it"
        elif path.startswith("participation.selector.") and _told(parts) != _told(earlier):
            problem = "with it clients would tell the server other things than before"
        elif path.startswith("faults") and _labels(parts) != _labels(earlier):
            problem = "the labels on which clients train are those from the beginning of the run"
        if problem is not None:
            names = ", ".join(dict.fromkeys(name.rstrip(".") for name in CHANGEABLE))
            yield Fault(path, problem, f"leave it as it was; what a fork may change is in {names}")


def _told(parts: Parts) -> object:
    selector = parts.selector
    return selector.wants, selector.measure, selector.asks


def _labels(parts: Parts) -> list[int]:
    """Return whose labels are flipped."""
    return [] if parts.attacks is None else parts.attacks.flips_labels().tolist()


def _is_among(path: str, names: Sequence[str]) -> bool:
    return any(path == name or (name.endswith(".") and path.startswith(name)) for name in names)
