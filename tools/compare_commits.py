"""Run every scenario with every algorithm on two commits, and compare the results.

For changes that must not change a result. Each scenario of ``scenarios/``, and each small one of
``scenarios/papers/``, runs three rounds with seed 0 and each algorithm that can run on it. All of
``summary.json`` but ``wall_s`` and ``fedsim`` is compared. Kernels differ between processors, so both commits
run here and now. Run from the root of the repository::

    python tools/compare_commits.py main            # main against the working tree
    python tools/compare_commits.py v0.1.0 main     # one commit against another
    python tools/compare_commits.py main --only quickstart leaving
    python tools/compare_commits.py main --algorithms ktpfl_w --set participation.clients_per_round=30

The exit status is 1 if a result differs. A difference in ``trace_hash`` alone is counted apart: a record of
the trace has changed its name or its place.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from click.testing import CliRunner

SCENARIOS = ("scenarios/*.toml", "scenarios/papers/*_small.toml", "scenarios/papers/*_toy.toml")
OVERRIDES = ("--set", "run.rounds=3", "--seed", "0")
LEFT_OUT = {"wall_s", "fedsim"}

Figures = dict[str, Any]
"""Values by their path in ``summary.json``, such as ``accuracy.global``."""
Results = dict[str, Figures]
"""Figures by the name of a run, such as ``quickstart fedavg``."""


def main() -> None:
    """Run, compare, and exit with the status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit")
    parser.add_argument("head", nargs="?", help="another one; the working tree if left out")
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", help="names of scenarios")
    parser.add_argument("--algorithms", nargs="+", metavar="ALGORITHM", help="names; all if left out")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="for every scenario")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios that run at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = checked_out(options.base, Path(folder) / "base")
        head = checked_out(options.head, Path(folder) / "head") if options.head else Path.cwd()
        results = run_all((base, head), options)
    raise SystemExit(report(*results))


def checked_out(commit: str, folder: Path) -> Path:
    """Extract a commit into a new folder."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout  # noqa: S607
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)  # noqa: S607
    return folder


def run_all(trees: Sequence[Path], options: argparse.Namespace) -> list[Results]:
    """Return the results of each tree; every scenario runs in a process of its own."""
    results: list[Results] = [{} for _ in trees]
    paths = {path.relative_to(tree) for tree in trees for pattern in SCENARIOS for path in tree.glob(pattern)}
    choice = json.dumps({"algorithms": options.algorithms, "overrides": options.set})

    def run_apart(index: int, path: Path) -> None:
        command = [sys.executable, __file__, "--child", str(path), choice]
        environment = {**os.environ, "PYTHONPATH": str(trees[index])}
        done = subprocess.run(command, cwd=trees[index], env=environment, check=False, stdout=subprocess.PIPE)
        name = f"{path.stem} of {trees[index].name}"
        found: Results = (
            json.loads(done.stdout) if done.returncode == 0 else {name: {"status": done.returncode}}
        )
        results[index].update(found)
        print(f"{name}: {len(found)} runs, status {done.returncode}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            pool.submit(run_apart, index, path)
            for path in sorted(paths)
            if not options.only or path.stem in options.only
            for index, tree in enumerate(trees)
            if (tree / path).exists()
        ]
    for future in futures:
        future.result()
    return results


def run_scenario(scenario: str, algorithms: Sequence[str] | None, overrides: Sequence[str]) -> None:
    """Run a scenario with each algorithm in this process; print the results as JSON."""
    from fedsim.cli import main as fedsim  # of the tree in PYTHONPATH

    def command(*arguments: str) -> Any:
        return CliRunner().invoke(fedsim, arguments, prog_name="fedsim")

    results: Results = {}
    names = [plugin["name"] for plugin in json.loads(command("list", "algorithms", "--json").output)]
    settings = [part for override in overrides for part in ("--set", override)]
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if algorithms is not None and name not in algorithms:
                continue
            out = Path(folder) / name
            chosen = ("--algorithm", name, "--out", str(out), "--quiet")
            done = command("run", scenario, *OVERRIDES, *settings, *chosen)
            summary = out / "summary.json"
            figures = dict(flat(json.loads(summary.read_text()))) if summary.exists() else {}
            run = f"{Path(scenario).stem} {name}"
            results[run] = {"status": done.exit_code, **figures}
            if done.exit_code not in (0, 2):  # 2: the algorithm cannot run on the scenario
                print(f"{run}: {done.output[-2000:]} {done.exception}", file=sys.stderr)
    print(json.dumps(results))


def flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every figure with its path."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{name}.")
        elif path + name not in LEFT_OUT:
            yield path + name, value


def report(base: Results, head: Results) -> int:
    """Print the differences; return 1 if anything but the trace's hash differs.

    A figure that all runs of the head have that come to their end, and none of the base, is no difference.
    """
    differing, retraced = 0, 0
    ended = [set(figures) for figures in head.values() if figures["status"] == 0]
    new = set[str].intersection(*ended).difference(*base.values()) if ended else set[str]()
    for run in sorted(base.keys() | head.keys()):
        if run not in base or run not in head:
            print(f"{run}: only in the {'base' if run in base else 'head'}")
            differing += 1
            continue
        before, after = base[run], head[run]
        paths = sorted((before.keys() | after.keys()) - new)
        changed = [path for path in paths if before.get(path) != after.get(path)]
        if changed == ["trace_hash"]:
            retraced += 1
        elif changed:
            differing += 1
            print(run)
            for path in changed:
                print(f"    {path}: {before.get(path)!r} -> {after.get(path)!r}")
    finished = sum(figures["status"] == 0 for figures in base.values())
    print(f"{len(base)} runs, {finished} to the end: {differing} differ, {retraced} in trace_hash alone")
    return int(differing > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_scenario(sys.argv[2], **json.loads(sys.argv[3]))
    else:
        main()
