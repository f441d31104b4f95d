"""Scenarios that are run twice."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from fedsim.errors import InvariantError, RunError, UserError
from fedsim.fuzz.examine import SAME, Verdict, differences, examine, run
from fedsim.fuzz.random_scenarios import RandomScenario, random_scenario
from fedsim.fuzz.run_folder import RunFolder

SEEDS = range(30)
SOON = SEEDS[:6]
"""Those that run whenever tests do."""


@pytest.fixture(scope="module")
def verdict_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Verdict]:
    """What came of a seed, which runs once."""
    return cache(lambda seed: examine(random_scenario(seed), tmp_path_factory.mktemp(f"seed-{seed}")))


@pytest.mark.parametrize(
    "seed", [*SOON, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[len(SOON) :])]
)
def test_a_random_scenario_runs_twice_alike_and_its_folder_follows_from_its_trace(
    seed: int, verdict_of: Callable[[int], Verdict]
) -> None:
    assert not verdict_of(seed).faults


@pytest.mark.parametrize("seeds", [SOON, pytest.param(SEEDS, marks=pytest.mark.slow)])
def test_nearly_all_of_them_run_to_their_end(seeds: range, verdict_of: Callable[[int], Verdict]) -> None:
    ends = [verdict_of(seed).end for seed in seeds]
    assert ends.count("finished") >= 0.8 * len(seeds)
    assert "refused" not in ends


def test_a_file_that_differs_is_named(tmp_path: Path) -> None:
    for folder, wall_s in (("first", "1.5"), ("second", "0.25")):
        (tmp_path / folder).mkdir()
        for name in SAME:
            (tmp_path / folder / name).write_text("the same")
        (tmp_path / folder / "summary.json").write_text(f'{{"wall_s": {wall_s}, "drops": 1}}')
    folders = tmp_path / "first", tmp_path / "second"
    assert not list(differences(*folders))
    (folders[1] / "log.jsonl").write_text("another one")
    assert list(differences(*folders)) == ["log.jsonl of the second run is another one"]


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RunError("r"), "ended"),
        (UserError("u"), "refused"),
        (InvariantError("i"), "failed"),
        (KeyError(), "failed"),
    ],
)
def test_only_an_error_that_a_scenario_may_earn_is_no_failure(
    error: Exception, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("fedsim.fuzz.examine.load_scenario", fail)
    assert run(RandomScenario({}), tmp_path, {}, verify=True)[0] == end


def test_failures_of_one_kind_differ_in_numbers_alone() -> None:
    one = Verdict("failed", ("rounds[3].dropped: it says 12, the trace 2.5e-3", "Traceback:\nKeyError: 7"))
    assert one.kinds == ("rounds[#].dropped: it says #, the trace #", "KeyError: #")
    assert one.kinds == Verdict("failed", (*one.faults, "rounds[0].dropped: it says 1, the trace 0")).kinds


def test_a_trace_that_cannot_be_recomputed_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recompute(folder: RunFolder) -> list[str]:
        error = KeyError("a dispatch that was never sent")
        error.add_note(f"what there is of the run is in {tmp_path}")
        raise error

    monkeypatch.setattr("fedsim.fuzz.examine.faults_of", recompute)
    found = examine(random_scenario(2), tmp_path)
    assert found.end == "failed"
    assert found.kinds == ("KeyError: 'a dispatch that was never sent'",)
