"""Every file of scenarios/ says what it is for, and runs: here small and short, with everything checked."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build, load_scenario

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
PAPERS = sorted((FOLDER / "papers").glob("*.toml"))
TWINS = [path for path in PAPERS if path.stem.endswith(("_small", "_toy"))]
"""Those that need no files of data."""
PARTS = ("Shows", "Run", "Expect", "Costs")

MOST_CLIENTS = 12
"""Of a group, here."""


@pytest.fixture(autouse=True)
def _above_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths of their files start there."""
    monkeypatch.chdir(FOLDER.parent)


def _small(path: Path, *overrides: str) -> Scenario:
    scenario = load_scenario(path)
    counts = [min(group.count, MOST_CLIENTS) for group in scenario.fleet]
    wanted = scenario.participation.clients_per_round
    changes = [f"fleet.{number}.count={count}" for number, count in enumerate(counts)]
    if wanted is not None:
        changes.append(f"participation.clients_per_round={min(wanted, sum(counts), MOST_CLIENTS)}")
    if scenario.engine.executor != "null":
        changes.append("training.epochs=1" if scenario.training.steps is None else "training.steps=2")
    return load_scenario(path, ["run.rounds=2", *changes, *overrides])


def _head(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    parts = replace(build(_small(path)), verify=True)
    result = run(parts)
    rounds = [row for row in result.rounds if row.round in (1, 2)]
    assert len(rounds) == 2
    assert all(row.asked for row in rounds)
    assert sum(row.merged for row in rounds) > 0
    assert result.simulated_s > 0


@pytest.mark.parametrize("path", [*FILES, *PAPERS], ids=lambda path: path.stem)
def test_its_head_says_what_it_is_for(path: Path) -> None:
    title, blank, *rest = _head(path)
    assert re.fullmatch(r"# \S.*[.?]", title)
    assert blank == "#"
    named = [line.split()[1] for line in rest if re.match(r"# [A-Z]\w+ {3,}\S", line)]
    assert tuple(dict.fromkeys(named)) == PARTS
    assert all(len(line) <= 110 for line in path.read_text("utf-8").splitlines())
    assert load_scenario(path).run.name == path.stem


@pytest.mark.parametrize("path", [*FILES, *PAPERS], ids=lambda path: path.stem)
def test_what_its_head_says_to_run_can_be_run(path: Path) -> None:
    text = "\n".join(line.removeprefix("#") for line in _head(path)).replace("\\\n", " ")
    commands = [shlex.split(line) for line in re.findall(r"fedsim (?:run|compare|check) .*", text)]
    assert commands, "its head says how to run it"
    for _, _, file, *options in commands:
        assert file == f"scenarios/{path.relative_to(FOLDER)}"
        pairs = [(name, value) for name, value in pairwise(options) if name == "--set"]
        _small(path, *(value for _, value in pairs))


@pytest.mark.parametrize(("folder", "files"), [(FOLDER, FILES), (FOLDER / "papers", PAPERS)])
def test_the_overview_lists_every_file(folder: Path, files: list[Path]) -> None:
    rows = re.findall(r"^\| `(\w+\.toml)` \|.*\|.*\|.*\|$", (folder / "README.md").read_text("utf-8"), re.M)
    assert sorted(rows) == [path.name for path in files]


def _compared(path: Path) -> list[str]:
    """Return the algorithms of the first comparison that a head asks for."""
    text = "\n".join(line.removeprefix("#") for line in _head(path)).replace("\\\n", " ")
    match = re.search(r"--algorithms ([\w,]+)", text)
    assert match, "its head says what to compare"
    return match[1].split(",")


@pytest.mark.parametrize(
    ("path", "algorithm"),
    [(path, algorithm) for path in TWINS for algorithm in _compared(path)],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_a_twin_runs_every_method_that_it_compares(path: Path, algorithm: str) -> None:
    scenario = load_scenario(path, algorithm=algorithm)
    work = "training.epochs=1" if scenario.training.steps is None else "training.steps=2"
    cohort = min(scenario.num_clients, 4)
    short = ["run.rounds=2", work, f"participation.clients_per_round={cohort}"]
    fields = type(scenario.algorithm.params).model_fields
    short += [f"algorithm.params.{name}=2" for name in ("server_steps", "distill_epochs") if name in fields]
    result = run(build(load_scenario(path, short, algorithm=algorithm)))
    assert sum(row.merged for row in result.rounds) > 0 or algorithm == "centralized"
    assert result.final is not None
