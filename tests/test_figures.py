"""What the heads of the scenarios expect of time, traffic and participation, measured without learning."""

import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fedsim.report import number_format
from fedsim.report.energy import energy_of
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult, run
from fedsim.scenario import build, load_scenario

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))
SOON = {"failed_rounds", "leaving", "overhead", "quickstart", "stragglers"}
"""Of these the first run is done whenever tests are; all others are left for later."""

Options = tuple[tuple[str, str], ...]


def _rounds_failed(parts: Parts, result: RunResult) -> int:
    return sum(
        row.asked > 0 and not row.merged for row in result.rounds if 1 <= row.round <= parts.num_rounds
    )


def _samples(parts: Parts, result: RunResult) -> str:
    columns = result.ledger.columns()
    asked = np.asarray(columns["client"])[~np.asarray(columns["up"], np.bool_)]
    return f"{parts.data.sizes('train')[asked].mean():.0f}"


def _energy(parts: Parts, result: RunResult) -> str:
    energy = energy_of(parts, result)
    assert energy is not None
    return number_format.energy(energy.summary()["clients_j"])


MEASURES: dict[str, Callable[[Parts, RunResult], str]] = {
    "rounds": lambda parts, result: str(result.num_rounds),
    "simulated": lambda parts, result: number_format.duration(result.simulated_s),
    "asked": lambda parts, result: f"{sum(row.asked for row in result.rounds):,}",
    "merged": lambda parts, result: f"{sum(row.merged for row in result.rounds):,}",
    "dropped": lambda parts, result: f"{result.drops.total():,}",
    "rounds failed": lambda parts, result: str(_rounds_failed(parts, result)),
    "sent": lambda parts, result: number_format.size(result.totals.bytes_up + result.totals.bytes_down),
    "overhead": lambda parts, result: number_format.size(
        result.totals.overhead_up + result.totals.overhead_down
    ),
    "samples a client": _samples,
    "energy": _energy,
    "ineligible": lambda parts, result: str((~parts.holds_job()).sum()),
}
"""What a head may say of a run, after the figure itself: ``8 h 15 min simulated, 15 dropped``."""


def _text(path: Path) -> str:
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("#")]
    return "\n".join(line.removeprefix("#") for line in lines).replace("\\\n", " ")


def _options(words: list[str]) -> Options:
    return tuple((name, value) for name, value in pairwise(words) if name in ("--set", "--algorithm"))


def _figures(path: Path) -> dict[Options, dict[str, str]]:
    """Return for each run that a head knows what it expects, by name."""
    (block,) = re.findall(r"^ Figures    (.*?)^ Costs", _text(path), re.M | re.S)
    figures: dict[Options, dict[str, str]] = {}
    for line in block.strip().splitlines():
        match = re.fullmatch(r"\s*(as it stands|--.+):\s+(.+)", line)
        assert match, f"no 'as it stands: FIGURES' and no '--set ...: FIGURES': {line}"
        options = () if match[1] == "as it stands" else _options(shlex.split(match[1]))
        assert options not in figures
        figures[options] = {}
        for figure in match[2].split(", "):
            (name,) = (name for name in MEASURES if figure.endswith(f" {name}"))
            figures[options][name] = figure.removesuffix(f" {name}")
    return figures


def _measured(path: Path, options: Options, expected: dict[str, str]) -> dict[str, str]:
    overrides = [value for name, value in options if name == "--set"]
    algorithm = next((value for name, value in options if name == "--algorithm"), None)
    quick = ["engine.executor=null", "evaluation.every=0"]
    if "rounds" in expected:  # that an accuracy has ended: without learning, no budget of accuracy is met
        quick.append(f"run={{rounds={expected['rounds']}}}")
    parts = build(load_scenario(path, [*quick, *overrides], algorithm=algorithm))
    result = run(parts)
    given = {name: expected[name] for name in ("rounds",) if name in expected}
    return given | {name: MEASURES[name](parts, result) for name in expected if name not in given}


RUNS = [
    pytest.param(
        path,
        options,
        marks=[] if path.stem in SOON and not number else [pytest.mark.slow],
        id=f"{path.stem}{number}",
    )
    for path in FILES
    for number, options in enumerate(_figures(path))
]


@pytest.mark.parametrize(("path", "options"), RUNS)
def test_a_run_comes_to_the_figures_of_its_head(
    path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER.parent)
    expected = _figures(path)[options]
    assert _measured(path, options, expected) == expected


@pytest.mark.slow
def test_a_buffer_reaches_its_accuracy_after_about_as_many_rounds() -> None:
    path = FOLDER / "buffered.toml"
    result = run(build(load_scenario(path)))
    assert result.stopped_by == "accuracy"
    # Kernels differ from processor to processor, and so do accuracies in their last digits.
    assert result.num_rounds == pytest.approx(int(_figures(path)[()]["rounds"]), rel=0.2)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_run_of_a_head_has_figures(path: Path) -> None:
    wanted = list[Options]()
    for command, line in re.findall(r"fedsim (run|compare) (.*)", _text(path)):
        words = shlex.split(line)
        if command == "run":
            wanted.append(_options(words))
        else:
            algorithms = words[words.index("--algorithms") + 1].split(",")
            wanted += [(*_options(words), ("--algorithm", name)) for name in algorithms]
    assert sorted(_figures(path)) == sorted(wanted)
    assert all("simulated" in figures for figures in _figures(path).values())
