"""The tool that runs the papers' twins: what it keeps of a run, and how it judges claims."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import papers
import pytest
import twin_claims
import twin_outcomes
from twin_outcomes import Outcome, kept_outcome

RUN = Outcome(
    accuracy=90.0,
    others={"untuned": 80.0},
    losses=[0.1, 0.2, 0.3],
    course=[(10, None), (20, 0.5), (30, 0.4)],
    simulated_s=1.0,
    bytes=100,
    parameters=30,
)


def test_the_course_of_a_run_says_the_best_accuracy_and_what_it_costs_to_reach_one() -> None:
    assert RUN.best_global == 50
    assert RUN.parameters_to(50) == RUN.parameters_to(45) == 20
    assert RUN.parameters_to(51) == float("inf")
    assert replace(RUN, course=[(10, None)]).best_global is None


def test_a_claim_is_judged_by_means_and_with_each_seed_alone() -> None:
    def runs(*accuracies: float) -> list[Outcome]:
        return [replace(RUN, accuracy=accuracy) for accuracy in accuracies]

    claim = partial(twin_claims.r_002, "DS-1")
    outcomes = {"persfl DS-1": runs(90, 80), "fedavg DS-1": runs(70, 85)}
    assert papers.judged(claim, outcomes, 2) == (
        "shown (persfl DS-1 85.0 % > fedavg DS-1 77.5 %; with 1 of 2 seeds)"
    )
    outcomes["fedavg DS-1"] = runs(90, 85)
    assert papers.judged(claim, outcomes, 2).startswith("NOT shown")
    del outcomes["fedavg DS-1"]
    assert papers.judged(claim, outcomes, 2) == "not judged, as there is no run of 'fedavg DS-1'"


@pytest.mark.parametrize("case", papers.CASES, ids=lambda case: case.file)
def test_the_methods_of_a_twin_are_all_that_its_claims_need(case: papers.Case) -> None:
    outcomes = {label: [RUN] for label in case.methods}
    for claim in case.claims.values():
        assert papers.judged(claim, outcomes, 1).endswith(" of 1 seeds)")


def test_a_run_that_is_kept_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def outcome(file: str, algorithm: str, changes: object, seed: int) -> Outcome:
        made.append(seed)
        return replace(RUN, accuracy=float(seed))

    monkeypatch.setattr(twin_outcomes, "outcome", outcome)
    for seed in (0, 1, 0, 1):
        kept = kept_outcome(tmp_path / "runs", "a twin, a method", "twin", "fedavg", (), seed)
        assert (kept.accuracy, kept.best_global) == (seed, 50)
    assert made == [0, 1]
    kept_outcome(None, "a twin, a method", "twin", "fedavg", (), 0)
    assert made == [0, 1, 0]
