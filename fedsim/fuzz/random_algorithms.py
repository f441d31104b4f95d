"""Algorithms of random scenarios, and their parameters, drawn from the types of their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from fedsim.errors import Fault, UserError
from fedsim.fuzz.dice import Dice, Table
from fedsim.scenario.choices import ALGORITHM

ALGORITHMS = tuple(ALGORITHM.names)
BY_STEPS = ("fedasync", "fedbuff")
"""Algorithms that discount steps of stale replies; the others but ``local`` take weighted means."""
AT_SERVER: Table = {"server_steps": 2, "server_batch_size": 6}
DISTILLED: Table = {"lambdas": [0.0, 0.5], "temperatures": [2.0], "distill_epochs": 1}
SHORT: dict[str, Table] = {
    **dict.fromkeys(("feddf", "fedet", "pfeddf"), AT_SERVER),
    **dict.fromkeys(("persfl", "persfl_gd"), DISTILLED),
    "fedgkt": {"cut": -1, "server_epochs": 2},
    "fedme": {"clusters": [1, 2], "raise_at": [0.5]},
    "pfedhn": {"hidden": 3, "embedding": 2},
    "pfedme": {"inner_steps": 2},
}
"""Parameters with which runs are short, or fit the small nets."""
NOT_DRAWN = {"cut", "server_cut", "drop_worst", "pretrain_public", "eta"}
"""Options whose values depend on the nets, on labels of the public set, or on the learning rate."""


def plugin_of(algorithm: str) -> Any:
    """Return the class of an algorithm, by its name or its dotted path.

    Raises:
        UserError: There is none.
    """
    try:
        return ALGORITHM.find(algorithm)
    except PydanticCustomError as error:
        raise UserError(str(Fault("--algorithm", **(error.context or {})))) from None


def has_any_net(algorithm: str) -> bool:
    """Whether an algorithm's clients may have any of the small nets."""
    return plugin_of(algorithm).mixed_architectures and algorithm not in ("fedgkt", "fedper")


def params_of(dice: Dice, algorithm: str, labels: Sequence[str]) -> Table:
    """Return an algorithm's parameters: some options that its settings accept; ``labels``: architectures."""
    config = plugin_of(algorithm).Config
    params = dict(SHORT.get(algorithm, {}))
    for name, field in config.model_fields.items():
        values = [list(labels)] if name == "candidates" else _values(field.annotation)
        if values and name not in NOT_DRAWN and dice.chance(0.3):
            drawn = params | {name: dice.pick(*values)}
            try:
                config.model_validate(drawn)
            except ValidationError:  # out of its range, or it needs another option
                continue
            params = drawn
    return params


def _values(annotation: Any) -> list[Any]:
    """Return values that an option of a type may have, if they can be told."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    simple: dict[Any, list[Any]] = {
        bool: [True, False],
        int: [0, 1, 2, 3],
        float: [0.0, 0.01, 0.1, 0.5, 1.0, 2.0],
    }
    if annotation in simple:
        return simple[annotation]
    parts = () if get_origin(annotation) in (tuple, list) else get_args(annotation)
    return [value for part in parts for value in _values(part)]
