"""Running a scenario twice, to compare both runs and to recompute the results from the trace.

The first run goes event by event and does each job by itself, with every check. The second one, with another
number of workers, takes the shortcuts that checks rule out. A scenario fails if a run ends with an error that
is no user's fault, if the runs leave different files, or if summary and tables do not follow from the trace
(:mod:`fedsim.fuzz.check_run_folder`).
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsim.errors import RunError, UserError
from fedsim.fuzz.check_run_folder import faults_of
from fedsim.fuzz.random_scenarios import RandomScenario
from fedsim.fuzz.rare_events import events_of
from fedsim.fuzz.run_folder import NOT_ALWAYS, TABLES, RunFolder
from fedsim.report.record_run import record
from fedsim.scenario import Plan, load_scenario

SAME = ("summary.json", "log.jsonl", "trace.msgpack", *(f"{name}.parquet" for name in TABLES))
"""Files that two runs leave alike, apart from the real time in the summary."""

ENDS = ("finished", "ended", "refused", "failed")
"""What may become of a scenario; a run that has ended did so as the scenario allows."""


@dataclass(frozen=True)
class Verdict:
    """What became of a scenario.

    Attributes:
        end: One of :data:`ENDS`.
        faults: What is wrong, if it failed.
        why: Why it has not finished.
        events: The rare events of its run, in words.
    """

    end: str
    faults: tuple[str, ...] = ()
    why: str = ""
    events: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The faults without their numbers, each once: equal for two scenarios that fail in the same way."""
        last_lines = (fault.strip().splitlines()[-1] for fault in self.faults)
        return tuple(dict.fromkeys(re.sub(r"\d[\d.e+-]*", "#", line)[:100] for line in last_lines))


def examine(scenario: RandomScenario, place: Path) -> Verdict:
    """Run a scenario twice in an empty folder, and compare the results."""
    for name, text in scenario.files.items():
        (place / name).write_text(text, encoding="utf-8")
    workers = scenario.tables.get("engine", {}).get("workers", 1)
    other = workers % 4 + 1 if isinstance(workers, int) else 1
    first, second = place / "first", place / "second"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = [
            run(scenario, first, {"engine.workers": workers, "engine.batching": "off"}, verify=True),
            run(scenario, second, {"engine.workers": other, "engine.batching": "auto"}, verify=False),
        ]
    failed = [f"run {number}: {why}" for number, (end, why) in enumerate(ends, 1) if end == "failed"]
    if failed:
        return Verdict("failed", tuple(failed))
    if ends[0] != ends[1]:
        return Verdict("failed", (f"the first run ended with {ends[0]}, the second with {ends[1]}",))
    end, why = ends[0]
    if end != "finished":
        return Verdict(end, why=why)
    try:
        folder = RunFolder.read(first)
        faults, events = (*differences(first, second), *faults_of(folder)), events_of(folder)
    except Exception as error:  # of a trace that contradicts itself
        return Verdict("failed", (f"it cannot be recomputed: {_text(error)}",))
    return Verdict("failed" if faults else end, faults, events=events)


def run(
    scenario: RandomScenario, folder: Path, changes: dict[str, object], *, verify: bool
) -> tuple[str, str]:
    """Run a scenario into a folder, with some settings changed; return its end and the reason."""
    try:
        loaded = load_scenario(scenario.tables, changes, folders=[folder.parent])
        record(Plan.of(loaded, loaded.run.name, verify=verify), folder)
    except UserError as error:
        return "refused", str(error)
    except Exception as error:
        if type(error) is RunError:  # those below it are bugs, of fedsim or of a plugin
            return "ended", str(error)
        return "failed", _text(error)
    return "finished", ""


def _text(error: Exception) -> str:
    """Return an error with the last places of its traceback, without notes on folders that are removed."""
    error.__notes__ = []
    return "".join(traceback.format_exception(error)[-3:]).strip()


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the differences of two run folders."""
    others = [f"{name}.parquet" for name in NOT_ALWAYS if (first / f"{name}.parquet").exists()]
    for name in (*SAME, *others):
        contents = [(folder / name).read_bytes() for folder in (first, second)]
        if name == "summary.json":
            contents = [re.sub(rb'"wall_s": [0-9.e-]+', b"", content) for content in contents]
        if contents[0] != contents[1]:
            yield f"{name} of the second run is another one"
