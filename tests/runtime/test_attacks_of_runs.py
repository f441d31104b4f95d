"""Runs with attackers: the same for any number of workers, in any way, under every algorithm."""

from collections.abc import Sequence
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
NAMES = [
    name
    for name, plugin in FOUND.items()
    if issubclass(plugin, Algorithm) and name not in ("local", "centralized")
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
    assert attacked.trace_hash == honest.trace_hash or kind  # traces show accuracies, and no models
    assert attacked.totals == honest.totals
    assert WORLD.run(make(), faults=attacks(kind, share=0.0)).model_hash == honest.model_hash


@pytest.mark.parametrize(
    "name",
    [name if name in ("fedmd", "scaffold") else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
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
        honest, *attacked = (one.model_hash for one in runs)
        assert len(set(attacked)) == 1
        assert attacked[0] != honest


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


@pytest.mark.parametrize(
    ("fault", "key", "expected"),
    [
        ({"kind": "sign_flip"}, "share", "does not say how many clients attack"),
        ({"kind": "sign_flip", "share": 1.5}, "share", "less than or equal to 1"),
        ({"kind": "scale", "share": 0.5}, "factor", "does not say by which factor"),
        ({"kind": "noise", "share": 0.5}, "deviation", "does not say how large the noise is"),
        ({"kind": "constant", "share": 0.5}, "value", "does not say what attackers send"),
        ({"kind": "loss", "probability": 0.1, "share": 0.5}, "share", "'loss' has no share"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "at": "1 s"}, "at", "attack in all rounds"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "every": "1 s"}, "every", "attack in all rounds"),
        ({"kind": "noise", "share": 0.5, "deviation": 1, "for": "1 s"}, "for", "attack in all rounds"),
        ({"kind": "sign_flip", "share": 0.5, "probability": 0.5}, "probability", "always or never"),
        ({"kind": "sign_flip", "share": 0.5, "direction": "up"}, "direction", "not of frames"),
        ({"kind": "slow", "factor": 0.5}, "factor", "no factor by which devices are slow"),
    ],
)
def test_bad_settings_are_told(fault: dict[str, Any], key: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        FaultConfig.model_validate(fault)
    assert key in str(caught.value)
