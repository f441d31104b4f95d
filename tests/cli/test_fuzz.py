"""``fedsim fuzz``, with scenarios that are examined in this process."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from fedsim.fuzz.examine import Verdict
from fedsim.fuzz.random_scenarios import RandomScenario
from fedsim.fuzz.rare_events import EVENTS
from tests.cli.conftest import Call

FINE = Verdict("finished", events=("a frame was sent again",))
Look = Callable[[RandomScenario], Verdict]


def fails_with_six_or_more(scenario: RandomScenario) -> Verdict:
    """Fail if there are rounds of six clients or more, whatever else there is."""
    count = sum(group["count"] for group in scenario.tables.get("fleet", []) if "count" in group)
    if count < 6 or "rounds" not in scenario.tables.get("run", {}):
        return FINE
    return Verdict("failed", (f"{count} clients are too many", "it is late"))


@pytest.fixture
def examining(monkeypatch: pytest.MonkeyPatch) -> Callable[[Look], list[str]]:
    """Return what puts a function in the place of processes, and gives the names of what it is asked."""

    def put(look: Look) -> list[str]:
        names = list[str]()

        class InThisProcess:
            def __init__(self, number: int) -> None: ...

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None: ...

            def verdicts(
                self, scenarios: Iterable[RandomScenario]
            ) -> Iterator[tuple[RandomScenario, Verdict]]:
                for scenario in scenarios:
                    names.append(scenario.name)
                    yield scenario, look(scenario)

        monkeypatch.setattr("fedsim.cli.fuzz.WorkerProcesses", InThisProcess)
        return names

    return put


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "9-3"), "'9-3' ends before it begins: write the first seed, then the last, as in 0-99"),
        (("--seeds", "x"), "'x' is not a whole number"),
        (("--seeds", "1-"), "'' is not a whole number"),
        (("--minutes", "0"), "'0' is below 1"),
        (("--workers", "0"), "'0' is below 1"),
        (("missing.toml",), "missing.toml: 1 fault"),
        (("tiny.toml", "--seeds", "3"), "--seeds and --minutes are for random scenarios"),
        (("--algorithm", "fedavgg"), "--algorithm: no algorithm is called 'fedavgg'"),
        (("--set", "training"), "the override 'training' has no '='"),
        (("--set", "fleet.9.count=3"), "has no entry '9'"),
    ],
)
def test_mistakes_are_explained(
    call: Call, examining: Callable[[Look], list[str]], arguments: tuple[str, ...], said: str
) -> None:
    examining(lambda scenario: FINE)
    result = call("fuzz", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_seeds_are_examined_and_counted(call: Call, examining: Callable[[Look], list[str]]) -> None:
    names = examining(
        lambda scenario: Verdict("ended", why="nobody\n  replied") if scenario.name == "seed-4" else FINE
    )
    result = call("fuzz", "--seeds", "3-5")
    assert (result.exit_code, names) == (0, ["seed-3", "seed-4", "seed-5"])
    lines = result.stdout.splitlines()
    assert lines[0] == "1 ended: replied"
    assert lines[3] == "a frame was sent again          2"
    assert (
        lines[-2] == f"  never: {'; '.join(words for words in EVENTS if words != 'a frame was sent again')}"
    )
    assert lines[-1].startswith("3 of 3 scenarios in ")
    assert lines[-1].endswith(": 2 finished, 1 ended, 0 refused, 0 failed")


def test_a_failure_is_shrunk_once_for_each_way_and_its_file_repeats_it(
    call: Call, here: Path, examining: Callable[[Look], list[str]]
) -> None:
    names = examining(fails_with_six_or_more)
    result = call("fuzz", "--seeds", "0-9")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    failed = [line.removesuffix(" failed:") for line in lines if line.endswith("failed:")]
    assert len(failed) > 1
    (folder,) = (here / "fuzz").iterdir()
    assert folder.name == failed[0]
    assert f"fedsim fuzz fuzz/{folder.name}/scenario.toml repeats it" in result.stdout
    assert set(names) - set(failed) == {f"seed-{seed}" for seed in range(10)} - set(failed)
    toml = (folder / "scenario.toml").read_text()
    assert toml in "\n".join(line.removeprefix("    ") for line in lines) + "\n"
    settings = {line for line in toml.splitlines() if line and "count = " not in line}
    assert settings == {"[run]", "rounds = 1", "[[fleet]]"}

    again = call("fuzz", str(folder / "scenario.toml"))
    assert (again.exit_code, again.stdout.splitlines()[0]) == (1, f"{folder / 'scenario.toml'} failed:")
    assert "clients are too many\n  it is late\n" in again.stdout
    assert again.stdout.count("failed:") == 1


def test_values_and_the_algorithm_are_those_of_every_scenario(
    call: Call, examining: Callable[[Look], list[str]]
) -> None:
    seen = list[Any]()

    def look(scenario: RandomScenario) -> Verdict:
        seen.append((scenario.tables["algorithm"]["name"], scenario.tables["training"]["lr"]))
        return FINE

    examining(look)
    assert call("fuzz", "--seeds", "0-2", "--algorithm", "ditto", "--set", "training.lr=0.5").exit_code == 0
    assert call("fuzz", "tiny.toml", "--algorithm", "fedprox", "--set", "training.lr=0.25").exit_code == 0
    assert seen == [("ditto", 0.5)] * 3 + [("fedprox", 0.25)]


def test_a_plugin_that_no_scenario_suits_is_a_mistake(
    call: Call, examining: Callable[[Look], list[str]]
) -> None:
    examining(lambda scenario: Verdict("refused", why="no pacing is called 'lab.mine'"))
    result = call("fuzz", "--seeds", "0-2", "--set", "participation.pacing=lab.mine")
    assert result.exit_code == 2
    assert result.stdout.startswith("3 refused: no pacing is called 'lab.mine'\n")
    assert "fedsim: all scenarios were refused, and nothing was tested" in result.stderr


def test_a_file_that_a_run_refuses_is_a_mistake(call: Call, examining: Callable[[Look], list[str]]) -> None:
    examining(lambda scenario: Verdict("refused", why="tiny: no client has samples"))
    result = call("fuzz", "tiny.toml")
    assert result.exit_code == 2
    assert "fedsim: tiny: no client has samples" in result.stderr


def test_no_seed_begins_after_the_time(
    call: Call, examining: Callable[[Look], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(0, 10**6, 25))
    monkeypatch.setattr("fedsim.cli.fuzz.monotonic", lambda: float(next(now_s)))
    names = examining(lambda scenario: FINE)
    result = call("fuzz", "--seeds", "0-99", "--minutes", "2")
    assert 0 < len(names) < 5
    assert f"{len(names)} of 100 scenarios" in result.stdout
    assert f"{len(names)} of 100 scenarios" in result.stderr


def test_ctrl_c_ends_it_with_what_was_done(call: Call, examining: Callable[[Look], list[str]]) -> None:
    def look(scenario: RandomScenario) -> Verdict:
        if scenario.name == "seed-2":
            raise KeyboardInterrupt
        return FINE

    examining(look)
    result = call("fuzz")
    assert result.exit_code == 130
    assert result.stderr == "fedsim: interrupted: after 2 scenarios\n"
    assert "2 of 100 scenarios" in result.stdout.splitlines()[-1]
