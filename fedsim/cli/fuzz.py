"""``fedsim fuzz``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from textwrap import indent
from time import monotonic

from click.exceptions import Exit

from fedsim.cli.console import note, say, table
from fedsim.cli.error_handling import FAILED
from fedsim.cli.progress import LINE_EVERY_S
from fedsim.errors import Fault, ScenarioError, UserError
from fedsim.fuzz.examine import ENDS, Verdict
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

FOLDER = Path("fuzz")
"""Where scenarios go that have failed."""


def fuzz(
    scenario_file: Path | None,
    overrides: Sequence[str],
    algorithm: str | None,
    seeds: range | None,
    minutes: int | None,
    workers: int | None,
) -> None:
    """Examine the scenarios of seeds, or one scenario of a file; the exit status is 1 if any fails."""
    if scenario_file is None:
        seeds = seeds or SEEDS
        scenarios = _drawn(seeds, minutes, algorithm or "", overrides)
    elif seeds is not None or minutes is not None:
        raise UserError("--seeds and --minutes are for random scenarios: leave them out, or FILE")
    else:
        tables, _, _ = document_of(load_scenario(scenario_file, overrides, algorithm=algorithm))
        scenarios = iter([RandomScenario(tables, name=str(scenario_file))])
    summary, next_s = _Summary(len(seeds or (scenario_file,))), monotonic() + LINE_EVERY_S
    with WorkerProcesses(workers or num_usable_cores()) as processes:
        try:
            for scenario, verdict in processes.verdicts(scenarios):
                summary.add(verdict)
                if verdict.faults:
                    say(f"{scenario.name} failed:")
                    say(indent("\n".join(verdict.faults), "  "))
                    if summary.is_new(verdict) and scenario_file is None:
                        _shrink(scenario, verdict, processes)
                if monotonic() >= next_s:
                    note(summary.line())
                    next_s = monotonic() + LINE_EVERY_S
        except KeyboardInterrupt as error:
            summary.show()
            error.add_note(f"after {several(summary.ends.total(), 'scenario')}")
            raise
    if scenario_file is not None and verdict.end == "refused":
        raise UserError(verdict.why)
    summary.show()
    if summary.ends["failed"]:
        raise Exit(FAILED)
    if summary.ends["refused"] == summary.ends.total():
        raise UserError("all scenarios were refused, and nothing was tested: the reasons are above")


class _Summary:
    """What became of the scenarios so far, of a total."""

    def __init__(self, total: int) -> None:
        self.ends, self._total, self._began_s = Counter[str](), total, monotonic()
        self._reasons, self._events, self._kinds = Counter[str](), Counter[str](), Counter[str]()

    def add(self, verdict: Verdict) -> None:
        self.ends[verdict.end] += 1
        self._events.update(verdict.events)
        if verdict.why:
            self._reasons[f"{verdict.end}: {verdict.why.splitlines()[-1].strip()}"] += 1

    def is_new(self, verdict: Verdict) -> bool:
        """Say whether no scenario has failed in the same way before."""
        self._kinds.update(verdict.kinds)
        return self._kinds[verdict.kinds[0]] == 1

    def line(self) -> str:
        ends, took = ", ".join(f"{self.ends[end]} {end}" for end in ENDS), monotonic() - self._began_s
        return f"{self.ends.total()} of {several(self._total, 'scenario')} in {duration(took)}: {ends}"

    def show(self) -> None:
        for reason, number in self._reasons.most_common():
            say(f"{number} {reason}")
        never = [words for words in EVENTS if not self._events[words]]
        came = [(words, str(self._events[words])) for words in EVENTS if self._events[words]]
        notes = [f"never: {'; '.join(never)}"] if self._total > 1 else []
        if came:
            table(TextTable(["rare event", "scenarios"], came, notes))
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
        for one in parsed(overrides, "--set"):
            fault = one if isinstance(one, Fault) else apply_override(scenario.tables, one)
            if fault is not None:
                raise ScenarioError([fault], scenario.name)
        yield scenario


def _shrink(scenario: RandomScenario, verdict: Verdict, processes: WorkerProcesses) -> None:
    """Shrink a scenario that fails, print it, and write it to a folder with the files that it names."""

    def fails(candidate: RandomScenario) -> bool:
        return any(verdict.kinds[0] in its.kinds for _, its in processes.verdicts([candidate]))

    small, folder = shrunk(scenario, fails), FOLDER / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**small.files, "scenario.toml": small.toml}.items():
        write_file(folder / name, text.encode())
    say(f"{indent(small.toml, '    ')}\n  fedsim fuzz {folder}/scenario.toml repeats it")
