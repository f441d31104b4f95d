"""Trackers in a scenario, and by themselves."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from fedsim.errors import ScenarioError
from fedsim.scenario import load_scenario, resolved_toml, tracked
from fedsim.scenario.tracker import load_tracker

TINY: dict[str, Any] = {"run": {"rounds": 1}, "fleet": [{"count": 2, "device": "low"}]}


def test_trackers_are_no_part_of_what_a_run_is() -> None:
    plain = load_scenario(TINY)
    wandb = {"name": "wandb", "params": {"project": "mine"}}
    loaded = load_scenario(TINY, {"run.trackers": ["tensorboard", wandb]})
    assert resolved_toml(loaded) == resolved_toml(plain)
    assert "trackers" not in tomllib.loads(resolved_toml(loaded))["run"]
    assert [choice.name for choice in loaded.run.trackers] == ["tensorboard", "wandb"]
    assert loaded.run.trackers[1].make().config.project == "mine"
    assert load_scenario(loaded).run.trackers == loaded.run.trackers


def test_named_trackers_take_the_place_of_a_scenarios_own() -> None:
    loaded = load_scenario(TINY, {"run.trackers": ["tensorboard"]})
    assert [choice.name for choice in tracked(loaded, ["wandb", "mlflow", "wandb"]).run.trackers] == [
        *("wandb", "mlflow")
    ]
    assert tracked(loaded, []) is loaded


def test_what_is_wrong_with_a_scenarios_trackers() -> None:
    wrong = ["tensorbord", {"name": "wandb", "params": {"mode": "off"}}]
    with pytest.raises(ScenarioError) as caught:
        load_scenario(TINY, {"run.trackers": wrong})
    unknown, mode = caught.value.faults
    assert (unknown.path, unknown.problem) == ("run.trackers.0", "no tracker is called 'tensorbord'")
    assert mode.path == "run.trackers.1.params.mode"


def test_a_tracker_by_itself() -> None:
    from_texts = load_tracker("wandb", ["project=mine"], folder="logs")
    assert (from_texts.config.project, from_texts.config.folder) == ("mine", "logs")
    from_values = load_tracker(type(from_texts), {"project": "mine", "folder": "logs"})
    assert from_values.config == from_texts.config
    assert load_tracker("tensorboard").config.folder is None
    with pytest.raises(ScenarioError) as caught:
        load_tracker("wandb", ["projekt=mine", "nothing"])
    assert [fault.path for fault in caught.value.faults] == ["", "params.projekt"]
