"""What tools that check seeds share: their options, a time limit, and what is printed."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from textwrap import indent

from fedsim.fuzz.examine import Verdict
from fedsim.fuzz.random_scenarios import random_scenario

MAX_S = 60
"""Real time for the runs of a scenario, which take a second or a few."""


def options(doc: str | None) -> argparse.ArgumentParser:
    """Return what reads the options of a tool that checks seeds."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-199", help="such as 0-199 or 7 (default 0-199)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    return parser


def limited(verdict: Callable[[int, Path], Verdict], seed: int) -> Verdict:
    """Return the verdict on a seed, which is found in an empty folder; give up after ``MAX_S``."""

    def hang(*_: object) -> None:
        raise TimeoutError(f"the runs took more than {MAX_S} s of real time")

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(MAX_S)
    try:
        with tempfile.TemporaryDirectory(prefix="fedsim-seed-") as place:
            return verdict(seed, Path(place))
    except Exception as error:
        return Verdict("failed", ("".join(traceback.format_exception(error)[-3:]).strip(),))
    finally:
        signal.alarm(0)


def check(look: Callable[[int], Verdict], seeds: str, pool: Executor) -> int:
    """Check all seeds, print the failures and a summary, and return the exit status."""
    first, _, last = seeds.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    ends, reasons = Counter[str](), Counter[str]()
    for seed, one in zip(numbers, pool.map(look, numbers), strict=True):
        ends[one.end] += 1
        if one.why:
            reasons[f"{one.end}: {one.why.splitlines()[-1].strip()[:150]}"] += 1
        if one.faults:
            faults = "\n".join(f"  {fault}" for fault in one.faults)
            print(f"seed {seed} failed:\n{faults}\n{_shown(seed)}", flush=True)
    for reason, number in reasons.most_common():
        print(f"{number} {reason}")
    print(f"{ends.total()} seeds: {dict(ends)}")
    return 1 if ends["failed"] else 0


def _shown(seed: int) -> str:
    """Return the scenario of a seed, and its files as comments."""
    scenario = random_scenario(seed)
    files = [f"# {name}:\n" + indent(text, "#   ") for name, text in scenario.files.items()]
    return scenario.toml + "".join(files)
