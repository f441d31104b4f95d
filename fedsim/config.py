"""Base of every settings record: frozen, strict, unknown keys refused, each field documented."""

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Config(BaseModel):
    """Settings of one part, kept beside their owner.

    Subclasses document each field by a string below it; that text is what ``fedsim schema`` and
    ``fedsim list`` show. Quantities with a dimension use the types of :mod:`fedsim.units`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


AsTuple = BeforeValidator(_as_tuple)
"""Lets a strict tuple field accept a list, as a TOML array becomes: ``Annotated[tuple[X, ...], AsTuple]``."""
