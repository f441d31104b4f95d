"""Algorithms that are another one, bit for bit, with some parameters: sanity checks of the specification."""

from collections.abc import Mapping
from typing import Any

import pytest

from fedsim.runtime.run import RunResult

Params = Mapping[str, Any]
KEPT: Params = {"training": {"momentum": 0.9, "keep_optimiser": True}, "clients_per_round": 3}
PLAIN: Params = {"verify": False}
WAYS: list[Params] = [PLAIN, KEPT]
LOST: Params = {"lost": lambda parcel, number: parcel.sender == 2, "client_timeout_s": 30.0, "verify": False}
"""Nothing that client 2 sends arrives."""
SOME: list[Params] = [{}, {"clients_per_round": 2}]
ALONE: list[Params] = [{"num_clients": 1}]
THREE: list[Params] = [{"clients_per_round": 3}]
ONE_STEP = 1 - 1e-6
"""A probability at which practically every round has one step."""
TRAININGS: tuple[dict[str, Any], ...] = (
    {},
    {"epochs": 2},
    {"steps": 7},
    {"epochs": 2, "momentum": 0.9},
    {"optimiser": "adam"},
)
EQUAL_WEIGHTS: Params = {"weighting": "uniform"}
SELECTED: Params = {"follow_selection": True}

FEDAVG: list[tuple[str, Params, Params, list[Params]]] = [
    ("apfl", {"alpha": 0.0, "adapt": "never", "mix_with": "server"}, EQUAL_WEIGHTS, WAYS),
    ("centralized", {}, {}, [{"num_clients": 1, "training": training} for training in TRAININGS]),
    ("fedasync", {"alpha": 1.0, "rho": 0.0}, {}, ALONE),
    ("feddf", {"server_steps": 0}, {}, THREE),
    ("fedper", {"personal_layers": 0}, {}, WAYS),
    ("fedprox", {"mu": 0.0}, {}, SOME),
    *(("fml", {"alpha": alpha, "beta": 1.0}, EQUAL_WEIGHTS, WAYS) for alpha in (0.0, 0.5)),
    *(
        ("hypcluster", {"clusters": 1, "weighting": name}, {"weighting": name}, THREE)
        for name in ("samples", "uniform")
    ),
    *(("ifca", {"clusters": 1, "shared_base": on}, EQUAL_WEIGHTS, THREE) for on in (False, True)),
    ("l2sgd", {"probability": ONE_STEP, "pull": 1.0}, EQUAL_WEIGHTS, [{"training": {"steps": 1}}]),
    *(("mapper", {"lambdas": (0.0,), "mix": mix}, {}, WAYS) for mix in ("params", "outputs")),
    ("moon", {"mu": 0.0}, {}, SOME),
    ("moon", {}, {}, [{"rounds": 1}]),
]
"""Algorithm, its parameters, those of FedAvg, and the worlds in which both end with the same models."""
LOCAL: list[tuple[str, Params, Params, list[Params]]] = [
    *(("ktpfl_w", {"mixing": mixing}, {}, ALONE) for mixing in ("learned", "similarity", "topk")),
    *(
        ("fedmd", {"pretrain_epochs": 0, "digest": digest, "digest_batch_size": size}, {}, ALONE)
        for digest, size in (("mae", 256), ("mae", 16), ("mse", 16))
    ),
    ("fedamp", {}, {}, ALONE),
    ("fedamp", {"lam": 0.0}, SELECTED, SOME),
    ("fedavg", {}, {}, [{"num_clients": 1, "training": {"epochs": 2}}]),
    ("fedfomo", {"offers": 0}, SELECTED, SOME),
    ("ktpfl_w", {"mixing": "topk", "neighbours": 1}, {}, [{}]),
    ("ktpfl_w", {"pull": 0.0}, {}, [{}]),
    ("perfed_ckt", {"lam": 0}, {}, [{"training": {"epochs": 2}}, {"training": {"steps": 5}}]),
]
"""The same of Local."""
NAMED: list[tuple[str, Params, Params]] = [
    ("apfl", {"alpha": 1.0, "adapt": "never"}, {}),
    ("ditto", {"lam": 0.0}, {"name": "personal"}),
    ("fedper", {"personal_layers": 3}, {}),
    ("fml", {"alpha": 1.0}, {}),
    ("l2sgd", {"probability": ONE_STEP, "pull": 0.0}, {"steps": 1}),
    *(("mapper", {"lambdas": (1.0,), "mix": mix}, {"name": "personal"}) for mix in ("params", "outputs")),
]
"""Algorithm, its parameters, and how Local trains, in whose streams clients' own models are then trained."""


def _cases(table: list[Any]) -> list[Any]:
    return [
        pytest.param(name, params, other, changes, id=f"{name} {dict(params)} {number}")
        for name, params, other, worlds in table
        for number, changes in enumerate(worlds)
    ]


def _digests(result: RunResult, *names: str) -> dict[int, bytes]:
    """Return each client's model of the first of these names that it has."""
    return {
        client: next(models[name] for name in names if name in models).digest()
        for client, models in result.models.items()
    }


@pytest.mark.parametrize(("name", "params", "others", "changes"), _cases(FEDAVG))
def test_it_is_fedavg(name: str, params: Params, others: Params, changes: Params, world: Any) -> None:
    one = world.run(world.algorithm(name, **params), **changes)
    fedavg = world.run(world.algorithm("fedavg", **others), **changes)
    first = "global" if name == "fml" else "personal"
    assert _digests(one, first, "global") == _digests(fedavg, "global")
    if name not in ("centralized", "hypcluster", "ifca", "l2sgd"):
        assert one.totals == fedavg.totals
    if name in ("moon", "fedper"):  # nor are there passes through frozen models
        assert (one.simulated_s, one.final.mean) == (fedavg.simulated_s, fedavg.final.mean)


@pytest.mark.parametrize(("name", "params", "others", "changes"), _cases(LOCAL))
def test_it_is_local(name: str, params: Params, others: Params, changes: Params, world: Any) -> None:
    one = world.run(world.algorithm(name, **params), **changes)
    local = world.run(world.algorithm("local", **others), **changes)
    assert _digests(one, "personal", "global") == _digests(local, "personal")
    assert one.final.mean == local.final.mean


@pytest.mark.parametrize("changes", [*WAYS, LOST])
@pytest.mark.parametrize(("name", "params", "work"), NAMED)
def test_own_models_are_those_of_local(
    name: str, params: Params, work: Params, changes: Params, world: Any
) -> None:
    one = world.run(world.algorithm(name, **params), **changes)
    local = world.run(world.local(**work), **changes)
    assert _digests(one, "personal") == _digests(local, "personal")
    assert one.final.mean == local.final.mean
