"""What seeds draw."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedsim.fuzz.random_algorithms import ALGORITHMS
from fedsim.fuzz.random_scenarios import FEATURES, random_scenario
from fedsim.plugins import available


def test_some_hundred_seeds_reach_everything() -> None:
    drawn = {word for seed in range(600) for word in _words(random_scenario(seed).tables)}
    assert drawn >= {
        *ALGORITHMS,
        *("digits", "writers", "sizes", "synthetic_regression", "global_test", "global_test_users"),
        *("diurnal", "duty_cycle", "renewal", "trace", "drop_out", "file", "models", "models_by_size"),
        *("fluid", "naive", "none", "up_trace", "down_trace", "server_up_trace", "server_down_trace"),
        *("websocket", "http", "bus", "resume", "restart", "lost", "uniform", "by_size"),
        *("over_selection", "deadline", "deadline_quantile", "carry", "interval", "min_replies"),
        *("variable_epochs", "deadline_fitted", "load", "lognormal", "exponential", "half_normal"),
        *("skip", "repeat", "stop", "keep_optimiser", "adam", "momentum", "steps", "epochs"),
        *("augmentation", "clip_norm", "by", "at_start", "per_class", "kmeans", "mix"),
        *("threads", "null", "val", "held", "augment", "source", "users"),
        *("synchronous", "buffered", "immediate", "tiered", "lagged", "max_lag", "max_staleness"),
        *("constant", "polynomial", "hinge", "full_at"),
    }


def test_some_hundred_seeds_draw_every_schedule_and_every_transformation() -> None:
    tables = [random_scenario(seed).tables for seed in range(600)]
    for folder, drawn in (
        ("fedsim.engine.schedules", [one["training"].get("schedule", []) for one in tables]),
        ("fedsim.data.augmentations", [one["data"].get("augmentation", []) for one in tables]),
    ):
        names = {choice if isinstance(choice, str) else choice["name"] for some in drawn for choice in some}
        assert names == {found.name for found in available(folder)}


def _words(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        return {word for name, value in tree.items() for word in (name, *_words(value))}
    if isinstance(tree, list):
        return {word for value in tree for word in _words(value)}
    return {tree} if isinstance(tree, str) else set()


def test_each_feature_is_left_out_by_some_seeds() -> None:
    tables = [random_scenario(seed).tables for seed in range(100)]
    for table, key in (path for paths in FEATURES.values() for path in paths):
        parts = [part for one in tables for part in (one["fleet"] if table == "fleet" else [one[table]])]
        drawn = [part.get(key) for part in parts]
        defaults = None, {"name": "uniform", "params": {}}, {"name": "synchronous", "params": {}}
        assert 0 < sum(value not in defaults for value in drawn) < len(parts), (table, key)


def test_the_toml_of_a_scenario_is_the_scenario() -> None:
    scenario = random_scenario(3)
    assert tomllib.loads(scenario.toml) == scenario.tables


PRIVATE = """
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig

class MineConfig(FedAvgConfig):
    cunning: bool = False

class Mine(FedAvg[MineConfig]):
    "FedAvg with public samples."
    needs_public = True

PLUGIN = Mine
"""


def test_a_private_algorithm_is_drawn_with_its_own_parameters_and_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fuzzlab").mkdir()
    (tmp_path / "fuzzlab/mine.py").write_text(PRIVATE)
    monkeypatch.syspath_prepend(tmp_path)
    drawn = [random_scenario(seed, "fuzzlab.mine").tables for seed in range(40)]
    assert {one["algorithm"]["name"] for one in drawn} == {"fuzzlab.mine"}
    assert all("public" in one["data"] for one in drawn)
    assert any("cunning" in one["algorithm"]["params"] for one in drawn)
    del sys.modules["fuzzlab.mine"]
