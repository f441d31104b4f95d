"""Run random scenarios twice each, once with everything checked, and recompute what their folders say.

A seed fails where a run breaks off with an error that no user has earned, where a second run, unchecked and
with another number of workers, leaves anything else than the first, or where the summary and the tables do
not follow from the trace (:mod:`check_run_folder`). Each failure is a line, with the scenario and its files
below it. A run that ends as its scenario says it may (nobody can take part, a round failed for good) is none,
nor is a scenario that is refused::

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
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from time import perf_counter

from check_run_folder import faults_of
from random_scenarios import RandomScenario, random_scenario
from run_folder import NOT_ALWAYS, TABLES, RunFolder

from fedsim.errors import RunError, UserError
from fedsim.report.record_run import record
from fedsim.scenario import Plan, load_scenario

MOST_S = 60
"""Real time after which both runs of a scenario count as hanging; they take a second."""
SAME = ("summary.json", "log.jsonl", "trace.msgpack", *(f"{name}.parquet" for name in TABLES))
"""Files that two runs leave alike, apart from the real time in the summary."""


@dataclass(frozen=True)
class Verdict:
    """What came of a seed.

    Attributes:
        seed: The seed.
        end: ``finished``, ``ended`` where the scenario may end so, ``refused`` or ``failed``.
        faults: What is wrong; none unless it failed.
        why: How it ended, unless it finished.
    """

    seed: int
    end: str
    faults: tuple[str, ...] = ()
    why: str = ""


def verdict(seed: int, place: Path) -> Verdict:
    """Run the scenario of a seed twice, in an empty folder, and examine what is left.

    Args:
        seed: The seed.
        place: Where its files and its results go.
    """
    scenario = random_scenario(seed)
    for name, text in {**scenario.files, "scenario.toml": scenario.toml}.items():
        (place / name).write_text(text, encoding="utf-8")
    workers: int = scenario.tables["engine"]["workers"]
    folders = place / "first", place / "second"
    with contextlib.chdir(place), warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = [
            run(folders[0], workers, verify=True),
            run(folders[1], workers % 4 + 1, verify=False),  # also by the shorter ways that this leaves
        ]
    if ends[0] != ends[1]:
        return Verdict(seed, "failed", (f"the first run ended with {ends[0]}, the second with {ends[1]}",))
    end, why = ends[0]
    if end == "failed":
        return Verdict(seed, end, (why,))
    if end != "finished":
        return Verdict(seed, end, (), why)
    faults = (*differences(*folders), *faults_of(RunFolder.read(folders[0])))
    return Verdict(seed, "failed" if faults else end, faults)


def run(folder: Path, workers: int, *, verify: bool = True) -> tuple[str, str]:
    """Run ``scenario.toml`` into a folder; return how it ended, and why."""
    file = Path("scenario.toml")
    try:
        scenario = load_scenario(file, [f"engine.workers={workers}"])
        record(Plan.of(scenario, str(file), verify=verify), folder)
    except UserError as error:
        return "refused", str(error)
    except Exception as error:
        if type(error) is RunError:  # those below it are bugs, of fedsim or of a plugin
            return "ended", str(error)
        return "failed", "".join(traceback.format_exception(error)[-3:]).strip()
    return "finished", ""


def differences(first: Path, second: Path) -> Iterator[str]:
    """Yield what two run folders do not have in common."""
    others = [f"{name}.parquet" for name in NOT_ALWAYS if (first / f"{name}.parquet").exists()]
    for name in (*SAME, *others):
        contents = [(folder / name).read_bytes() for folder in (first, second)]
        if name == "summary.json":
            contents = [re.sub(rb'"wall_s": [0-9.e-]+', b"", content) for content in contents]
        if contents[0] != contents[1]:
            yield f"{name} of the second run is another one"


def examine(seed: int) -> Verdict:
    """Do it in a folder that is gone afterwards; never for ever."""

    def hang(*_: object) -> None:
        raise TimeoutError(f"both runs took more than {MOST_S} s of real time")

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(MOST_S)
    try:
        with tempfile.TemporaryDirectory(prefix="fedsim-fuzz-") as place:
            return verdict(seed, Path(place))
    except Exception as error:
        return Verdict(seed, "failed", ("".join(traceback.format_exception(error)[-3:]).strip(),))
    finally:
        signal.alarm(0)


def shown(one: Verdict, scenario: RandomScenario) -> str:
    """Return a failure for people: what is wrong, then all that it takes to see it again."""
    faults = "\n".join(f"  {fault}" for fault in one.faults)
    files = [f"# {name}:\n" + indent(text, "#   ") for name, text in scenario.files.items()]
    return f"seed {one.seed} failed:\n{faults}\n{scenario.toml}{''.join(files)}"


def seeds_of(text: str) -> range:
    """Read ``7`` or ``0-199``."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    """Fuzz; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--seeds", type=seeds_of, default=range(200), help="such as 0-199 or 7 (default 0-199)"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default one a core)"
    )
    arguments = parser.parse_args()
    began, ends, whys = perf_counter(), Counter[str](), Counter[str]()
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    # Ctrl-C is for this process, which lets the others finish what they are at.
    pool = ProcessPoolExecutor(arguments.workers, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        futures: list[Future[Verdict]] = [pool.submit(examine, seed) for seed in arguments.seeds]
        for future in as_completed(futures):
            one = future.result()
            ends[one.end] += 1
            if one.why:
                whys[f"{one.end}: {one.why.splitlines()[-1].strip()[:150]}"] += 1
            if one.faults:
                print(shown(one, random_scenario(one.seed)), flush=True)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    finally:
        pool.shutdown(cancel_futures=True)
        for why, number in whys.most_common():
            print(f"{number} {why}")
        print(f"{ends.total()} seeds in {perf_counter() - began:.0f} s: {dict(ends)}")
    return 1 if ends["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
