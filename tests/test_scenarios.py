"""Every file of scenarios/ says what it is for, and runs: here small and short, with everything checked."""

import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.data import Dataset
from fedsim.data.partitions.base import Pool
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.runtime.run import run
from fedsim.scenario import Scenario, build, load_scenario
from fedsim.scenario.choices import DATASET
from fedsim.studies.plan import load_study
from fedsim.task import Task

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
PAPERS = sorted((FOLDER / "papers").glob("*.toml"))
STUDIES = sorted(FOLDER.glob("**/studies/*.toml"))
TWINS = [path for path in PAPERS if path.stem.endswith(("_small", "_toy"))]
"""Those that need no files of data."""
SOON_TWIN = ("ktpfl_small", "ktpfl")
"""One of them, and its method, that runs whenever tests do."""
PARTS = ("Shows", "Run", "Expect", "Costs")
AT_SIZE = [path for path in PAPERS if path not in TWINS]
"""Those at their papers' size: their heads also list profiles, with what to set for each."""

MAX_CLIENTS = 12
"""Of a group, here."""


@pytest.fixture(autouse=True)
def _above_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths of their files start there."""
    monkeypatch.chdir(FOLDER.parent)


def _small(path: Path, *overrides: str) -> Scenario:
    scenario = load_scenario(path)
    counts = [min(group.count, MAX_CLIENTS) for group in scenario.fleet]
    wanted = scenario.participation.clients_per_round
    changes = [f"fleet.{number}.count={count}" for number, count in enumerate(counts)]
    if wanted is not None:
        changes.append(f"participation.clients_per_round={min(wanted, sum(counts), MAX_CLIENTS)}")
    pacing = scenario.participation.pacing
    sizes = {name: getattr(pacing.params, name, None) for name in ("concurrency", "buffer")}
    changes += [
        f"participation.pacing.params.{name}={MAX_CLIENTS}"
        for name, size in sizes.items()
        if size is not None and size > MAX_CLIENTS
    ]
    if scenario.engine.executor != "null":
        changes.append("training.epochs=1" if scenario.training.steps is None else "training.steps=2")
    elif "mlp" in scenario.models:  # of megabytes, to be sent and not to be trained
        changes.append("models.mlp.params.hidden=[8]")
    return load_scenario(path, ["run.rounds=2", *changes, *overrides])


def _head(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


def _head_text(path: Path) -> str:
    return "\n".join(line.removeprefix("#") for line in _head(path)).replace("\\\n", " ")


SOON = ("quickstart", "leaving", "failed_rounds", "shared_links")
"""Which of them run whenever tests do; figures of most others are measured then (tests/test_figures.py)."""


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in SOON else pytest.mark.slow, id=path.stem) for path in FILES],
)
def test_it_runs(path: Path) -> None:
    parts = replace(build(_small(path)), verify=True)
    result = run(parts)
    rounds = [row for row in result.rounds if row.round in (1, 2)]
    assert len(rounds) == 2
    assert all(row.asked for row in rounds)
    assert sum(row.merged for row in rounds) > 0
    assert result.simulated_s > 0


@pytest.mark.parametrize("path", [*FILES, *PAPERS, *STUDIES], ids=lambda path: path.stem)
def test_its_head_says_what_it_is_for(path: Path) -> None:
    title, blank, *rest = _head(path)
    assert re.fullmatch(r"# \S.*[.?]", title)
    assert blank == "#"
    named = [line.split()[1] for line in rest if re.match(r"# [A-Z]\w+ {3,}\S", line)]
    assert tuple(name for name in dict.fromkeys(named) if name not in ("Profiles", "Figures")) == PARTS
    assert ("Profiles" in named) == (path in AT_SIZE)
    assert ("Figures" in named) == (path in FILES)  # what they say is in tests/test_figures.py
    assert all(len(line) <= 110 for line in path.read_text("utf-8").splitlines())
    name = load_study(path).name if path in STUDIES else load_scenario(path).run.name
    assert name == path.stem


@pytest.mark.parametrize("path", [*FILES, *PAPERS], ids=lambda path: path.stem)
def test_what_its_head_says_to_run_can_be_run(path: Path) -> None:
    commands = [
        shlex.split(line) for line in re.findall(r"fedsim (?:run|compare|check) .*", _head_text(path))
    ]
    assert commands, "its head says how to run it"
    for _, _, file, *options in commands:
        assert file == f"scenarios/{path.relative_to(FOLDER)}"
        pairs = [(name, value) for name, value in pairwise(options) if name == "--set"]
        _small(path, *(value for _, value in pairs))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_study_s_head_says_how_to_do_it(path: Path) -> None:
    assert f"# Run        fedsim study {path.relative_to(FOLDER.parent)}" in _head(path)
    assert load_study(path).runs
    named = f"`{path.name}`" if path.parent.parent.name == "papers" else f"`studies/{path.name}`"
    assert named in (path.parents[1] / "README.md").read_text("utf-8")


@pytest.mark.parametrize(("folder", "files"), [(FOLDER, FILES), (FOLDER / "papers", PAPERS)])
def test_the_overview_lists_every_file(folder: Path, files: list[Path]) -> None:
    rows = re.findall(r"^\| `(\w+\.toml)` \|.*\|.*\|.*\|$", (folder / "README.md").read_text("utf-8"), re.M)
    assert sorted(rows) == [path.name for path in files]


def _profiles(path: Path) -> dict[str, list[str]]:
    """Return for each profile that a head lists what is set for it."""
    (block,) = re.findall(r"^ Profiles   (.*?)^ Expect", _head_text(path), re.M | re.S)
    profiles = {}
    for line in block.strip().splitlines():
        match = re.fullmatch(r"\s*(\S.*?): (as it stands|--set .+)", line)
        assert match, f"no 'NAME: as it stands' and no 'NAME: --set ...': {line}"
        options = [] if match[2] == "as it stands" else shlex.split(match[2])
        assert options[::2] == ["--set"] * (len(options) // 2)
        assert match[1] not in profiles
        profiles[match[1]] = options[1::2]
    return profiles


PROFILES = [(path, name) for path in AT_SIZE for name in _profiles(path)]

KTPFL_DATA = ("EMNIST", "Fashion-MNIST", "CIFAR-10")
WANTED = (
    *(f"kt-het, {data}, {case}" for data in KTPFL_DATA for case in ("two", "all")),
    *(f"kt-hom{count}, {data}" for data in KTPFL_DATA for count in (20, 100)),
    *(f"kt-abl, {data}" for data in KTPFL_DATA),
    *("ckt-hom", "ckt-het"),
    *(f"persfl-{data}-ds{number}" for data in ("cifar", "mnist") for number in (1, 2, 3)),
    *(f"fedet-{data}-a{alpha}" for data in ("cifar10", "cifar100") for alpha in (0.1, 0.5)),
    *("fedet-sent140", "fedme-femnist", "fedme-cifar", "fedme-shakespeare"),
)
"""How the specification's table of profiles (6.1) calls them, one for each data set and case."""


def test_every_profile_of_the_papers_is_there() -> None:
    names = [name for _, name in PROFILES]
    assert [wanted for wanted in WANTED if not any(name.startswith(wanted) for name in names)] == []
    assert all(_profiles(path) and not next(iter(_profiles(path).values())) for path in AT_SIZE)


STAND_INS: dict[str, tuple[int, int, Task]] = {
    "cifar10": (50_000, 10_000, Task((3, 32, 32), 10)),
    "cifar100": (50_000, 10_000, Task((3, 32, 32), 100)),
    "emnist": (48_000, 8_000, Task((1, 28, 28), 10)),
    "fashion_mnist": (60_000, 10_000, Task((1, 28, 28), 10)),
    "mnist": (60_000, 10_000, Task((1, 28, 28), 10)),
    "files": (200_000, 0, Task((1, 28, 28), 62)),
    "shakespeare": (12_500, 0, Task((80,), 90, vocabulary=90)),
    "texts": (20_000, 0, Task((256,), 2, vocabulary=30_522)),
}
"""Samples, test samples and task of the data sets that the profiles name."""
USERS = {"files": 3_400, "shakespeare": 230, "texts": 170, "mnist": 500}
FEW = 1_500
"""Samples of a stand-in, which has all its data set's users."""


SLOW_TO_PLAN = ("fedet", "fedet_sent140")
"""Files whose profiles take long to plan."""
SOON_PLANNED = [
    (path, next(iter(_profiles(path)))) for path in AT_SIZE if path.stem not in (*SLOW_TO_PLAN, "fedme")
]
"""The first profile of each other file; that of ``fedme`` takes long too."""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, marks=[] if (path, name) in SOON_PLANNED else pytest.mark.slow)
        for path, name in PROFILES
    ],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_profile_can_be_planned(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its data: labels as many as it has are spread, and all else is built around a few samples."""
    changes = _profiles(path)[name]
    scenario = load_scenario(path, changes)
    own = scenario.data.name
    size, _, task = STAND_INS[own]
    if not scenario.data.public.source:
        size -= scenario.data.public.size
    assert scenario.data.partition is not None
    users = np.arange(size) % USERS[own] if own in USERS else None
    pool = Pool(np.arange(size) % task.num_outputs, task.num_outputs, users)
    held = scenario.data.partition.make().split(pool, scenario.num_clients, Key.root(0))
    assert min(map(len, held)) > 0

    def few(plugin: Any, context: Any) -> Dataset:
        name = name_of(plugin)
        _, tested, task = STAND_INS[name]
        dtype = np.dtype(task.dtype)
        x, y = np.zeros((FEW, *task.input_shape), dtype), np.arange(FEW) % task.num_outputs
        test_x, test_y = (x[:100].copy(), y[:100].copy()) if tested else (None, None)
        users = np.arange(FEW) % USERS[name] if name in USERS else None
        return Dataset(task, x, y, test_x, test_y, users=users)

    for plugin in {own, *([scenario.data.public.source.name] if scenario.data.public.source else ())}:
        monkeypatch.setattr(DATASET.find(plugin), "load", few)
    fewer = ["data.public.size=200"] if scenario.data.public.size else []
    fewer += [] if scenario.data.partition.name == "by_user" else ["data.partition='iid'"]
    parts = build(load_scenario(path, [*changes, *fewer]))
    assert len(parts.data.public) > 0 or not parts.algorithm.needs_public
    assert len(parts.eligible()) == scenario.num_clients


@pytest.mark.parametrize("path", AT_SIZE, ids=lambda path: path.stem)
def test_a_profile_has_all_methods_that_it_is_compared_with(path: Path) -> None:
    if "--algorithms" in path.read_text("utf-8"):
        for algorithm in _compared(path):
            assert load_scenario(path, algorithm=algorithm).algorithm.name == algorithm


LITTLE = {
    **dict.fromkeys(("server_steps", "distill_epochs", "kd_epochs", "public_per_round"), "2"),
    "finetune_epochs": "1",
    "lambdas": "[0.0, 0.5]",
    "temperatures": "[5.0]",
}
"""Parameters of algorithms that say how much work is done beside training, and what they are here."""


def _compared(path: Path) -> list[str]:
    """Return the algorithms of the first comparison that a head asks for."""
    match = re.search(r"--algorithms ([\w,]+)", _head_text(path))
    assert match, "its head says what to compare"
    return match[1].split(",")


@pytest.mark.parametrize(
    ("path", "algorithm"),
    [
        pytest.param(path, name, marks=[] if (path.stem, name) == SOON_TWIN else pytest.mark.slow)
        for path in TWINS
        for name in _compared(path)
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_a_twin_runs_every_method_that_it_compares(path: Path, algorithm: str) -> None:
    scenario = load_scenario(path, algorithm=algorithm)
    build(scenario)  # as it stands its parts fit each other; it runs short and with few samples
    work = "training.epochs=1" if scenario.training.steps is None else "training.steps=2"
    cohort = min(scenario.num_clients, 4)
    limit = 60 * scenario.num_clients
    short = ["run.rounds=2", work, f"participation.clients_per_round={cohort}", f"data.limit={limit}"]
    if scenario.data.public.size:
        short.append("data.public.size=40")
    fields = type(scenario.algorithm.params).model_fields
    short += [f"algorithm.params.{name}={value}" for name, value in LITTLE.items() if name in fields]
    result = run(build(load_scenario(path, short, algorithm=algorithm)))
    assert sum(row.merged for row in result.rounds) > 0 or algorithm == "centralized"
    assert result.final is not None
