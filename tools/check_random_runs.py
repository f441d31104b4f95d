"""Run random scenarios twice each, once with every check, and recompute their results from their traces.

A seed fails if a run ends with an error that is no user's fault, if the second run, without checks and with
another number of workers, leaves other files, or if summary and tables do not follow from the trace
(:mod:`check_run_folder`). A failure is printed with the scenario and its files. A refused scenario is no
failure, nor is a run that ends as its scenario allows::

    python tools/check_random_runs.py [--seeds 0-199] [--workers 2]
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from check_run_folder import faults_of
from random_scenarios import RandomScenario, random_scenario
from run_folder import NOT_ALWAYS, TABLES, RunFolder

from fedsim.errors import RunError, UserError
from fedsim.report.record_run import record
from fedsim.scenario import Plan, load_scenario

MAX_S = 60
"""Real time for the runs of a scenario, which take a second or a few."""
SAME = ("summary.json", "log.jsonl", "trace.msgpack", *(f"{name}.parquet" for name in TABLES))
"""Files that two runs leave alike, apart from the real time in the summary."""


@dataclass(frozen=True)
class Verdict:
    """The result of a seed."""

    seed: int
    end: str  # finished, ended (as the scenario allows), refused or failed
    faults: tuple[str, ...] = ()
    why: str = ""  # unless it finished


def verdict(seed: int, place: Path) -> Verdict:
    """Run the scenario of a seed twice in an empty folder, and compare the results."""
    scenario = random_scenario(seed)
    for name, text in {**scenario.files, "scenario.toml": scenario.toml}.items():
        (place / name).write_text(text, encoding="utf-8")
    workers: int = scenario.tables["engine"]["workers"]
    folders = place / "first", place / "second"
    with contextlib.chdir(place), warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = [
            run(folders[0], workers, verify=True, batching="off"),
            run(folders[1], workers % 4 + 1, verify=False),  # with the shortcuts that checks rule out
        ]
    if failed := [
        f"the {which} run: {why}"
        for which, (end, why) in zip(("first", "second"), ends, strict=True)
        if end == "failed"
    ]:
        return Verdict(seed, "failed", tuple(failed))
    if ends[0] != ends[1]:
        return Verdict(seed, "failed", (f"the first run ended with {ends[0]}, the second with {ends[1]}",))
    end, why = ends[0]
    if end != "finished":
        return Verdict(seed, end, (), why)
    faults = (*differences(*folders), *faults_of(RunFolder.read(folders[0])))
    return Verdict(seed, "failed" if faults else end, faults)


def run(folder: Path, workers: int, *, verify: bool = True, batching: str = "auto") -> tuple[str, str]:
    """Run ``scenario.toml`` into a folder; return its end and the reason."""
    file = Path("scenario.toml")
    try:
        scenario = load_scenario(file, {"engine.workers": workers, "engine.batching": batching})
        record(Plan.of(scenario, str(file), verify=verify), folder)
    except UserError as error:
        return "refused", str(error)
    except Exception as error:
        if type(error) is RunError:  # those below it are bugs, of fedsim or of a plugin
            return "ended", str(error)
        return "failed", "".join(traceback.format_exception(error)[-3:]).strip()
    return "finished", ""


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield the differences of two run folders."""
    others = [f"{name}.parquet" for name in NOT_ALWAYS if (first / f"{name}.parquet").exists()]
    for name in (*SAME, *others):
        contents = [(folder / name).read_bytes() for folder in (first, second)]
        if name == "summary.json":
            contents = [re.sub(rb'"wall_s": [0-9.e-]+', b"", content) for content in contents]
        if contents[0] != contents[1]:
            yield f"{name} of the second run is another one"


def examine(seed: int, verdict: Callable[[int, Path], Verdict] = verdict) -> Verdict:
    """Return the verdict on a seed, which is found in an empty folder; give up after ``MAX_S``."""

    def hang(*_: object) -> None:
        raise TimeoutError(f"the runs took more than {MAX_S} s of real time")

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(MAX_S)
    try:
        with tempfile.TemporaryDirectory(prefix="fedsim-fuzz-") as place:
            return verdict(seed, Path(place))
    except Exception as error:
        return Verdict(seed, "failed", ("".join(traceback.format_exception(error)[-3:]).strip(),))
    finally:
        signal.alarm(0)


def shown(one: Verdict, scenario: RandomScenario) -> str:
    """Return a failure as text: the faults, then the scenario and its files."""
    faults = "\n".join(f"  {fault}" for fault in one.faults)
    files = [f"# {name}:\n" + indent(text, "#   ") for name, text in scenario.files.items()]
    return f"seed {one.seed} failed:\n{faults}\n{scenario.toml}{''.join(files)}"


def options(doc: str | None) -> argparse.ArgumentParser:
    """Return what reads the options of a tool that checks seeds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-199", help="such as 0-199 or 7 (default 0-199)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    return parser


def check(look: Callable[[int], Verdict], seeds: str, pool: Executor) -> int:
    """Check all seeds, print the failures and a summary, and return the exit status."""
    first, _, last = seeds.partition("-")
    ends, reasons = Counter[str](), Counter[str]()
    for one in pool.map(look, range(int(first), int(last or first) + 1)):
        ends[one.end] += 1
        if one.why:
            reasons[f"{one.end}: {one.why.splitlines()[-1].strip()[:150]}"] += 1
        if one.faults:
            print(shown(one, random_scenario(one.seed)), flush=True)
    for reason, number in reasons.most_common():
        print(f"{number} {reason}")
    print(f"{ends.total()} seeds: {dict(ends)}")
    return 1 if ends["failed"] else 0


def main() -> int:
    """Check all seeds; return the exit status."""
    arguments = options(__doc__).parse_args()
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(arguments.workers, spawn) as pool:
        return check(examine, arguments.seeds, pool)


if __name__ == "__main__":
    sys.exit(main())
