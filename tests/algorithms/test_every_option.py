"""No option of any algorithm is accepted and ignored: each changes what comes out of a small run.

The table names, for every option of every plugin, values to try beside its usual one. An option that is not
in the table fails, and so does one whose choices are not all in it; so does a plugin without a table.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

import pytest

from fedsim.algorithms.base import Algorithm
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.plugins import available
from fedsim.task import Task

FOUND = available("fedsim.algorithms")
UNSET: Any = object()


@dataclass(frozen=True)
class Tried:
    """What is tried of one option.

    Attributes:
        values: Each gives another result than the usual value, and than the others unless they are alike.
        usual: What they are compared with; the default if left out.
        beside: Other options, where the one at hand needs them or where they make the run shorter.
        run: Changes to the small world.
        shows: Where the difference shows: in the models, or only in what travels.
        alike: The values differ from the usual one alone: they have one gradient by their nature.
    """

    values: tuple[Any, ...]
    usual: Any = UNSET
    beside: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    shows: Literal["models", "traffic"] = "models"
    alike: bool = False


def _tried(
    *values: Any,
    usual: Any = UNSET,
    run: Mapping[str, Any] = {},
    shows: Literal["models", "traffic"] = "models",
    alike: bool = False,
    **beside: Any,
) -> Tried:
    return Tried(values, usual, beside, run, shows, alike)


Table = dict[str, Tried]

MIXED = {"models": ("mlp", "linear")}
DEEP = {"architectures": {"mlp": Architecture("mlp", MLP(MLP.Config(hidden=(16, 16))), Task((64,), 10))}}
WEIGHTING: Table = {"weighting": _tried("uniform")}
TUNING: Table = {"finetune_epochs": _tried(0, 3)}
OWN_START: Table = {"same_start": _tried(False)}


def _beside(table: Table, **beside: Any) -> Table:
    """Return a table with other options set throughout, unless it is they that are tried."""
    return {
        name: replace(
            tried,
            beside={**{other: value for other, value in beside.items() if other != name}, **tried.beside},
        )
        for name, tried in table.items()
    }


CO_PERSONAL: Table = {
    **OWN_START,
    "order": _tried("distill_first"),
    "temperature": _tried(3.0),
    "theta_sq": _tried(True, temperature=3.0),
    "distill_epochs": _tried(0, 3),
    "distill_batch_size": _tried(8),
    "distill_lr": _tried(0.01),
    "public_per_round": _tried(20, "all", usual=10),
    "replacement": _tried(True),
    "ramp_epochs": _tried(True, run={"training": {"epochs": 2}}),
}
COEFFICIENTS: Table = {
    "lam": _tried(3.0),
    "rho": _tried(7.0),
    "c_lr": _tried(0.1),
    "c_step": _tried("explicit"),
    "c_weighting": _tried("data"),
    "c_norm": _tried("softmax5"),
}
FEDDF: Table = {
    **WEIGHTING,
    "ensemble": _tried("probs", "losses", alike=True),
    "server_steps": _tried(0, 3),
    "server_lr": _tried(0.01),
    "server_batch_size": _tried(8),
    "server_clip": _tried(0.01),
    "distill_idle": _tried(False, run={**MIXED, "clients_per_round": 1}),
    # Models that have hardly been trained, so that some are no better than chance.
    "drop_worst": _tried(True, run={"training": {"lr": 1e-3}, "num_samples": 400}),
}
DISTILLING: Table = {
    **WEIGHTING,
    "lambdas": _tried((0.5,), (1.0,)),
    "temperatures": _tried((9.0,), (1.0, 5.0)),
    "distill_epochs": _tried(0, 1),
    "distill_lr": _tried(0.01),
    # With so high a rate the last model is not the best for everybody.
    "teacher": _tried("final", run={"rounds": 5, "training": {"epochs": 4, "lr": 0.5}}),
}
SERVER_OPTIMISER: Table = {**WEIGHTING, "server_lr": _tried(0.01)}
ADAPTIVE: Table = {
    **SERVER_OPTIMISER,
    "beta1": _tried(0.0),
    "beta2": _tried(0.5),
    "epsilon": _tried(0.1),
}
SHORT: dict[str, Any] = {"lambdas": (0.5,), "temperatures": (5.0,), "distill_epochs": 2}

TABLES: dict[str, Table] = {
    "apfl": {
        "weighting": _tried("samples", mix_with="server"),
        "alpha": _tried(0.0, 0.9),
        "adapt": _tried("never", "step"),
        "alpha_lr": _tried(0.01),
        "alpha_decay": _tried(0.02),
        "mix_with": _tried("server"),
    },
    "centralized": {
        "upload": _tried(True, shows="traffic"),
        "finetune": _tried(True),
        "finetune_epochs": _tried(0, 3, finetune=True),
    },
    "ditto": {**WEIGHTING, "lam": _tried(0.0, 2.0), "personal_epochs": _tried(2)},
    "dsfl": {
        **OWN_START,
        "aggregation": _tried("sa"),
        "era_temperature": _tried(0.5),
        "public_per_round": _tried(20, None, usual=10),
        "kd_epochs": _tried(0, 1),
        "kd_lr": _tried(0.01),
        "kd_batch_size": _tried(20),
    },
    "fedadagrad": {**SERVER_OPTIMISER, "beta1": _tried(0.9), "epsilon": _tried(0.1)},
    "fedadam": ADAPTIVE,
    "fedamp": {
        "lam": _tried(0.0, 0.3),
        "alpha": _tried(0.01, 1.0),
        "alpha_decay": _tried(0.1, alpha=1.0, run={"rounds": 31, "training": {"steps": 1}}),
        "sigma": _tried(1.0, 10.0),
        "heur": _tried(True),
        "start": _tried("mixture"),
    },
    "fedasync": {"alpha": _tried(0.0, 1.0), "rho": _tried(0.0, 1.0)},
    "fedavg": WEIGHTING,
    "fedavg_ft": _beside({**WEIGHTING, **TUNING}, finetune_epochs=1),
    "fedavgm": {
        **SERVER_OPTIMISER,
        "momentum": _tried(0.0, run={"rounds": 2}),
        "nesterov": _tried(True),
    },
    "fedbuff": {"server_lr": _tried(0.5), "momentum": _tried(0.9, run={"rounds": 2})},
    "feddf": _beside(FEDDF, server_steps=10),
    "fedet": _beside(
        {
            "server_steps": _tried(0, 3),
            "server_batch_size": _tried(8),
            "server_lr": _tried(0.01),
            "lam": _tried(0.0, 0.5),
            "div_normalise": _tried(True),
        },
        server_steps=10,
    ),
    "fedfomo": {
        "offers": _tried(0, 1, run={"rounds": 4}),
        "epsilon": _tried(0.0, 1.0, offers=1, run={"rounds": 4, "num_clients": 8}),
        "epsilon_decay": _tried(0.0, epsilon=1.0, usual=1.0, offers=1, run={"rounds": 4, "num_clients": 8}),
    },
    "fedgems": {
        **OWN_START,
        "epsilon": _tried(0.0, 1.0),
        "public_epochs": _tried(0, 2),
        "server_epochs": _tried(0, 2),
        "server_lr": _tried(0.01),
    },
    "fedgkt": _beside(
        {
            "cut": _tried(3, run=DEEP),
            "server_cut": _tried(3, run=DEEP),
            "temperature": _tried(1.0),
            "alpha": _tried(0.0, 2.0),
            "server_kd": _tried(False),
            "server_epochs": _tried(1),
            "server_lr": _tried(0.01),
        },
        server_epochs=3,
    ),
    "fedmd": {
        **OWN_START,
        "public_per_round": _tried(10),
        "pretrain_epochs": _tried(0, 2),
        "pretrain_public": _tried(True),
        "order": _tried("train_first"),
        "exchange": _tried("probs", digest="kl"),
        "digest": _tried("mse", "kl"),
        "digest_epochs": _tried(0, 3),
        "digest_batch_size": _tried(8),
        "digest_lr": _tried(0.01),
    },
    "fedme": _beside(
        {
            **OWN_START,
            "mt": _tried(False, mc=False, run=MIXED),
            "dml": _tried(False),
            "mc": _tried(False, clusters=(2,), raise_at=(), run=MIXED),
            "clusters": _tried((2, 2, 2, 2), run={**MIXED, "rounds": 3}),
            "raise_at": _tried((0.1, 0.2, 0.9), run={**MIXED, "rounds": 3}),
            "tune_on": _tried(
                "train", mc=False, run={**MIXED, "rounds": 2, "training": {"lr": 0.3, "epochs": 5}}
            ),
            "candidates": _tried(("linear",)),
            "candidate_epochs": _tried(3, candidates=("linear", "mlp"), start_trained=True),
            "start_trained": _tried(True, candidates=("linear",)),
            "literal_upload": _tried(True, shows="traffic", run={"rounds": 2}),
            **TUNING,
        },
        finetune_epochs=1,
    ),
    "fedper": {**WEIGHTING, "personal_layers": _tried(0, 2)},
    "fedprox": {**WEIGHTING, "mu": _tried(0.0, 1.0), "gamma": _tried(0.2)},
    "fedyogi": ADAPTIVE,
    "fml": {
        **OWN_START,
        "weighting": _tried("samples"),
        "alpha": _tried(0.0, 1.0),
        "beta": _tried(0.0, 1.0),
        "clip": _tried(0.1),
    },
    "hypcluster": {
        **WEIGHTING,
        "clusters": _tried(1, 3),
        "choose_on": _tried("val", run={"rounds": 3}),
        "start": _tried("kmeans"),
        "start_clients": _tried(2, start="kmeans"),
        "finetune_epochs": _tried(0, 3, "chosen"),
    },
    "ifca": {
        "clusters": _tried(1, 2),
        "choose_on": _tried("val", run={"rounds": 3}),
        "option": _tried("grad_avg"),
        "server_lr": _tried(0.01, option="grad_avg"),
        "shared_base": _tried(True),
        "restart_rounds": _tried(1, clusters=2, run={"clients_per_round": 2}),
    },
    "ktpfl": {**CO_PERSONAL, **COEFFICIENTS, "c_batch_size": _tried(8)},
    "ktpfl_w": {
        **COEFFICIENTS,
        "mixing": _tried("similarity", "topk", run={"rounds": 3}),
        "c_steps": _tried(0, 3),
        "neighbours": _tried(2, mixing="topk"),
        "pull": _tried(0.0, 0.5),
        "pull_epochs": _tried(0, 2, usual=1, pull_lr=0.1),
        "pull_lr": _tried(0.2, usual=0.1, pull_epochs=1),
    },
    "l2sgd": {"probability": _tried(0.5, 0.9), "pull": _tried(0.0, 1.0)},
    "local": {**OWN_START, "follow_selection": _tried(True, run={"clients_per_round": 2})},
    "mapper": {
        **WEIGHTING,
        "lambdas": _tried((0.0,), (0.1, 0.9)),
        "global_steps": _tried(0, 3),
        "mix": _tried("outputs"),
    },
    "moon": {
        **WEIGHTING,
        "mu": _tried(0.0, 5.0),
        "temperature": _tried(0.1),
        "buffer": _tried(2, run={"rounds": 3}),
    },
    "perfed_ckt": {
        **OWN_START,
        "clusters": _tried(1, 2),
        "lam": _tried(0.0, 0.1),
        "public_batch_size": _tried(8),
        "public_size": _tried(20),
    },
    "perfedavg": {
        "weighting": _tried("samples"),
        "variant": _tried("hf"),
        "alpha": _tried(0.0, 0.1),
        "beta": _tried(0.01),
        "delta": _tried(1.0, variant="hf"),
        "adapt_steps": _tried(0, 3),
    },
    "persfl": _beside(
        {**DISTILLING, "kl_direction": _tried("reverse"), "kl_reduction": _tried("mean")}, **SHORT
    ),
    "persfl_gd": _beside(DISTILLING, **SHORT),
    "pfeddf": _beside({**FEDDF, **TUNING}, server_steps=10, finetune_epochs=1),
    "pfedhn": {
        "embedding": _tried(5),
        "hidden": _tried(20),
        "hidden_layers": _tried(0, 1),
        "updates": _tried("each"),
        "server_lr": _tried(0.1),
        "momentum": _tried(0.0),
        "weight_decay": _tried(0.1),
        "server_clip": _tried(0.01),
        "client_clip": _tried(0.01),
    },
    "pfedme": {
        **WEIGHTING,
        "lam": _tried(0.0, 5.0),
        "eta": _tried(0.05),
        "inner_steps": _tried(1),
        "beta": _tried(2.0),
        "all_train": _tried(True, run={"clients_per_round": 2}),
    },
    "scaffold": {
        "option": _tried("I", run={"rounds": 2}),
        "server_lr": _tried(0.5),
    },
    "sim_pfd": {**CO_PERSONAL, "norm": _tried("sum")},
    "topk_pfd": {**CO_PERSONAL, "neighbours": _tried(1, 3), "half": _tried(True)},
}
ROUNDS = {
    "fedamp": 2,
    "fedgkt": 2,
    "ktpfl": 2,
    "ktpfl_w": 2,
    "moon": 2,
    "perfed_ckt": 2,
    "pfedhn": 2,
}
"""How many it takes until most options show, where one does not do: what the first merges is used then."""


def _plugin(name: str) -> type[Algorithm[Any, Any, Any]]:
    (plugin,) = (found.plugin for found in FOUND if found.name == name)
    assert issubclass(plugin, Algorithm)
    return plugin


LENGTHY = {"fedamp", "feddf", "fedgkt", "fedme", "persfl", "pfedhn"}
"""Runs of these are long: their options are tried, each with every value, by slow tests alone."""
EVERY = [(name, option) for name, table in TABLES.items() for option in table]


def _first_of_their_kind() -> list[tuple[str, str]]:
    """Return one algorithm for each option: of those that inherit an option, the first."""
    first: dict[tuple[type, str], tuple[str, str]] = {}
    for name, option in EVERY:
        owners = [one for one in _plugin(name).Config.__mro__ if option in inspect.get_annotations(one)]
        first.setdefault((owners[-1], option), (name, option))
    return list(first.values())


def _choices(annotation: Any) -> set[Any]:
    """Return what a type names one by one: the values of its literals, and of booleans both."""
    if annotation is bool:
        return {True, False}
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {choice for part in get_args(annotation) for choice in _choices(part)}


@pytest.mark.parametrize("name", [found.name for found in FOUND])
def test_the_table_has_every_option_with_all_its_choices(name: str) -> None:
    fields = _plugin(name).Config.model_fields
    table = TABLES[name]
    assert table.keys() == fields.keys()
    for option, tried in table.items():
        usual = fields[option].default if tried.usual is UNSET else tried.usual
        assert tried.values, f"{option}: no value to try"
        assert _choices(fields[option].annotation) <= {usual, *tried.values}, option


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """Results of runs, some of which serve several options."""
    return {}


@pytest.mark.parametrize(
    ("name", "option", "every_value"),
    [
        *((*one, False) for one in _first_of_their_kind() if one[0] not in LENGTHY),
        *(pytest.param(*one, True, marks=pytest.mark.slow) for one in EVERY),
    ],
)
def test_every_option_makes_a_difference(
    name: str, option: str, every_value: bool, world: Any, known: dict[str, Any]
) -> None:
    tried = TABLES[name][option]
    usual: list[dict[str, Any]] = [{}] if tried.usual is UNSET else [{option: tried.usual}]
    found: list[Any] = []
    values = tried.values if every_value else tried.values[:1]
    for change in (*usual, *({option: value} for value in values)):
        params = {**tried.beside, **change}
        key = repr((name, every_value, sorted(params.items()), sorted(tried.run.items())))
        if key not in known:
            known[key] = world.run(
                world.algorithm(name, **params),
                **{"rounds": ROUNDS.get(name, 1), "verify": every_value, **tried.run},
            )
        result = known[key]
        found.append(result.model_hash if tried.shows == "models" else result.totals)
    assert found[0] not in found[1:], f"{option}: a value has the result of the usual one"
    assert tried.alike or len(set(found)) == len(found), f"{option}: two values have the same result"


RANGE = "greater than|less than"
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "apfl": [
        ({"alpha": 1.5}, RANGE),
        ({"adapt": "never", "alpha_lr": 0.1}, "leave them out"),
        ({"adapt": "never", "alpha_decay": 0.02}, "leave them out"),
    ],
    "centralized": [({"finetune_epochs": 2}, "add finetune = true")],
    "ditto": [({"lam": -0.1}, RANGE), ({"personal_epochs": 0}, RANGE)],
    "fedamp": [
        ({"heur": True, "lam": 1.0}, "give both or neither"),
        ({"heur": True, "alpha": 1.0}, "give both or neither"),
        ({"alpha_decay": 0.1}, "give alpha as well"),
    ],
    "fedasync": [({"alpha": -0.1}, RANGE), ({"alpha": 1.1}, RANGE), ({"rho": -1.0}, RANGE)],
    "fedavg": [({"weighting": wrong}, "'samples' or 'uniform'") for wrong in ("size", "", None)],
    "fedbuff": [({"server_lr": 0.0}, RANGE), ({"momentum": 1.0}, RANGE), ({"momentum": -0.1}, RANGE)],
    "fedet": [
        ({"server_steps": -1}, RANGE),
        ({"server_batch_size": 0}, RANGE),
        ({"server_lr": 0.0}, RANGE),
        ({"lam": -0.1}, RANGE),
    ],
    "fedgkt": [({"cut": 0}, "below a cut at 0")],
    "fedmd": [
        ({"pretrain_epochs": 0, "pretrain_public": True}, "give pretrain_epochs of at least 1"),
        ({"exchange": "probs"}, "write digest = 'kl'"),
    ],
    "fedme": [
        ({"clusters": []}, "at least 1"),
        ({"clusters": [1, 2]}, "give one for each number but the first"),
        ({"raise_at": [0.5, 0.9, 0.75]}, "ascending"),
        ({"raise_at": [0.5, 0.9, 75]}, "ascending shares"),
        ({"raise_at": [1.5, 2, 3]}, "whole number"),
        ({"raise_at": [0.0, 0.5, 0.9]}, RANGE),
        ({"candidates": ["a", "a"]}, "each candidate once"),
        ({"candidate_epochs": 0}, RANGE),
        ({"finetune_epochs": -1}, RANGE),
        ({"start_trained": True}, "name candidates"),
        ({"tune_on": "test"}, "'validation' or 'train'"),
    ],
    "fedprox": [({"mu": -0.1}, RANGE), ({"gamma": 0.0}, RANGE), ({"gamma": 1.5}, RANGE)],
    "fml": [({"alpha": 1.1}, RANGE), ({"beta": -0.1}, RANGE), ({"clip": 0.0}, RANGE)],
    "hypcluster": [
        ({"start_clients": 3}, "start_clients belongs to start = 'kmeans'"),
        (
            {"clusters": 3, "start": "kmeans", "start_clients": 2},
            "start_clients = 2 for 3 clusters: give at least as many",
        ),
    ],
    "ifca": [({"server_lr": 0.1}, "belongs to option = 'grad_avg'")],
    "ktpfl": [
        ({"rho": -1.0}, RANGE),
        ({"c_lr": -0.1}, RANGE),
        ({"lam": -1.0}, RANGE),
        ({"c_step": "euler"}, "c_step"),
    ],
    "ktpfl_w": [
        ({"pull": 0.5, "pull_epochs": 1, "pull_lr": 0.1}, "both say how far"),
        ({"pull_epochs": 1}, "belong together"),
        ({"pull_lr": 0.1}, "belong together"),
        ({"pull_epochs": 1, "pull_lr": 0.6}, r"less than or equal to 0\.5"),
        ({"neighbours": 3}, "neighbours = 3 belongs to mixing = 'topk', and mixing is 'learned'"),
        ({"mixing": "similarity", "rho": 0.1}, "rho = 0.1 belongs to mixing = 'learned'"),
        ({"mixing": "topk", "c_steps": 3}, "c_steps = 3 belongs to mixing = 'learned'"),
    ],
    "l2sgd": [({"probability": 0.0}, RANGE), ({"probability": 1.0}, RANGE), ({"pull": -0.1}, RANGE)],
    "mapper": [
        ({"lambdas": ()}, "at least 1"),
        ({"lambdas": (0.5, 0.25)}, "ascending"),
        ({"lambdas": (1.5,)}, RANGE),
    ],
    "perfedavg": [({"delta": 0.1}, "belongs to variant = 'hf'")],
    "persfl": [
        ({"lambdas": []}, "at least 1"),
        ({"lambdas": [0.5, 0.25]}, "ascending"),
        ({"lambdas": [0.5, 1.5]}, RANGE),
        ({"temperatures": [5.0, 5.0]}, "each once"),
        ({"temperatures": [0.0]}, "greater than or equal to 0.000001"),
        ({"distill_epochs": -1}, RANGE),
        ({"teacher": "first"}, "'best' or 'final'"),
    ],
    "persfl_gd": [({"kl_direction": "reverse"}, "kl_direction")],
    "pfedme": [({"eta": 0.1}, r"eta \* lam = 1.5 .* lower eta to 0.0666667")],
    "sim_pfd": [({"norm": "softmax"}, "'minmax' or 'sum'")],
    "topk_pfd": [
        ({"half": True, "neighbours": 3}, "half = true and neighbours = 3"),
        ({"neighbours": 0}, RANGE),
    ],
}
"""Parameters that an algorithm refuses, and what it says."""


@pytest.mark.parametrize(
    ("name", "params", "says"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_values_that_cannot_be_are_refused(name: str, params: dict[str, Any], says: str, world: Any) -> None:
    with pytest.raises(ValueError, match=says):
        world.algorithm(name, **params)
