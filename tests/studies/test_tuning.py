from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import OutputError
from fedsim.scenario import load_scenario
from fedsim.studies.answer_files import read_answers
from fedsim.studies.perform import Progress, perform
from fedsim.studies.plan import Setting, load_study
from fedsim.studies.tuning import choose, read_tuning
from tests.conftest import rows_of

AVG, LOCAL = Setting("fedavg", "fedavg"), Setting("local", "local")
TUNE = {"seeds": [100, 101], "training.lr": [1e-6, 0.5], "training.epochs": [1, 2]}


def test_the_best_mean_is_chosen_of_those_that_have_ended_with_all_seeds() -> None:
    scores = {
        (AVG, 0): {100: 0.5, 101: 0.75},
        (AVG, 1): {100: 0.75, 101: 0.5},  # equals the first
        (AVG, 2): {100: 0.99},  # failed with a seed
        (LOCAL, 0): {100: 0.1, 101: 0.1},
        (LOCAL, 1): {100: 0.1, 101: 0.2},
    }
    assert choose(scores, 2) == {AVG: 0, LOCAL: 1}
    assert choose({(AVG, 0): {100: 0.5}, (LOCAL, 0): {}}, 2) == {}


def test_trials_are_measured_on_validation_samples_with_seeds_of_their_own(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"tune": TUNE})
    assert [one.values for one in plan.candidates[AVG]] == [(1e-6, 1), (1e-6, 2), (0.5, 1), (0.5, 2)]
    trials = plan.trials[AVG, 3]
    assert [trial.label for trial in trials] == [
        "tuning/fedavg-lr-0.5-epochs-2-seed100",
        "tuning/fedavg-lr-0.5-epochs-2-seed101",
    ]
    assert all('split = "val"' in trial.scenario_toml for trial in trials)
    assert not any('split = "val"' in run.scenario_toml for run in plan.runs)


@pytest.mark.usefixtures("in_process")
def test_each_variant_runs_with_what_was_best_for_it(tiny: dict[str, Any], tmp_path: Path) -> None:
    plan, heard = load_study(tiny | {"tune": TUNE}), list[Progress]()
    assert perform(plan, tmp_path / "o", watch=heard.append).failed == {}
    assert (heard[-1].total, heard[-1].ended) == (16 + 4, 20)
    rows = rows_of((tmp_path / "o" / "tuning.csv").read_text())
    assert len(rows) == 16
    means: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        key = row["variant"], row["training.lr"], row["training.epochs"], row["chosen"]
        means.setdefault(key, []).append(float(row["accuracy"]))
    for variant in ("fedavg", "local"):
        own = {key: sum(values) for key, values in means.items() if key[0] == variant}
        (chosen,) = [key for key in own if key[3] == "True"]
        assert own[chosen] == max(own.values())
        for seed in (0, 1):
            folder = tmp_path / "o" / f"{variant}-lr-{chosen[1]}-epochs-{chosen[2]}-seed{seed}"
            scenario = load_scenario(folder / "scenario.toml")
            assert scenario.training.lr == float(chosen[1])
            assert scenario.evaluation.split == "test"
    found = read_answers(plan, tmp_path / "o")
    assert found.tables[0].title == "tuned by validation"
    assert [row[-1].endswith("*") for row in found.tables[0].rows].count(True) == 2
    answers = rows_of((tmp_path / "o" / "answers.csv").read_text())
    assert {row["seeds"] for row in answers} == {"2"}
    assert {row["training.lr"] for row in answers} <= {"1e-06", "0.5"}
    heard.clear()
    perform(plan, tmp_path / "o", watch=heard.append)
    assert heard[-1].kept == 20
    # A score is in the table of rounds; one that is damaged is told.
    for trial in (tmp_path / "o" / "tuning").glob("*-seed*"):
        (trial / "evaluations.parquet").unlink()
    assert read_tuning(plan, tmp_path / "o").chosen.keys() == {AVG, LOCAL}
    (trial / "rounds.parquet").write_bytes(b"damaged")
    with pytest.raises(OutputError, match=r"rounds\.parquet cannot be read"):
        read_tuning(plan, tmp_path / "o")


@pytest.mark.usefixtures("in_process")
def test_a_variant_whose_trials_cannot_be_scored_is_told(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["base"]["data"]["split"] = [0.8, 0.0, 0.2]  # nobody has validation samples
    plan = load_study(tiny | {"tune": {"seeds": [100], "training.lr": [0.5]}})
    failed = perform(plan, tmp_path / "o").failed
    trials = {"tuning/fedavg-lr-0.5-seed100", "tuning/local-lr-0.5-seed100"}
    assert set(failed) == {"fedavg", "local", *trials}
    assert all("validation" in failed[trial] or "val" in failed[trial] for trial in trials)
    assert "no values of [tune]" in failed["local"]
    assert read_tuning(plan, tmp_path / "o").chosen == {}
    answers = rows_of((tmp_path / "o" / "answers.csv").read_text())
    assert {(row["seeds"], row["training.lr"]) for row in answers} == {("0", "")}
