"""Run every scenario with every algorithm on two commits, and compare the results.

For changes that must not change a result. Each scenario of ``scenarios/``, and each small one of
``scenarios/papers/``, runs three rounds with seed 0 and each algorithm that can run on it, and one scenario
runs over sockets. Compared is all of ``summary.json`` but ``wall_s`` and ``fedsim``: the hash of the models,
simulated time, bytes, frames, parameters, drops by cause and every accuracy. Over sockets only what does not
depend on real time is. Kernels differ between processors, so both commits are measured here and now, and no
figures are kept. Run from the root of the repository::

    python tools/compare_commits.py main            # main against the working tree
    python tools/compare_commits.py v0.1.0 main     # one commit against another
    python tools/compare_commits.py main --only quickstart leaving
    python tools/compare_commits.py main --algorithms ktpfl_w --set participation.clients_per_round=30

Commits are checked out beside each other into a temporary folder. The exit status is 1 where a result
differs. A difference in ``trace_hash`` alone is counted apart: it says that a record of the trace has changed
its name or its place.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCENARIOS = ("scenarios/*.toml", "scenarios/papers/*_small.toml", "scenarios/papers/*_toy.toml")
OVERRIDES = ("--set", "run.rounds=3", "--seed", "0")
OVER_SOCKETS = "quickstart"
"""The scenario that also runs over sockets."""
LEFT_OUT = {"wall_s", "fedsim"}
UNTIMED = ("algorithm", "clients", "drops", "model_hash", "rejected", "rounds", "scenario", "seed")
TRAFFIC = ("bytes", "data", "frames", "parameters")
"""With both directions, and with the entries before, what a run over sockets repeats."""

Figures = dict[str, Any]
"""Path of a figure in ``summary.json``, such as ``accuracy.global``, to its value; or why there is none."""
Results = dict[str, Figures]
"""Name of a run, such as ``quickstart fedavg``, to its figures."""


@dataclass(frozen=True)
class Choice:
    """What is run.

    Attributes:
        scenarios: Their names; None for all.
        algorithms: Their names; None for all.
        overrides: ``PATH=VALUE`` for every scenario, beside those of the tool.
    """

    scenarios: Sequence[str] | None
    algorithms: Sequence[str] | None
    overrides: Sequence[str]


def main() -> None:
    """Measure, compare, and leave with the status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", help="a commit")
    parser.add_argument("head", nargs="?", help="another one; the working tree if left out")
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", help="names of scenarios")
    parser.add_argument("--algorithms", nargs="+", metavar="ALGORITHM", help="names; all if left out")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="for every scenario")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios that run at once")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where to write all figures, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = [checked_out(arguments.base, Path(folder) / "base")]
        head = arguments.head
        trees.append(checked_out(head, Path(folder) / "head") if head else Path.cwd())
        choice = Choice(arguments.only, arguments.algorithms, arguments.set)
        base, changed = measured(trees, choice, arguments.jobs)
    if arguments.save:
        arguments.save.write_text(json.dumps({"base": base, "head": changed}, indent=1) + "\n")
    raise SystemExit(report(base, changed))


def checked_out(commit: str, folder: Path) -> Path:
    """Extract a commit into a folder, beside the repository, which is left alone."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout  # noqa: S607
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)  # noqa: S607
    return folder


def measured(trees: Sequence[Path], choice: Choice, jobs: int) -> list[Results]:
    """Return the results of each tree; every scenario runs in a process of its own."""
    results: list[Results] = [{} for _ in trees]
    tasks = [
        (tree, into, path, bus, choice)
        for path in scenarios(trees)
        if not choice.scenarios or path.stem in choice.scenarios
        for bus in (("memory", "http") if path.stem == OVER_SOCKETS else ("memory",))
        for tree, into in zip(trees, results, strict=True)
        if (tree / path).exists()
    ]
    with ThreadPoolExecutor(jobs) as pool:
        all_found = pool.map(lambda task: run_apart(*task), tasks)
        for (_, into, path, bus, _), found in zip(tasks, all_found, strict=True):
            into.update(found)
            print(f"{path.stem} ({bus}): {len(found)} runs", file=sys.stderr, flush=True)
    return results


def scenarios(trees: Sequence[Path]) -> list[Path]:
    """Return the scenarios of all trees, below their roots."""
    found = {path.relative_to(tree) for tree in trees for pattern in SCENARIOS for path in tree.glob(pattern)}
    return sorted(found)


def run_apart(tree: Path, _: Results, scenario: Path, bus: str, choice: Choice) -> Results:
    """Run a scenario with the chosen algorithms in a process that imports the tree's fedsim."""
    command = [sys.executable, __file__, "--child", str(scenario), bus, json.dumps(asdict(choice))]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    child = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE)
    found: Results = json.loads(child.stdout)
    return found


def child(scenario: str, bus: str, choice: Choice) -> None:
    """Print the results of one scenario with each algorithm as JSON."""
    from fedsim.cli import main as fedsim  # of the tree in PYTHONPATH

    def said(*arguments: str) -> tuple[int, str]:
        output = io.StringIO()
        status: Any = 0
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                fedsim(arguments, prog_name="fedsim")
            except SystemExit as ended:
                status = ended.code or 0
        return status, output.getvalue()

    results: Results = {}
    _, _, *listed = said("list", "algorithms")[1].splitlines()  # below the heading
    names = [line.split()[0] for line in listed if line.strip()]
    with tempfile.TemporaryDirectory() as folder:
        for name in names if bus == "memory" else ["fedavg"]:
            if choice.algorithms is not None and name not in choice.algorithms:
                continue
            out = Path(folder) / name
            chosen = ("--algorithm", name, "--out", str(out), "--bus", bus, "--quiet")
            overrides = [part for override in choice.overrides for part in ("--set", override)]
            status, output = said("run", scenario, *OVERRIDES, *overrides, *chosen)
            summary = out / "summary.json"
            figures = dict(flat(json.loads(summary.read_text()))) if summary.exists() else {}
            if bus == "http":
                figures = {path: value for path, value in figures.items() if repeats(path)}
            run = f"{Path(scenario).stem} {name}" + (" over sockets" if bus == "http" else "")
            results[run] = {"status": status, **figures}
            if status not in (0, 2):  # 2: the algorithm cannot run on the scenario
                print(f"{run}: {output[-2000:]}", file=sys.stderr)
    print(json.dumps(results))


def repeats(path: str) -> bool:
    """Say whether a figure is the same in every run over sockets, whatever the time that it takes."""
    what, _, way = path.partition("_")
    is_traffic = what in TRAFFIC and way in ("up", "down")
    return path in UNTIMED or is_traffic or path.startswith("accuracy.")


def flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every figure with its path."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{name}.")
        elif path + name not in LEFT_OUT:
            yield path + name, value


def report(base: Results, head: Results) -> int:
    """Print what differs; return 1 if anything does but the trace's hash."""
    differing, retraced = 0, 0
    for run in sorted(base.keys() | head.keys()):
        if run not in base or run not in head:
            print(f"{run}: only in the {'base' if run in base else 'head'}")
            differing += 1
            continue
        before, after = base[run], head[run]
        paths = sorted(before.keys() | after.keys())
        changed = [path for path in paths if before.get(path) != after.get(path)]
        if changed == ["trace_hash"]:
            retraced += 1
        elif changed:
            differing += 1
            print(run)
            for path in changed:
                print(f"    {path}: {before.get(path)!r} -> {after.get(path)!r}")
    ran = sum(one["status"] == 0 for one in base.values())
    print(f"{len(base)} runs, {ran} of them to the end: {differing} differ, {retraced} in trace_hash alone")
    return int(differing > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        scenario, bus, choice = sys.argv[2:]
        child(scenario, bus, Choice(**json.loads(choice)))
    else:
        main()
