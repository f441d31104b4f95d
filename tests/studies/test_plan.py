import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from fedsim import toml_writer
from fedsim.algorithms.fedprox import FedProxConfig
from fedsim.errors import ScenarioError
from fedsim.scenario import Scenario, load_scenario
from fedsim.studies.plan import StudyRun, load_study
from fedsim.studies.study_file import MAX_RUNS


def scenario_of(run: StudyRun) -> Scenario:
    return load_scenario(tomllib.loads(run.scenario_toml))


def faults(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ScenarioError) as caught:
        load_study(document)
    return {fault.path: str(fault) for fault in caught.value.faults}


def test_every_variant_runs_at_every_point_with_every_seed(tiny: dict[str, Any]) -> None:
    tiny["variant"][1] = {"name": "prox strong", "algorithm": "fedprox"}
    plan = load_study(tiny | {"grid": {"training.lr": [0.1, 0.2], "fleet.0.count": [2, 3]}})
    assert len(plan.runs) == 2 * 2 * 4
    assert [run.label for run in plan.runs[:2]] == [
        "fedavg-lr-0.1-count-2-seed0",
        "fedavg-lr-0.1-count-3-seed0",
    ]
    last = plan.runs[-1]
    assert (last.label, last.setting.point) == ("prox-strong-lr-0.2-count-3-seed1", (0.2, 3))
    scenario = scenario_of(last)
    assert (scenario.algorithm.name, scenario.training.lr, scenario.num_clients) == ("fedprox", 0.2, 3)
    assert [run.seed for run in plan.runs] == [0] * 8 + [1] * 8


def test_a_variant_changes_what_it_names_and_keeps_the_rest(tiny: dict[str, Any]) -> None:
    tiny["base"]["algorithms"] = {"fedprox": {"mu": 0.5, "gamma": 0.1}}
    variant = {"algorithm": "fedprox", "params": {"mu": 2.0}, "set": {"training.epochs": 3}}
    plan = load_study(tiny | {"variant": [variant, {"algorithm": "fedavg"}]})
    scenario = scenario_of(plan.runs[0])
    params = scenario.algorithm.params
    assert isinstance(params, FedProxConfig)
    assert (params.mu, params.gamma, scenario.training.epochs, scenario.training.lr) == (2.0, 0.1, 3, 0.5)
    assert scenario_of(plan.runs[1]).training.epochs != 3


def test_what_a_study_sets_holds_for_every_variant_that_sets_nothing_else(tiny: dict[str, Any]) -> None:
    tiny["variant"][1]["set"] = {"training.lr": 0.25}
    plan = load_study(tiny | {"set": {"training.lr": 0.75, "training.epochs": 3}})
    scenarios = [scenario_of(run).training for run in plan.runs[:2]]
    assert [(one.lr, one.epochs) for one in scenarios] == [(0.75, 3), (0.25, 3)]


def test_the_seed_is_the_base_s_if_there_are_no_others(tiny: dict[str, Any]) -> None:
    del tiny["seeds"]
    tiny["base"]["run"]["seed"] = 7
    assert {run.seed for run in load_study(tiny).runs} == {7}


def test_a_base_is_named_relative_to_the_study_s_file(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(toml_writer.document(tiny.pop("base")))
    (tmp_path / "my study.toml").write_text(
        toml_writer.document({"base": "base.toml", **tiny, "name": "other"})
    )
    plan = load_study(tmp_path / "my study.toml")
    assert (plan.name, scenario_of(plan.runs[0]).run.name) == ("other", "base")
    # What it leaves holds the base, and makes the same runs anywhere.
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "study.toml").write_text(plan.toml)
    assert load_study(tmp_path / "there" / "study.toml").runs == plan.runs
    assert len(load_study({**tiny, "base": "quickstart"}).runs) == 4


def test_labels_are_told_apart(tiny: dict[str, Any]) -> None:
    tiny["variant"] = [{"name": "a b", "algorithm": "local"}, {"name": "a-b", "algorithm": "local"}]
    del tiny["baseline"]
    assert [run.label for run in load_study(tiny).runs][:2] == ["a-b-seed0", "a-b-2-seed0"]


def test_all_faults_come_at_once_with_their_paths(tiny: dict[str, Any]) -> None:
    tiny |= {
        "seeds": [0, 1, 0],
        "targets": [0.5, 1.2],
        "baseline": "fedavgg",
        "variant": [
            {"params": {"mu": 1.0}},
            {"algorithm": "fedprox", "params": {"muu": 1.0}},
            {"algorithm": "fedavg"},
            {"algorithm": "fedavg", "set": {"training.lr": 0.1}},
        ],
        "grid": {"training.batch_sizes": [8, 16], "participation.clients_per_round": [2, 60]},
    }
    found = faults(tiny)
    assert list(found) == [
        "seeds",
        "targets.1",
        "baseline",
        "variant.0.algorithm",
        "variant.1.params.muu",
        "variant.3",
        'grid."training.batch_sizes"',
        'grid."participation.clients_per_round"',
    ]
    assert "0 is given twice" in found["seeds"]
    assert "1.2 is above 1" in found["targets.1"]
    assert "did you mean 'fedavg'" in found["baseline"]
    assert 'add algorithm = "fedavg"' in found["variant.0.algorithm"]
    assert "did you mean 'mu'" in found["variant.1.params.muu"]
    assert "'fedavg' is the name of two variants" in found["variant.3"]
    assert "did you mean 'batch_size'" in found['grid."training.batch_sizes"']
    assert "the fleet has 3" in found['grid."participation.clients_per_round"']


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"grid": {"training": {"lr": [1]}}}, "grid.training", "in quotation marks"),
        ({"grid": {"training.lr": []}}, 'grid."training.lr"', "too few"),
        ({"grid": {"training.lr": [0.1, 0.1]}}, 'grid."training.lr"', "given twice"),
        ({"grid": {"a..b": [1]}}, 'grid."a..b"', "malformed"),
        ({"grid": {"run.seed": [1, 2]}}, 'grid."run.seed"', "write seeds = [1, 2] at the top of the study"),
        ({"set": {"run.seed": 3}}, 'set."run.seed"', "write seeds = [3] at the top of the study instead"),
        ({"set": {"algorithm.name": "local"}}, 'set."algorithm.name"', 'write algorithm = "fedavg", say'),
        ({"set": {"algorithm.params": {}}}, 'set."algorithm.params"', "write params = { mu = 0.1 }, say"),
        ({"grid": {"training.lr": [0.1, -1]}}, 'grid."training.lr"', "not above 0"),
        (
            {"grid": {"fleet.0.count": [*range(99)], "run.rounds": [*range(99)]}},
            "grid",
            f"at most {MAX_RUNS}",
        ),
        ({"variant": []}, "variant", "too few"),
        ({"variant": ["fedavg"]}, "variant.0", "write [[variant]] on a line of its own"),
        ({"variant": [{"algorithm": "fedavgg"}]}, "variant.0.algorithm", "did you mean 'fedavg'"),
        ({"variant": [{"algorithm": "fedavg", "set": {"data.n": 1}}]}, 'variant.0.set."data.n"', "no key"),
        ({"set": {"data.n": 1}}, 'set."data.n"', "no key"),
        ({"set": {"a..b": 1}}, 'set."a..b"', "malformed"),
        ({"set": {"training.lr": 1}, "grid": {"training.lr": [1]}}, 'set."training.lr"', "[grid] gives"),
        ({"grid": {"training.lr": [0.1, None]}}, 'grid."training.lr".1', "None is nothing that a scenario"),
        ({"grid": {"training.lr": [date(2026, 1, 1)]}}, 'grid."training.lr".0', "give a number, a text"),
        ({"set": {"run.until": None}}, 'set."run.until"', "None is nothing that a scenario can hold"),
        ({"tune": {"seeds": [9], "training.lr": [b"1"]}}, 'tune."training.lr".0', "b'1' is nothing that"),
        (
            {"variant": [{"algorithm": "fedprox", "params": {"mu": {1}}}]},
            "variant.0.params.mu",
            "{1} is nothing that a scenario can hold",
        ),
        ({"targets": [None]}, "targets.0", "None is no value, a number is wanted"),
        (
            {"grid": {"training.lr": [0.1], 'training."lr"': [0.2]}},
            'grid."training.\\"lr\\""',
            "[grid] gives training.lr too",
        ),
        (
            {"grid": {"training.lr": [0.1], "training": [{"epochs": 2}]}},
            "grid.training",
            "[grid] gives training.lr too",
        ),
        (
            {"set": {"training.epochs": 2}, "grid": {"training": [{"lr": 0.1}]}},
            'set."training.epochs"',
            "[grid] gives training too",
        ),
        ({"base": "nowhere"}, "base", "no example of that name"),
        ({"base": {"run": {"rounds": 1}}}, "base.fleet", "a run needs clients"),
        ({"base": 3}, "base", "a table is wanted"),
        ({"tune": {"seeds": [1], "training.lr": [1]}}, "tune.seeds", "1 is a seed of the study too"),
        ({"tune": {"seeds": [9]}}, "tune", 'add values to try, such as "training.lr" = [0.01, 0.1]'),
        ({"tune": {"training.lr": [1]}}, "tune.seeds", "add seeds = [100]"),
        ({"tune": {"seeds": [9], "training.lrr": [1]}}, 'tune."training.lrr"', "no key is called"),
        ({"tune": {"seeds": [9], "training.lr": 1}}, 'tune."training.lr"', "is not a list of values"),
        ({"tune": {"seeds": [9], "training.lr": [0.1, 0.1]}}, 'tune."training.lr"', "given twice"),
        (
            {"tune": {"seeds": [9], "training.lr": [1]}, "grid": {"training.lr": [1]}},
            'tune."training.lr"',
            "[grid] gives training.lr too",
        ),
        ({"name": "a/b"}, "name", "write 'a-b'"),
        ({"of": "mean"}, "of", "personal_mean"),
        ({"budget": 3}, "budget", "no key is called 'budget'"),
        ({"at": {"simulated": [3600]}}, "at.simulated.0", "has no unit"),
        ({"at": {"bytes": ["1 MB", "1000 kB"]}}, "at.bytes", "given twice"),
        ({"at": {"time": ["1 h"]}}, "at.time", "no key is called 'time'"),
        ({"interval": "normal"}, "interval", "write 't' or 'bootstrap'"),
        ({"interval": "bootstrap"}, "interval", "the mean is found in 50 % of studies at most"),
        (
            {"interval": "bootstrap", "seeds": [0, 1, 2, 3, 4]},
            "interval",
            'give at least 6 seeds, or write interval = "t"',
        ),
    ],
)
def test_faults_teach(tiny: dict[str, Any], changes: dict[str, Any], path: str, said: str) -> None:
    found = faults(tiny | changes)
    assert said in found[path]


def test_a_key_that_is_none_is_left_out(tiny: dict[str, Any]) -> None:
    whole = load_study(tiny)
    tiny["base"]["run"]["until"] = None
    tiny["variant"][0]["name"] = None
    given = tiny | {"grid": None, "tune": None, "at": {"simulated": None}}
    assert load_study(given).runs == whole.runs
    assert load_study(tomllib.loads(load_study(given).toml)).runs == whole.runs


class Points(Dataset[Any]):
    def __len__(self) -> int:
        return 80

    def __getitem__(self, number: int) -> tuple[list[float], int]:
        return [float(number), 1.0], number % 2


def test_what_no_file_of_a_study_can_hold_is_a_fault_of_the_base(tiny: dict[str, Any]) -> None:
    tiny["base"]["data"] = {"name": "torch_dataset", "params": {"dataset": Points()}}
    found = faults(tiny)
    assert list(found) == ["base.data.params.dataset"]
    assert "give a dotted path" in found["base.data.params.dataset"]


def test_parameters_that_the_base_has_wrong_are_told_there(tiny: dict[str, Any]) -> None:
    tiny["base"]["algorithms"] = {"fedprox": {"mu": -1.0}}
    tiny["variant"].append({"algorithm": "fedprox"})
    assert list(faults(tiny)) == ["base.algorithms.fedprox.mu"]


def test_a_value_is_set_once(tiny: dict[str, Any]) -> None:
    tiny["variant"][0]["set"] = {"training.lr": 0.1}
    found = faults(tiny | {"grid": {"training.lr": [0.2]}})
    assert found == {
        'variant.0.set."training.lr"': 'variant.0.set."training.lr": [grid] gives training.lr too — '
        "leave out one of the two"
    }


def test_a_key_of_a_table_that_was_given_before_is_set_in_it(tiny: dict[str, Any]) -> None:
    grid = {"training": [{"batch_size": 5}, {"batch_size": 6}], "training.epochs": [2]}
    (first, second) = load_study(tiny | {"seeds": [0], "variant": tiny["variant"][:1], "grid": grid}).runs
    assert [scenario_of(one).training.batch_size for one in (first, second)] == [5, 6]
    assert {scenario_of(one).training.epochs for one in (first, second)} == {2}


def test_a_study_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="no example of a study of that name"):
        load_study("nowhere")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_study("nowhere.toml")


def test_a_scenario_is_no_study_nor_a_study_a_scenario(tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"this is a scenario, and no study — use 'fedsim run'"):
        load_study(tiny["base"])
    with pytest.raises(ScenarioError, match=r"this is a study, .* — use 'fedsim study'"):
        load_scenario(tiny)
    assert "use 'fedsim study'" in faults(tiny | {"base": tiny})["base"]
    with pytest.raises(ScenarioError, match="of that name — a scenario is: use 'fedsim run'"):
        load_study("quickstart")
    for name in ("first_to_reach", "studies/first_to_reach"):
        with pytest.raises(ScenarioError, match="of that name — a study is: use 'fedsim study'"):
            load_scenario(name)


def test_a_name_that_is_too_long_for_a_file(tiny: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="no example of a study of that name"):
        load_study("x" * 5000)
    assert "no example of that name" in faults(tiny | {"base": "x" * 5000})["base"]


def test_a_folder_hides_no_example(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "first_to_reach"):
        Path(name).mkdir()
    assert load_study("first_to_reach").name == "first_to_reach"
    Path("studies").mkdir()
    Path("studies/mine.toml").write_text(toml_writer.document(tiny | {"base": "quickstart"}))
    Path("studies/quickstart").mkdir()
    assert len(load_study("studies/mine.toml").runs) == 4
