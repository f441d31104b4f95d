"""What all trackers share."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.plugins import install_command
from fedsim.trackers.base import TrackedRun, flat, needed
from fedsim.trackers.mlflow import PLUGIN as MLFLOW
from fedsim.trackers.tensorboard import PLUGIN as TENSORBOARD
from fedsim.trackers.wandb import PLUGIN as WANDB


def test_a_run_is_known_by_its_folder_and_grouped_by_the_one_above(tracked: TrackedRun) -> None:
    assert (tracked.name, tracked.group) == ("fedavg-seed0", "fleet")
    assert tracked.settings["fleet"] == [{"count": 3, "device": "low"}]


def test_values_by_their_paths() -> None:
    tables = {"run": {"rounds": 2}, "fleet": [{"count": 3}, {"count": 4}], "split": [0.5, 0.5]}
    assert list(flat(tables)) == [
        *(("run.rounds", 2), ("fleet.0.count", 3), ("fleet.1.count", 4), ("split.0", 0.5), ("split.1", 0.5))
    ]


def test_a_package_that_is_not_installed_says_what_to_install() -> None:
    with pytest.raises(
        UserError, match=f"the package nix cannot be imported .*{re.escape(install_command('nix'))}"
    ):
        needed("no_such_package", "nix")


def test_where_trackers_write(tracked: TrackedRun, tmp_path: Path) -> None:
    here, there = tmp_path / "fleet", tmp_path / "there"
    cases: Any = (
        (TENSORBOARD, here / "tensorboard", "tensorboard --logdir {}"),
        (MLFLOW, here / "mlflow", "mlflow ui --backend-store-uri sqlite:///{}/mlflow.db"),
        (WANDB, here, "wandb sync {}/wandb/offline-run-*"),  # which makes a folder of its name in it
    )
    for plugin, own, said in cases:
        beside, named = plugin(plugin.Config()), plugin(plugin.Config(folder=str(there)))
        assert (beside.folder(tracked), named.folder(tracked)) == (own, there)
        assert beside.how_to_look(tracked) == said.format(own)
    server = MLFLOW(MLFLOW.Config(uri="http://localhost:5000"))
    assert server.how_to_look(tracked) == "mlflow ui --backend-store-uri http://localhost:5000"
