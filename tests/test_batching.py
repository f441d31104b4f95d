"""Whether clients are computed together or one by one shows in ``run.json`` and nowhere else."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.algorithms.fedavg import FedAvg
from fedsim.engine.batched import fit
from fedsim.engine.losses import Batches, Extras, Models, empirical_loss
from fedsim.engine.steps import Descent
from fedsim.errors import JobError
from fedsim.plugins import PluginInfo, available
from fedsim.wire import ModelUpdate

SCENARIO: dict[str, Any] = {
    "run": {"name": "batching", "rounds": 3},
    "data": {
        "name": "digits",
        "params": {},
        "limit": 400,
        "partition": {"name": "dirichlet_class", "params": {"alpha": 1.0}},
    },
    "models": {"small": {"name": "mlp", "params": {"hidden": [12]}}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8, "epochs": 1},
    "fleet": [{"count": 6, "device": "low"}, {"count": 6, "device": "high"}],
    "participation": {"clients_per_round": 7, "pacing": {"params": {"over_selection": 1.5}}},
    "evaluation": {"every": 2},
}
PUBLIC = {"data.public": {"size": 30}}
GRID = {"lambdas": [0.0, 0.25], "temperatures": [1.0, 5.0], "distill_epochs": 1}
SERVER_HELD = {**PUBLIC, "data.public.held": "server"}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "momentum": {"training.momentum": 0.9},
    "adam": {"training.optimiser": "adam"},
    "clipped gradients": {"training.clip_norm": 0.3, "training.schedule": "cosine"},
    "buffered": {"participation.pacing": {"name": "buffered", "params": {"concurrency": 7}}},
    "fedavg_ft": {"algorithm": {"name": "fedavg_ft", "params": {"finetune_epochs": 2}}},
    "fedmd": {**SERVER_HELD, "algorithm": {"name": "fedmd", "params": {"digest": "kl"}}},
    "sim_pfd": {
        **SERVER_HELD,
        "algorithm": {"name": "sim_pfd", "params": {"temperature": 5.0, "theta_sq": True}},
    },
    "topk_pfd": {**PUBLIC, "algorithm": {"name": "topk_pfd", "params": {"order": "distill_first"}}},
    "dsfl": {**PUBLIC, "algorithm": {"name": "dsfl", "params": {"public_per_round": 15}}},
    "fedet": {**PUBLIC, "algorithm": {"name": "fedet", "params": {"server_steps": 5}}},
    "perfed_ckt": {**PUBLIC, "algorithm": {"name": "perfed_ckt", "params": {"public_batch_size": 8}}},
    "mapper, outputs": {"algorithm": {"name": "mapper", "params": {"mix": "outputs"}}},
    "persfl": {"algorithm": {"name": "persfl", "params": GRID}},
}
"""Settings other than the defaults, with which every algorithm is tested below."""
SOON = ("fedavg",)
"""Those that run whenever tests do."""
DISTILS_AT_SERVER = ("fedet",)
"""Algorithms whose server trains, by itself, with a loss that serves one net."""


def run(folder: Path, verify: bool = False, **changes: Any) -> fedsim.Result:
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    return fedsim.run(SCENARIO, overrides=overrides, out=folder, verify=verify)


def jobs(result: fedsim.Result) -> Any:
    return json.loads((result.folder / "run.json").read_text())["jobs"]


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=[] if name in SOON else pytest.mark.slow) for name in ALGORITHMS]
)
def test_results_are_the_same_together_and_one_by_one(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ALGORITHMS[algorithm]
    ways: dict[str, dict[str, Any]] = {
        "together": {},
        "together beside threads": {"engine.workers": 4},
        "one by one": {"engine.batching": "off"},
        "one by one beside threads": {"engine.batching": "off", "engine.workers": 2},
    }
    results = {way: run(tmp_path / way, **changes, **settings) for way, settings in ways.items()}
    results["the long way"] = run(tmp_path / "verified", verify=True, **changes)
    monkeypatch.setattr(fit, "_tile_size", lambda kind, most_samples: 3)
    results["in small tiles"] = run(tmp_path / "small", **{**changes, "engine.workers": 2})
    same = {
        tuple(json.dumps(result.summary[key]) for key in sorted(result.summary) if key != "wall_s")
        for result in results.values()
    }
    assert len(same) == 1
    fits = jobs(results["together"])["fit"]
    assert fits["together"] > 0
    assert ("no batched form" in fits) is (algorithm in DISTILS_AT_SERVER)
    assert all("together" not in ways for ways in jobs(results["one by one"]).values())


ONE_BY_ONE = {
    "apfl": "its step is its own: it moves two models and alpha",
    "centralized": "the server trains one model",
    "mapper": "it mixes parameters: its loss takes a model at other ones",
    "pfedme": "its step is its own: it moves two models",
}
"""Algorithms none of whose fits are computed together, and why."""
LESS = {"server_steps": 5, "server_epochs": 2, "distill_epochs": 1, "lambdas": [0.5], "temperatures": [5.0]}


@pytest.mark.slow
@pytest.mark.parametrize("found", available("fedsim.algorithms"), ids=lambda found: found.name)
def test_every_algorithm_is_the_same_together_and_one_by_one(found: PluginInfo, tmp_path: Path) -> None:
    fields = found.plugin.Config.model_fields
    changes: dict[str, Any] = {
        "algorithm.name": found.name,
        "data.public": {"size": 30},
        **{f"algorithm.params.{name}": value for name, value in LESS.items() if name in fields},
    }
    if found.name == "fedgkt":
        changes["algorithm.params.cut"] = -1  # all but the head
    together = run(tmp_path / "together", **changes)
    alone = run(tmp_path / "alone", **changes, engine__batching="off")
    for key in alone.summary.keys() - {"wall_s"}:
        assert json.dumps(together.summary[key]) == json.dumps(alone.summary[key])
    assert ("together" in jobs(together)["fit"]) == (found.name not in ONE_BY_ONE)


def failing(models: Models, batches: Batches, extras: Extras) -> Any:
    if not batches["train"].x.is_meta:  # its cost can be counted
        raise ValueError("no such luck")
    return empirical_loss(models, batches, extras)


class Unlucky(FedAvg):
    async def train(self, client: Any, state: Any, message: Any) -> Any:
        fitted = await client.fit(message.model, step=Descent(loss=failing))
        return state, ModelUpdate.of(fitted.model, num_samples=1)


def test_a_fit_that_fails_names_its_client_and_round(tmp_path: Path) -> None:
    said = set()
    for workers, batching in product((1, 2), ("auto", "off")):
        engine = {"engine.workers": workers, "engine.batching": batching}
        with pytest.raises(JobError) as caught:
            fedsim.run(SCENARIO, algorithm=Unlucky, overrides=engine, out=tmp_path / "run")
        said.add(str(caught.value))
    (message,) = said
    assert re.fullmatch(r"a fit job failed at client \d+ in round 1: ValueError: no such luck", message)
