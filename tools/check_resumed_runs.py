"""Kill runs of random scenarios, resume them, and compare the results with those of whole runs.

Each run is killed up to three times by SIGKILL, and resumed with another number of workers. It is killed at a
random instant of real time, or right after a checkpoint; with ``--each-event`` instead once after each event
of its trace, which takes a run for each event. Checkpoints are written after each round. A refused scenario
is no failure, nor is a run that ends as its scenario allows::

    python tools/check_resumed_runs.py [--seeds 0-199] [--workers 2] [--each-event]
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from check_seeds import check, options

from fedsim.errors import RunError, UserError
from fedsim.fuzz.examine import Verdict, differences
from fedsim.fuzz.random_scenarios import random_scenario
from fedsim.report.keep_checkpoints import CheckpointKeeper
from fedsim.report.record_run import record
from fedsim.rng import Key
from fedsim.scenario import Plan, load_scenario

EVENTS = (
    *("dispatch", "drop", "late", "reject", "merge", "round_end", "evaluation", "stop"),
    *("transfer_start", "coded", "transfer_end", "transfer_copy", "job_start", "job_end"),
    *("leave", "return", "abandon", "fault", "retry"),
)
"""All kinds of records of a trace in virtual time."""
MAX_KILLS = 3
MORE_ROUNDS = 4
"""Rounds beside those of the random scenario, so that there are checkpoints."""
MAX_S = 120
"""Real time for one attempt."""
FORKS: Any = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["__main__", "fedsim.report.record_run"])


def attempt(
    place: Path, rounds: int, workers: int, at_event: int | None, after_checkpoint: int | None, end: Any
) -> None:
    """Run the scenario of a folder in this process, or go on with it; kill the process on the way.

    Args:
        place: The folder, which has ``scenario.toml``.
        rounds: Rounds of the run.
        workers: Worker threads.
        at_event: Kill it after so many events of the trace of this process.
        after_checkpoint: Kill it after so many checkpoints.
        end: Where the end of the run is sent: finished, ended, refused or failed.
    """
    os.chdir(place)
    keep, noted = CheckpointKeeper._write, Counter[str]()

    def die_after(name: str, most: int | None) -> None:
        noted[name] += 1
        if noted[name] == most:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self: CheckpointKeeper, *arguments: Any) -> None:
        keep(self, *arguments)
        die_after("checkpoints", after_checkpoint)

    def observe(recorder: Any, parts: Any) -> None:
        if at_event is not None:
            recorder.trace.listen(dict.fromkeys(EVENTS, lambda *_: die_after("events", at_event)))

    keeper: Any = CheckpointKeeper
    keeper._write, keeper._is_due = write, lambda *_: True
    try:
        plan = Plan.of(load_scenario("scenario.toml", {"run.rounds": rounds}), "scenario.toml")
        executor = plan.parts.executor
        executor.config = executor.config.model_copy(update={"workers": workers})
        record(plan, Path("killed"), observe=observe)
    except UserError as error:
        end.send(("refused", str(error)))
    except RunError as error:
        end.send(("ended", str(error)))
    except Exception as error:
        end.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        end.send(("finished", ""))


def killed(
    place: Path, rounds: int, workers: int, at_event: int | None, after_checkpoint: int | None, after_s: float
) -> tuple[str, str] | None:
    """Make an attempt in a process of its own; return its end, None if it was killed."""
    receive, send = FORKS.Pipe(duplex=False)
    attempts = partial(attempt, place, rounds, workers, at_event, after_checkpoint)
    process = FORKS.Process(target=attempts, args=(send,))
    process.start()
    send.close()
    process.join(after_s)
    process.kill()
    process.join()
    try:
        end: tuple[str, str] = receive.recv()
    except EOFError:
        return None
    return end


def prepared(seed: int, place: Path) -> tuple[int, int]:
    """Write the scenario of a seed into an empty folder; return its numbers of rounds and of workers."""
    scenario = random_scenario(seed)
    for name, text in {**scenario.files, "scenario.toml": scenario.toml}.items():
        (place / name).write_text(text, encoding="utf-8")
    return scenario.tables["run"]["rounds"] + MORE_ROUNDS, scenario.tables["engine"]["workers"]


def verdict(seed: int, place: Path) -> Verdict:
    """Run the scenario of a seed in an empty folder, kill it on the way, resume it, and compare."""
    (rounds, workers), draws = prepared(seed, place), Key.root(seed).child("kills").numpy()
    began_s = time.monotonic()
    end, why = _whole(place, rounds)
    took_s = time.monotonic() - began_s
    if end in ("refused", "failed"):
        return Verdict(end, (why,) if end == "failed" else (), why)
    for _ in range(MAX_KILLS):
        is_late, workers = draws.random() < 0.5, workers % 4 + 1
        after = int(draws.integers(1, 4)) if is_late else None
        for_s = MAX_S if is_late else draws.uniform(0, took_s)
        if (last := killed(place, rounds, workers, None, after, for_s)) is not None:
            break
    else:
        last = killed(place, rounds, workers, None, None, MAX_S)
    return _compared(place, (end, why), last)


def each_event(seed: int, place: Path) -> Iterator[Verdict]:
    """Kill the run of a seed once after each event of its trace, resume it each time, and compare."""
    rounds, workers = prepared(seed, place)
    first = _whole(place, rounds)
    for number in count(1):
        if killed(place, rounds, workers, number, None, MAX_S) is not None:
            return
        yield _compared(place, first, killed(place, rounds, workers, None, None, MAX_S))
        shutil.rmtree(place / "killed", ignore_errors=True)


def _whole(place: Path, rounds: int) -> tuple[str, str]:
    """Do the run without interruption; return its end."""
    end = killed(place, rounds, 1, None, None, MAX_S)
    if (place / "killed").exists():
        (place / "killed").rename(place / "whole")
    return end or ("failed", f"it took more than {MAX_S} s of real time")


def _compared(place: Path, first: tuple[str, str], last: tuple[str, str] | None) -> Verdict:
    """Return the verdict on a run that was killed, by the ends of both runs and their folders."""
    if last is None:
        return Verdict("failed", (f"it took more than {MAX_S} s of real time",))
    if last[0] != first[0]:
        return Verdict("failed", (f"the whole run {first}, the killed one {last}",))
    faults = tuple(differences(place / "whole", place / "killed")) if last[0] == "finished" else ()
    return Verdict("failed" if faults else last[0], faults, last[1])


def examine(seed: int, *, at_each_event: bool = False) -> Verdict:
    """Return the verdict on a seed."""
    with tempfile.TemporaryDirectory(prefix="fedsim-kill-") as name:
        if not at_each_event:
            return verdict(seed, Path(name))
        verdicts = list(each_event(seed, Path(name)))
        bad = next((one for one in verdicts if one.faults), None)
        return bad or Verdict("finished", (), f"killed {len(verdicts)} times")


def main() -> int:
    """Check all seeds; return the exit status."""
    parser = options(__doc__)
    parser.add_argument("--each-event", action="store_true", help="kill each run after each of its events")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.workers) as pool:
        return check(partial(examine, at_each_event=arguments.each_event), arguments.seeds, pool)


if __name__ == "__main__":
    sys.exit(main())
