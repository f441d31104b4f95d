"""Doing the runs of a validation: each algorithm is simulated, and run over sockets."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fedsim.errors import OutputError, UserError
from fedsim.processes.server import ServerProcess
from fedsim.report import validation
from fedsim.report.places import RUNS, first_fit, run_name
from fedsim.report.provenance import Bus
from fedsim.report.record_run import Perform, record
from fedsim.report.run_text import PASSED, SIMULATED
from fedsim.report.validation import Validation
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import run
from fedsim.scenario import Plan, Scenario

Watching = Callable[..., AbstractContextManager[Callable[[RoundRow], None]]]
"""Given what is done, its number of rounds and what is said of its time (``passed``), yields what is told of
each round."""


def validation_place(scenario: Scenario) -> Path:
    """Return a free folder for a validation."""
    return first_fit(RUNS / scenario.run.name / "validation", lambda folder: not folder.exists())


def validate(
    scenarios: Sequence[Scenario],
    folder: Path,
    *,
    speed_up: float | None,
    processes: int,
    watching: Watching,
    tell: Callable[[str], None],
) -> list[Validation]:
    """Do the runs, write their folders, and return how well each was predicted.

    Args:
        scenarios: Each with another algorithm.
        folder: Where the folders of runs and the file that names them go.
        speed_up: Emulated seconds in a real one; None to compare with runs without emulation.
        processes: Client processes.
        watching: Shows the progress of a run.
        tell: Told what a person has to know.

    Raises:
        UserError: A scenario that cannot be validated.
        OutputError: The folder is not empty, or cannot be written.
    """
    real = "emulated" if speed_up is not None else "real"
    pairs: dict[str, tuple[str, str]] = {}
    for scenario in scenarios:
        if scenario.run.rounds == 1:
            raise UserError(
                "run.rounds: one round does not show how errors differ from round to round: write 2 or more"
            )
        name = run_name(scenario.algorithm.name, scenario.run.seed)
        pairs[scenario.algorithm.name] = f"simulated/{name}", f"{real}/{name}"
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise OutputError(f"{folder} exists already: choose another place for the validation")
    servers = [
        ServerProcess.with_children(Plan.of(scenario, scenario.run.name), processes, speed_up)
        for scenario in scenarios
    ]
    try:
        for server, pair in zip(servers, pairs.values(), strict=True):
            _do_both(server, pair, folder, watching, tell)
        validation.write(folder, pairs)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # all in it was written just now, and none of it is whole
        raise
    return validation.read(folder)


def _do_both(
    server: ServerProcess,
    pair: tuple[str, str],
    folder: Path,
    watching: Watching,
    tell: Callable[[str], None],
) -> None:
    """Simulate, and run over sockets."""
    plan = server.plan
    ways: list[tuple[str, Perform, Bus]] = [(pair[0], run, "memory"), (pair[1], server, "http")]
    for name, perform, bus in ways:
        passed = SIMULATED if bus == "memory" else PASSED
        with watching(name, plan.parts.rounds, passed=passed) as watch:
            record(
                *(plan, folder / name),
                watch=watch,
                perform=perform,
                bus=bus,
                tell=tell,
                is_kept=False,
                keeps_checkpoints=False,
                clients_stay=False,
            )
