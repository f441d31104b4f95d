"""Each option of each algorithm changes a small run; values follow from its type, or from the table."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from fedsim.algorithms.base import Algorithm
from fedsim.models import Architecture
from fedsim.models.mlp import PLUGIN as MLP
from fedsim.plugins import available
from fedsim.task import Task

PLUGINS: dict[str, type[Algorithm[Any, Any, Any]]] = {
    found.name: found.plugin  # type: ignore[misc]
    for found in available("fedsim.algorithms")
}
UNSET: Any = object()


@dataclass(frozen=True)
class Tried:
    """What is tried of one option."""

    values: tuple[Any, ...]  # each gives another result than the usual value
    usual: Any = UNSET  # the default if unset
    beside: Mapping[str, Any] = field(default_factory=dict)  # other options of the run
    run: Mapping[str, Any] = field(default_factory=dict)  # changes to the small world
    shows: Literal["models", "traffic"] = "models"
    alike: bool = False  # the values may have one result, since they have one gradient


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
CO_PERSONAL: Table = {
    "theta_sq": _tried(True, temperature=3.0),
    "public_per_round": _tried(20, "all", usual=10),
    "ramp_epochs": _tried(True, run={"training": {"epochs": 2}}),
}
FEDDF: Table = {
    "ensemble": _tried("probs", "losses", alike=True),
    # Adam hardly feels a clip that all steps exceed alike.
    "server_clip": _tried(0.001),
    "distill_idle": _tried(False, run={**MIXED, "clients_per_round": 1}),
    # Models that have hardly been trained, so that some are no better than chance.
    "drop_worst": _tried(True, run={"training": {"lr": 1e-3}, "num_samples": 400, "seed": 1}),
}
DISTILLING: Table = {
    "lambdas": _tried((0.5,), (1.0,)),
    "temperatures": _tried((9.0,), (1.0, 5.0)),
    # With so high a rate the last model is not the best for everybody.
    "teacher": _tried("final", run={"rounds": 5, "training": {"epochs": 4, "lr": 1.0}}),
}
CHOOSING: Table = {"choose_on": _tried("val", run={"rounds": 3, "seed": 1})}

TABLES: dict[str, Table] = {
    "apfl": {"weighting": _tried("samples", mix_with="server")},
    "centralized": {"upload": _tried(True, shows="traffic"), "finetune_epochs": _tried(0, 3, finetune=True)},
    "dsfl": {"public_per_round": _tried(20, None, usual=10), "kd_batch_size": _tried(20)},
    "fedamp": {"alpha_decay": _tried(0.1, alpha=1.0, run={"rounds": 31, "training": {"steps": 1}})},
    "fedavgm": {"momentum": _tried(0.0, run={"rounds": 2})},
    "fedbuff": {"momentum": _tried(0.9, run={"rounds": 2})},
    "feddf": FEDDF,
    "fedfomo": {
        "offers": _tried(0, 1, run={"rounds": 4}),
        "epsilon": _tried(0.0, 1.0, offers=1, run={"rounds": 4, "num_clients": 8}),
        "epsilon_decay": _tried(0.0, epsilon=1.0, usual=1.0, offers=1, run={"rounds": 4, "num_clients": 8}),
    },
    "fedgkt": {"cut": _tried(3, run=DEEP), "server_cut": _tried(3, run=DEEP)},
    "fedmd": {"exchange": _tried("probs", digest="kl")},
    "fedme": {
        "mt": _tried(False, mc=False, run=MIXED),
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
    },
    "hypcluster": {
        **CHOOSING,
        "start_clients": _tried(2, start="kmeans", run={"seed": 1}),
        "finetune_epochs": _tried(0, 3, "chosen"),
    },
    "ifca": {
        **CHOOSING,
        "server_lr": _tried(0.01, option="grad_avg"),
        "restart_rounds": _tried(1, clusters=2, run={"clients_per_round": 2, "seed": 1}),
    },
    "ktpfl": CO_PERSONAL,
    "ktpfl_w": {
        "mixing": _tried("similarity", "topk", run={"rounds": 3}),
        "neighbours": _tried(2, mixing="topk"),
        "pull_epochs": _tried(0, 2, usual=1, pull_lr=0.1),
        "pull_lr": _tried(0.2, usual=0.1, pull_epochs=1),
    },
    "local": {"follow_selection": _tried(True, run={"clients_per_round": 2})},
    "mapper": {"lambdas": _tried((0.0,), (0.1, 0.9))},
    "moon": {"buffer": _tried(2, run={"rounds": 3})},
    "perfedavg": {"delta": _tried(1.0, variant="hf")},
    "persfl": DISTILLING,
    "persfl_gd": DISTILLING,
    "pfeddf": FEDDF,
    "pfedhn": {"server_clip": _tried(0.01), "client_clip": _tried(0.01)},
    "pfedme": {"all_train": _tried(True, run={"clients_per_round": 2})},
    "scaffold": {"option": _tried("I", run={"rounds": 2})},
    "sim_pfd": CO_PERSONAL,
    "topk_pfd": {**CO_PERSONAL, "neighbours": _tried(1, 3)},
}
SHORT: dict[str, Any] = {"lambdas": (0.5,), "temperatures": (5.0,), "distill_epochs": 2}
BESIDE: dict[str, dict[str, Any]] = {
    "fedavg_ft": {"finetune_epochs": 1},
    "feddf": {"server_steps": 10},
    "fedet": {"server_steps": 10},
    "fedgkt": {"server_epochs": 3},
    "fedme": {"finetune_epochs": 1},
    "persfl": SHORT,
    "persfl_gd": SHORT,
    "pfeddf": {"server_steps": 10, "finetune_epochs": 1},
}
"""Options that make runs shorter, unless it is they that are tried."""
ROUNDS = {"fedamp": 2, "fedgkt": 2, "ktpfl": 2, "ktpfl_w": 2, "moon": 2, "perfed_ckt": 2, "pfedhn": 2}
"""How many it takes until most options show, where one does not do: what the first merges is used then."""


LENGTHY = {"fedamp", "feddf", "fedgkt", "fedme", "persfl", "pfedhn"}
"""Runs of these are long: their options are tried, each with every value, by slow tests alone."""
EVERY = [(name, option) for name, plugin in PLUGINS.items() for option in plugin.Config.model_fields]


def _first_of_their_kind() -> list[tuple[str, str]]:
    """Return one algorithm for each option: of those that inherit an option, the first."""
    first: dict[tuple[type, str], tuple[str, str]] = {}
    for name, option in EVERY:
        owners = [one for one in PLUGINS[name].Config.__mro__ if option in inspect.get_annotations(one)]
        first.setdefault((owners[-1], option), (name, option))
    return list(first.values())


def _choices(annotation: Any) -> set[Any]:
    """Return what a type names one by one: the values of its literals, and of booleans both."""
    if annotation is bool:
        return {True, False}
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {choice for part in get_args(annotation) for choice in _choices(part)}


def _tried_of(name: str, option: str) -> Tried:
    """Return what the table has of an option, or what follows from its type."""
    if tried := TABLES.get(name, {}).get(option):
        return tried
    config = PLUGINS[name].Config
    info = config.model_fields[option]
    if choices := _choices(info.annotation) - {info.default}:
        return Tried(tuple(sorted(choices, key=repr)))
    match info.default:
        case float(default):
            numbers: list[Any] = [default / 2, 0.5, 0.01]
        case int(default):
            numbers = [default + 1 if default <= 16 else 8]
        case _:  # unless it is given, something else decides
            numbers = [0.01, 8]
    for number in numbers:
        try:
            config(**{option: number})
        except ValidationError:
            continue
        if number != info.default:
            return Tried((number,))
    raise AssertionError(f"{name}: the table needs values to try for {option}")


@pytest.mark.parametrize("name", TABLES)
def test_the_table_has_options_with_all_their_choices(name: str) -> None:
    fields = PLUGINS[name].Config.model_fields
    for option, tried in TABLES[name].items():
        usual = fields[option].default if tried.usual is UNSET else tried.usual
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
    tried = _tried_of(name, option)
    beside = {other: value for other, value in BESIDE.get(name, {}).items() if other != option}
    usual: list[dict[str, Any]] = [{}] if tried.usual is UNSET else [{option: tried.usual}]
    found: list[Any] = []
    values = tried.values if every_value else tried.values[:1]
    for change in (*usual, *({option: value} for value in values)):
        params = {**beside, **tried.beside, **change}
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
