"""Measure what commands take before they do anything: processor time of new processes, the median of five.

The limits are those of a check beyond the import of torch, and of commands that do not import it::

    python tools/bench_startup.py [--check]
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from fedsim.cli.plugin_kinds import FOLDERS

REPEATS = 5
LIGHT_S, CHECK_S = 0.5, 2.0


def cpu_s(arguments: Sequence[str]) -> float:
    """Return the processor time of a new Python process with these arguments, s."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(times)


def main() -> int:
    """Print all figures and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the start of commands.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if one takes too long")
    check = parser.parse_args().check
    torch_s = cpu_s(["-c", "import torch"])
    print(f"import torch: {torch_s:.2f} s")
    lists = [f"list {kind}{option}" for kind in FOLDERS for option in ("", " --json")]
    limits = dict.fromkeys(["--help", *lists], LIGHT_S) | {"check quickstart": torch_s + CHECK_S}
    failed = 0
    for command, most_s in limits.items():
        time_s = cpu_s(["-m", "fedsim", *command.split()])
        verdict = "ok" if time_s <= most_s else "TOO SLOW"
        failed += time_s > most_s
        print(f"{command:28} {time_s:5.2f} s of at most {most_s:.2f} s: {verdict}")
    return 1 if check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
