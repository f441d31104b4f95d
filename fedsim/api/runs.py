"""Runs from Python: a scenario goes in, a result comes out.

All functions also work where an event loop is running, as in Jupyter: virtual time has its own loop, which
then gets its own thread. Ctrl-C, or "interrupt" in Jupyter, ends a run, which can be resumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import torch

from fedsim.api.interruptible_thread import call, call_async
from fedsim.api.progress import ListenerOf, Progress, round_listeners
from fedsim.api.results import Result, Temporary
from fedsim.errors import UserError
from fedsim.page.live_session import run_on
from fedsim.report.continued_runs import extended_plan, resumed_plan
from fedsim.report.forked_runs import forked
from fedsim.report.places import RUNS, run_name
from fedsim.report.record_run import Perform, record
from fedsim.report.tracking import warn
from fedsim.runtime.run import run as simulate
from fedsim.scenario import Algorithm, Overrides, Plan, Scenario, Source, load_scenario
from fedsim.units import parse

if TYPE_CHECKING:
    from fedsim.page.live_page import LivePage

P = ParamSpec("P")

load = load_scenario


def run(
    scenario: Source,
    *,
    algorithm: Algorithm | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    out: str | Path | None = None,
    force: bool = False,
    verify: bool = False,
    profile: bool = False,
    progress: Progress = None,
    live: LivePage | None = None,
) -> Result:
    """Run a scenario in virtual time, and return its result.

    A run that has diverged, or has merged nothing, has a result too; why is said in Python's log.

    Args:
        scenario: A file, an example by name, a dictionary of tables, or a scenario that was loaded before.
        algorithm: Run this one instead of the scenario's.
        seed: Instead of the scenario's.
        overrides: Values that replace the scenario's, by path, as for :func:`load`.
        out: Folder of the results; if left out a temporary one, which goes with the result.
        force: Whether ``out`` may replace another run; the same one is replaced in any case.
        verify: Whether every invariant is checked while running; slower.
        profile: Whether to note when each worker was at which jobs, in real time, for ``fedsim timeline``.
        progress: A function that is called with each round as it ends, True for a progress bar, or False for
            nothing. If left out, a notebook shows a bar where the extra ``jupyter`` is installed.
        live: A page that shows the run while it goes on.

    Raises:
        ScenarioError: All that is wrong with the scenario.
        OutputError: The place of the results is occupied or cannot be written.
        RunError: The run failed.
    """
    loaded = load(scenario, overrides or (), algorithm=algorithm, seed=seed)
    with round_listeners(progress, [loaded.run.rounds]) as listener_of:
        return call(partial(record_run, loaded, out, force, verify, listener_of, profile=profile, live=live))


def resume(
    folder: str | Path,
    *,
    overrides: Overrides | None = None,
    profile: bool = False,
    progress: Progress = None,
    live: LivePage | None = None,
) -> Result:
    """Go on with a run that was interrupted, and return its result.

    It goes on from its last checkpoint, or from its beginning if it has none, and ends with the results that
    it would have had.

    Args:
        folder: The run's folder.
        overrides: Other values of ``engine.workers`` or ``engine.batching``, which change no result.
        profile: As for :func:`run`; a run that was begun with it goes on with it.
        progress: As for :func:`run`; rounds of the past are told too.
        live: A page that shows the run while it goes on.

    Raises:
        OutputError: There is no such run, it has come to its end, or another process is at work on it.
        RunError: The run failed, or cannot be repeated as far as its checkpoint.
    """
    return _go_on(resumed_plan(Path(folder), overrides or ()), Path(folder), profile, progress, live)


def extend(
    folder: str | Path,
    *,
    rounds: int,
    profile: bool = False,
    progress: Progress = None,
    live: LivePage | None = None,
) -> Result:
    """Give a finished run more rounds, and return its result.

    It ends with the results of a run that had that many rounds from the beginning.

    Args:
        folder: The run's folder.
        rounds: How many rounds it has in all.
        profile: As for :func:`run`; a run that was begun with it goes on with it.
        progress: As for :func:`run`; rounds of the past are told too.
        live: A page that shows the run while it goes on.

    Raises:
        OutputError: There is no such run, or it would have been another one with more rounds.
        RunError: The run failed, or cannot be repeated as far as its checkpoint.
    """
    return _go_on(extended_plan(Path(folder), rounds), Path(folder), profile, progress, live)


def fork(
    folder: str | Path,
    *,
    at: str,
    overrides: Overrides,
    out: str | Path | None = None,
    force: bool = False,
    profile: bool = False,
    progress: Progress = None,
    live: LivePage | None = None,
) -> Result:
    """Continue a copy of a run from an instant on, with other settings, and return the result of that fork.

    It leaves the run at the end of the last round that had ended by then.

    Args:
        folder: The run's folder.
        at: The instant in virtual time, such as "3 h".
        overrides: Values that replace the scenario's from then on, by path.
        out: Folder of the results; if left out, a free one beside the run's.
        force: Whether ``out`` may replace another run.
        profile: As for :func:`run`.
        progress: As for :func:`run`; rounds of the past are told too.
        live: A page that shows the run while it goes on.

    Raises:
        OutputError: There is no such run, no round of it had ended by then, or it had come to its end.
        ScenarioError: Settings are replaced that a fork has from the run that it comes from.
        RunError: The run failed, or cannot be repeated as far as its checkpoint.
    """
    place = None if out is None else Path(out)
    plan, made = forked(Path(folder), parse(at, "time"), overrides, place, force=force)
    return _go_on(plan, made, profile, progress, live)


def _go_on(plan: Plan, folder: Path, profile: bool, progress: Progress, live: LivePage | None) -> Result:
    with round_listeners(progress, [plan.parts.rounds]) as listener_of:
        do = partial(record_plan, plan, folder, False, listener_of, profile=profile, live=live, goes_on=True)
        return call(do)


def _awaited(function: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    async def arun(*args: P.args, **kwargs: P.kwargs) -> Result:
        """Run a scenario as :func:`run` does, while the event loop of the caller goes on.

        ``progress`` is called in another thread. Cancelling ends the run, which can be resumed.
        """
        return await call_async(partial(function, *args, **kwargs))

    arun.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return arun


arun = _awaited(run)


def record_run(
    scenario: Scenario,
    out: str | Path | None,
    force: bool,
    verify: bool,
    listener_of: ListenerOf,
    *,
    profile: bool = False,
    live: LivePage | None = None,
    perform: Callable[[Plan], Perform] | None = None,
    clients_stay: bool = True,
) -> Result:
    """Run a scenario that was loaded; ``perform`` returns what does it, if that is not virtual time."""
    with plain_torch():
        plan = Plan.of(scenario, scenario.run.name, verify=verify)
    more: Any = {"profile": profile, "live": live, "perform": perform, "clients_stay": clients_stay}
    return record_plan(plan, out, force, listener_of, **more)


def record_plan(
    plan: Plan,
    out: str | Path | None,
    force: bool,
    listener_of: ListenerOf,
    *,
    profile: bool = False,
    live: LivePage | None = None,
    perform: Callable[[Plan], Perform] | None = None,
    goes_on: bool | None = None,
    clients_stay: bool = True,
) -> Result:
    """Do a run, likewise; ``goes_on`` and ``clients_stay`` are those of :func:`record`."""
    place, temporary = place_of(out)
    label = run_name(plan.algorithm, plan.parts.seed)
    known_as = RUNS / plan.name / label if temporary else place
    folder = place / "run" if temporary else place
    with plain_torch(), run_on(live, plan, folder) as observe:
        done = record(
            plan,
            folder,
            force=force,
            goes_on=False if force else goes_on,
            watch=listener_of(label, plan.parts.rounds),
            observe=observe,
            known_as=known_as,
            profile=profile,
            is_kept=temporary is None,
            perform=simulate if perform is None else perform(plan),
            bus="memory" if perform is None else "http",
            clients_stay=clients_stay,
        )
    if (why := done.result.failure or done.summary["divergence"]) is not None:
        warn(f"{plan.name} {label}: {why}")
    return Result(done.folder, models=done.models, temporary=temporary)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Let gradients be computed, whatever the caller has switched off."""
    if (dtype := torch.get_default_dtype()) is not torch.float32:
        raise UserError(f"torch's default dtype is {dtype}: set it back to torch.float32 first")
    with torch.inference_mode(False), torch.enable_grad():
        yield


def place_of(out: str | Path | None) -> tuple[Path, Temporary | None]:
    """Return the folder of results, and what removes it if it is a temporary one."""
    if out is not None:
        return Path(out), None
    temporary = Temporary()
    return temporary.path, temporary
