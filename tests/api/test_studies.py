from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.algorithms.fedavg import FedAvg
from fedsim.algorithms.local import Local
from fedsim.errors import RunError, ScenarioError, UserError
from fedsim.runtime.records.result import RoundRow
from fedsim.studies import perform as performing
from fedsim.studies.answer_files import NOT_CHOSEN, NOT_FINITE, NOT_THERE
from fedsim.studies.plan import StudyRun, load_study
from tests.api.conftest import opened_as


class FedAvgOfMine(FedAvg):
    """Defined here, as in a notebook."""


def test_mistakes_are_scenario_errors(tiny: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"study: 2 faults\n  targets\.0: 2\.0 is above 1"):
        fedsim.study({"base": tiny, "targets": [2.0], "variant": [{"algorithm": "fedavgg"}]})


@pytest.mark.parametrize("jobs", [0, -1, 2.5, "2", 257])
def test_a_number_of_jobs_that_is_none(tiny: dict[str, Any], jobs: Any) -> None:
    with pytest.raises(UserError, match="give a number from 1 to 256, or leave it out"):
        fedsim.study({"base": tiny, "variant": [{"algorithm": "local"}]}, jobs=jobs)


def test_a_study_whose_runs_all_fail_has_answers_all_the_same(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, runs: list[StudyRun]) -> None:
        self.failed |= {run.label: "no such <luck>" for run in runs}

    monkeypatch.setattr(performing._Work, "do", fail)
    result = fedsim.study({"base": fedsim.load(tiny), "variant": [{"algorithm": "local"}]})
    assert result.failed == {"local-seed0": "no such <luck>"}
    assert not result.runs
    assert result.answers.to_pylist()[0]["seeds"] == 0
    assert result.answers.schema.field("bytes_up_low").metadata[b"unit"] == b"B"
    assert result.evaluations.num_rows == 0
    assert "local-seed0: no such <luck>" in repr(result)
    assert "<table><caption" in result._repr_html_()
    assert "<p>local-seed0: no such &lt;luck&gt;</p>" in result._repr_html_()


def in_folder(study: dict[str, Any], folder: Path, labels: list[str]) -> None:
    """Leave what a study does that was killed when some of its runs had ended."""
    for label in labels:
        algorithm, _, seed = label.rpartition("-seed")
        fedsim.run(study["base"], algorithm=algorithm, seed=int(seed), out=folder / label)
    (folder / "study.toml").write_text(load_study(study).toml)


def test_the_folder_of_a_study_is_opened_even_if_it_has_not_ended(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    tiny["run"]["name"] = "study"  # as the base of the study is called
    study = {"base": tiny, "seeds": [0, 1], "targets": [0.01], "variant": [{"algorithm": "local"}]}
    in_folder(study, tmp_path, ["local-seed0"])
    opened = opened_as(fedsim.StudyResult, tmp_path)
    assert opened.failed == {"local-seed1": NOT_THERE}
    assert list(opened.runs) == ["local-seed0"]
    assert opened.answers.to_pylist()[0]["seeds"] == 1
    assert opened.evaluations["seed"].to_pylist() == [0, 0]
    assert opened.evaluations.schema.metadata[b"fedsim_table"] == b"study"
    in_folder(study, tmp_path, ["local-seed1"])
    again = opened_as(fedsim.StudyResult, str(tmp_path))
    assert not again.failed
    assert again.evaluations.num_rows == 4


def test_runs_of_an_opened_study_that_are_not_finite_are_told(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["training"] |= {"lr": 1e6, "weight_decay": 1e6}
    study = {"base": tiny, "variant": [{"algorithm": "local"}]}
    in_folder(study, tmp_path, ["local-seed0"])
    opened = opened_as(fedsim.StudyResult, tmp_path)
    assert opened.failed == {"local-seed0": NOT_FINITE}


def test_a_trial_that_is_not_finite_is_no_failure(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["training"] |= {"weight_decay": 1e6}
    tiny["data"]["split"] = [0.6, 0.2, 0.2]
    tune = {"seeds": [100], "training.lr": [1e6, 1e-9]}
    study = {"base": tiny, "variant": [{"algorithm": "local"}], "tune": tune}
    done = fedsim.study(study, out=tmp_path / "study", jobs=1)
    assert not done.failed
    assert done.answers["training.lr"].to_pylist() == [1e-9]


def test_a_study_and_its_opened_folder_say_the_same_of_what_failed(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performing._Work, "do", lambda self, runs: None)
    tune = {"seeds": [7], "training.lr": [0.1]}
    said = fedsim.study(
        {"base": tiny, "variant": [{"algorithm": "local"}], "tune": tune}, out=tmp_path / "o"
    ).failed
    assert said == {"tuning/local-lr-0.1-seed7": NOT_THERE, "local": NOT_CHOSEN}
    opened = opened_as(fedsim.StudyResult, tmp_path / "o")
    assert opened.failed == said


@pytest.mark.slow
def test_a_study_from_python(tiny: dict[str, Any], tmp_path: Path) -> None:
    heard = list[performing.Progress]()
    result = fedsim.study(
        {"base": tiny, "seeds": [0, 1], "targets": [0.01], "variant": [{"algorithm": "local"}]},
        out=tmp_path / "o",
        jobs=2,
        progress=heard.append,
    )
    assert result.failed == {}
    assert list(result.runs) == ["local-seed0", "local-seed1"]
    same = fedsim.run(tiny, algorithm="local", seed=1).summary
    assert result.runs["local-seed1"].summary["model_hash"] == same["model_hash"]
    assert result.answers.to_pylist()[0]["reached"] == 2
    assert result.evaluations.num_rows == 4
    assert "to reach 1 %" in repr(result)
    assert heard[-1].ended == 2


def test_a_comparison_runs_each_algorithm_with_each_seed(tiny: dict[str, Any], tmp_path: Path) -> None:
    compared = fedsim.compare(tiny, ["fedavg", Local], seeds=[0, 1], out=tmp_path / "there")
    assert [(one.summary["algorithm"], one.summary["seed"]) for one in compared] == [
        ("fedavg", 0),
        ("local", 0),
        ("fedavg", 1),
        ("local", 1),
    ]
    assert (tmp_path / "there" / "comparison.csv").is_file()
    assert compared["local", 1].folder == tmp_path / "there" / "local-seed1"


def test_a_comparison_of_nothing_is_told(tiny: dict[str, Any]) -> None:
    for algorithms, seeds in (([], None), (["local"], [])):
        with pytest.raises(UserError, match="nothing to compare"):
            fedsim.compare(tiny, algorithms, seeds=seeds)
    assert len(fedsim.compare(tiny, "local")) == 1


@pytest.mark.usefixtures("in_process")
def test_parameters_of_a_parent_that_do_not_apply_are_logged(
    tiny: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    base = tiny | {"algorithms": {"fedavg": {"weighting": "uniform"}}}
    fedsim.compare(base, ["fedavg", FedAvgOfMine], overrides={"run.rounds": 1})
    algorithms = ["fedavg", FedAvgOfMine]
    fedsim.study({"base": base, "variant": [{"algorithm": one} for one in algorithms]}, jobs=1)
    mine = f"{__name__}.FedAvgOfMine"
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert all(f"{mine} is a subclass of fedavg" in message for message in messages)


def test_a_comparison_has_answers_for_its_targets(tiny: dict[str, Any], tmp_path: Path) -> None:
    compared = fedsim.compare(tiny, ["local", FedAvgOfMine], targets=[0.01, 1.0], out=tmp_path / "there")
    rows = compared.answers.to_pylist()
    mine = f"{__name__}.FedAvgOfMine"
    assert [(row["variant"], row["target"], row["reached"]) for row in rows] == [
        *(("local", 0.01, 1), ("local", 1.0, 0)),
        *((mine, 0.01, 1), (mine, 1.0, 0)),
    ]
    opened = opened_as(fedsim.Comparison, tmp_path / "there")
    assert opened.answers.equals(compared.answers)
    with pytest.raises(ScenarioError, match=r"targets\.0: 2\.0 is above 1"):
        fedsim.compare(tiny, ["local"], targets=[2.0])


def test_a_comparison_with_a_grid_is_a_study(tiny: dict[str, Any], tmp_path: Path) -> None:
    rows = list[RoundRow]()
    result = fedsim.compare(
        tiny,
        [FedAvgOfMine],
        overrides="run.rounds=1",
        grid={"training.lr": [0.1, 0.2]},
        out=tmp_path / "there",
        progress=rows.append,
    )
    assert isinstance(result, fedsim.StudyResult)
    assert [row["training.lr"] for row in result.answers.to_pylist()] == [0.1, 0.2]
    assert [row.round for row in rows] == [1, 1]
    assert isinstance(fedsim.open(tmp_path / "there"), fedsim.StudyResult)
    with pytest.raises(ScenarioError, match="no key is called 'lrr'"):
        fedsim.compare(tiny, ["local"], grid={"training.lrr": [0.1]})


@pytest.mark.usefixtures("in_process")
def test_a_comparison_of_several_jobs_goes_to_workers(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = list[performing.Progress]()
    arguments: Any = {"overrides": {"run.rounds": 1}, "out": tmp_path / "there"}
    compared = fedsim.compare(tiny, ["local", "fedavg"], jobs=2, progress=heard.append, **arguments)
    assert heard[-1].ended == 2
    assert [run.summary["algorithm"] for run in compared] == ["local", "fedavg"]
    with pytest.raises(UserError, match=r"run\.save_models = true"):
        compared["fedavg"].model()
    assert fedsim.compare(tiny, ["local", "fedavg"], **arguments)["fedavg"].model() is not None

    async def fail(self: Local, *_: Any) -> Any:
        raise RunError("no such luck")

    monkeypatch.setattr(Local, "train", fail)
    for jobs in (1, 2):
        with pytest.raises(RunError, match="no such luck") as caught:
            fedsim.compare(tiny, ["fedavg", "local"], jobs=jobs, out=tmp_path / str(jobs))
        assert f"are kept in {tmp_path / str(jobs)}" in caught.value.__notes__[0]
        assert (tmp_path / str(jobs) / "fedavg-seed0").is_dir()
