"""``fedsim fuzz``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from textwrap import indent
from time import monotonic

from click.exceptions import Exit
from pydantic_core import PydanticCustomError

from fedsim.cli.console import note, say, table
from fedsim.cli.error_handling import FAILED
from fedsim.cli.progress import LINE_EVERY_S
from fedsim.errors import Fault, ScenarioError, UserError
from fedsim.fuzz.examine import Verdict
from fedsim.fuzz.random_algorithms import plugin_of
from fedsim.fuzz.random_scenarios import RandomScenario, random_scenario
from fedsim.fuzz.rare_events import EVENTS
from fedsim.fuzz.shrink import shrunk
from fedsim.fuzz.worker_processes import WorkerProcesses
from fedsim.report.atomic_folder import write_file
from fedsim.report.number_format import duration, several
from fedsim.report.text_table import TextTable
from fedsim.scenario import load_scenario
from fedsim.scenario.load import apply_override, document_of, parsed
from fedsim.system import num_usable_cores

SEEDS = range(100)
"""Seeds if none are named."""

MAX_FAULTS = 10
"""Faults of one scenario that are shown."""


def fuzz(
    scenario_file: Path | None,
    overrides: Sequence[str],
    algorithm: str | None,
    seeds: range | None,
    minutes: int | None,
    workers: int | None,
    out: Path | None,
) -> None:
    """Examine the scenarios of seeds, or one scenario of a file; the exit status is 1 if any fails."""
    if scenario_file is not None:
        if seeds is not None or minutes is not None:
            raise UserError("--seeds and --minutes are for random scenarios: leave them out, or FILE")
        tables, _, _ = document_of(load_scenario(scenario_file, overrides, algorithm=algorithm))
        scenarios, total = iter([RandomScenario(tables, name=str(scenario_file))]), 1
    else:
        seeds = SEEDS if seeds is None else seeds
        scenarios, total = _drawn(seeds, minutes, algorithm or "", overrides), len(seeds)
        _check_algorithm(algorithm)
    summary, next_s = Summary(total, monotonic()), monotonic() + LINE_EVERY_S
    with WorkerProcesses(workers or num_usable_cores()) as processes:
        try:
            for scenario, verdict in processes.verdicts(scenarios):
                summary.add(verdict)
                if verdict.faults:
                    _show(scenario, verdict)
                    if summary.is_new(verdict) and scenario_file is None:
                        _shrink(scenario, verdict, processes, (out or Path("fuzz")) / scenario.name)
                if monotonic() >= next_s:
                    note(summary.line())
                    next_s = monotonic() + LINE_EVERY_S
        except KeyboardInterrupt as error:
            summary.show()
            error.add_note(f"{several(summary.ends.total(), 'scenario')} were examined")
            raise
    summary.show()
    if scenario_file is not None and summary.ends["refused"]:
        raise UserError(verdict.why)
    if summary.ends["failed"]:
        raise Exit(FAILED)


@dataclass
class Summary:
    """What became of the scenarios so far, of how many, and since when, by the host's clock."""

    total: int
    began_s: float
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)  # asked for membership only

    def add(self, verdict: Verdict) -> None:
        """Take note of a verdict."""
        self.ends[verdict.end] += 1
        self.events.update(verdict.events)
        if verdict.why:
            self.reasons[f"{verdict.end}: {verdict.why.splitlines()[-1].strip()}"] += 1

    def is_new(self, verdict: Verdict) -> bool:
        """Say whether no scenario has failed in the same way before."""
        is_new = verdict.kinds[0] not in self.kinds
        self.kinds.update(verdict.kinds)
        return is_new

    def line(self) -> str:
        """Return how many scenarios ended how."""
        ends = ", ".join(f"{self.ends[end]} {end}" for end in ("finished", "ended", "refused", "failed"))
        took = duration(monotonic() - self.began_s)
        return f"{self.ends.total()} of {several(self.total, 'scenario')} in {took}: {ends}"

    def show(self) -> None:
        """Print everything."""
        for reason, number in self.reasons.most_common():
            say(f"{number} {reason}")
        if came := [(words, str(self.events[words])) for words in EVENTS if self.events[words]]:
            table(TextTable(["rare event", "scenarios"], came))
            say()
        if self.total > 1 and (never := [words for words in EVENTS if not self.events[words]]):
            say(f"never: {'; '.join(never)}")
        say(self.line())


def _drawn(
    seeds: range, minutes: int | None, algorithm: str, overrides: Sequence[str]
) -> Iterator[RandomScenario]:
    """Yield the scenarios of seeds, as long as there is time, with values replaced."""
    ends_s = inf if minutes is None else monotonic() + 60 * minutes
    for seed in seeds:
        if monotonic() >= ends_s:
            return
        scenario = random_scenario(seed, algorithm)
        for override in parsed(overrides, "--set"):
            fault = override if isinstance(override, Fault) else apply_override(scenario.tables, override)
            if fault is not None:
                raise ScenarioError([fault], scenario.name)
        yield scenario


def _check_algorithm(name: str | None) -> None:
    try:
        plugin_of(name or "fedavg")
    except PydanticCustomError as error:
        raise UserError(str(Fault("--algorithm", **(error.context or {})))) from None


def _show(scenario: RandomScenario, verdict: Verdict) -> None:
    say(f"{scenario.name} failed:")
    for fault in verdict.faults[:MAX_FAULTS]:
        say(indent(fault, "  "))
    if (more := len(verdict.faults) - MAX_FAULTS) > 0:
        say(f"  and {several(more, 'other difference')}")


def _shrink(scenario: RandomScenario, verdict: Verdict, processes: WorkerProcesses, folder: Path) -> None:
    """Shrink a scenario that fails, print it, and write it to a folder with the files that it names."""

    def fails(candidate: RandomScenario) -> bool:
        ((_, its),) = processes.verdicts([candidate])
        return verdict.kinds[0] in its.kinds

    small = shrunk(scenario, fails)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**small.files, "scenario.toml": small.toml}.items():
        write_file(folder / name, text.encode())
    say(indent(small.toml, "    "))
    say(f"  fedsim fuzz {folder}/scenario.toml repeats it")
