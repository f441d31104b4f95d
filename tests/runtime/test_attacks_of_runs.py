"""Runs with attackers: the same for any number of workers, in any way, under every algorithm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedsim.algorithms.base import Algorithm
from fedsim.errors import ScenarioError
from fedsim.network.fault_settings import ATTACKS, FaultConfig
from fedsim.plugins import available
from fedsim.scenario import Scenario, build
from tests.algorithms.conftest import World

SETTINGS: dict[str, dict[str, Any]] = {
    "sign_flip": {},
    "scale": {"factor": -3},
    "noise": {"deviation": 0.1},
    "constant": {"value": 0.5},
    "label_flip": {},
}
WORLD = World()
FOUND = {found.name: found.plugin for found in available("fedsim.algorithms")}
QUICK = ("fedmd", "scaffold")
OTHERS = [
    name
    for name, plugin in FOUND.items()
    if issubclass(plugin, Algorithm) and name not in ("local", "centralized", *QUICK)
]


def attacks(kind: str, share: float = 0.5, **more: Any) -> Sequence[Any]:
    return (FaultConfig.model_validate({"kind": kind, "share": share, **SETTINGS[kind], **more}),)


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_attackers_send_the_same_in_every_way(kind: str) -> None:
    def make() -> Any:
        return WORLD.algorithm("fedavg")

    attacked = WORLD.check_every_way(make, workers=(2, 4), faults=attacks(kind))
    honest = WORLD.run(make())
    assert attacked.model_hash != honest.model_hash
    assert attacked.totals == honest.totals
    assert WORLD.run(make(), faults=attacks(kind, share=0.0)).model_hash == honest.model_hash


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_attackers_change_what_others_learn_under_every_algorithm(name: str) -> None:
    training = {} if name == "l2sgd" else {"epochs": 1}
    for kind in ("sign_flip", "label_flip"):
        runs = [
            WORLD.run(WORLD.quick(name), rounds=2, training=training, **changes)
            for changes in (
                {},
                {"faults": attacks(kind)},
                {"faults": attacks(kind), "workers": 4, "verify": True},
                {"faults": attacks(kind), "batching": "off"},
            )
        ]
        assert not any(one.rejections for one in runs)
        honest, *attacked = (one.model_hash for one in runs)
        assert len(set(attacked)) == 1
        assert attacked[0] != honest


def test_workers_elsewhere_train_on_the_same_labels() -> None:
    parts = WORLD.parts(WORLD.algorithm("fedavg"), faults=attacks("label_flip"))
    here = replace(parts, rebuild=parts.resources).resources()
    honest = replace(parts, faults=()).resources()
    elsewhere = replace(parts, rebuild=replace(parts, faults=()).resources).resources().rebuild
    assert elsewhere is not None
    assert here.pool is not None
    assert honest.pool is not None
    labels = elsewhere().pool
    assert labels is not None
    assert labels[1].equal(here.pool[1])
    assert not labels[1].equal(honest.pool[1])


def test_more_attackers_than_clients_are_refused() -> None:
    share = {"kind": "sign_flip", "share": 0.5}
    with pytest.raises(ScenarioError, match="it needs 2 more clients than there are without") as caught:
        scenario(share, share, share)
    assert [one.path for one in caught.value.faults] == ["faults.2.share"]


def scenario(*faults: dict[str, Any], algorithm: str = "fedavg", data: str = "digits") -> Any:
    tables: dict[str, Any] = {
        "run": {"rounds": 2},
        "data": {"name": data},
        "algorithm": {"name": algorithm},
        "fleet": [{"count": 4, "device": "high"}],
        "faults": list(faults),
    }
    return build(Scenario.model_validate(tables))


@pytest.mark.parametrize(
    ("fault", "more", "expected"),
    [
        (
            {"kind": "sign_flip", "share": 0.5},
            {"algorithm": "local"},
            "send nothing that an attack could change",
        ),
        ({"kind": "label_flip", "share": 0.5}, {"data": "synthetic_regression"}, "labels are no classes"),
    ],
)
def test_attacks_that_cannot_be_are_refused(
    fault: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ScenarioError, match=expected) as caught:
        scenario(fault, **more)
    assert [one.path for one in caught.value.faults] == ["faults.0.kind"]
