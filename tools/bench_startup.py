"""Processor time of commands from the start of their process.

Commands that only print do not import torch; ``check`` may take 2 s beyond the import of torch.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from bench_harness import Bench, main

from fedsim.cli.plugin_kinds import FOLDERS

LIGHT_S, CHECK_S = 0.5, 2.0


def cpu_s(arguments: Sequence[str]) -> float:
    """Return the processor time of a new Python process, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(bench: Bench) -> None:
    """Time ``import torch`` and each command."""
    commands = {"import torch": ["-c", "import torch"]}
    lists = [f"list {kind}{option}" for kind in FOLDERS for option in ("", " --json")]
    for command in ("--help", *lists, "check quickstart"):
        commands[command] = ["-m", "fedsim", *command.split()]
    times = bench.in_turns({name: partial(cpu_s, words) for name, words in commands.items()})
    torch_s = bench.show("import torch", times.pop("import torch"), "s")
    bench.show("check quickstart", times.pop("check quickstart"), "s", at_most=torch_s + CHECK_S)
    for name, times_s in times.items():
        bench.show(name, times_s, "s", at_most=LIGHT_S)


if __name__ == "__main__":
    main(__doc__, measure)
