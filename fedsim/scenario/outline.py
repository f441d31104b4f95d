"""Where a place of a scenario lies in the schema: what its table is called, and which keys it takes."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from fedsim.fleet.distributions import Choice as Values
from fedsim.fleet.distributions import Distribution, LogNormal, Normal, Uniform
from fedsim.scenario.choices import Choice

_DISTRIBUTIONS: tuple[type[BaseModel], ...] = (LogNormal, Uniform, Normal, Values)

Shape = Any
"""A type annotation."""


def table_at(shape: Shape, item: Any, loc: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the class of the table that ``loc`` leads to, from a value ``item`` of type ``shape``.

    Args:
        shape: Type to begin with, such as ``Scenario``.
        item: What the file has there.
        loc: Path as pydantic gives it.
    """
    for name in loc:
        shape = _narrow(shape, item)
        given = item if isinstance(item, Mapping) else ()
        if _is_table(shape) and name not in shape.model_fields and name not in given:
            # Not a key, but the branch of a union that pydantic followed.
            continue
        shape, item = _step(shape, item, name), _child(shape, item, name)
        if shape is None:
            return None
    shape = _narrow(shape, item)
    return shape if _is_table(shape) else None


def field_at(shape: Shape, item: Any, loc: Sequence[str | int]) -> FieldInfo | None:
    """Return the field that ``loc`` leads to, if it is the field of a table."""
    table = table_at(shape, item, loc[:-1])
    return table.model_fields.get(str(loc[-1])) if table and loc else None


def _child(shape: Shape, item: Any, name: str | int) -> Any:
    if isinstance(item, Mapping):
        child = item.get(name)
        # The label of a model is its name unless it says otherwise, and so is that of [algorithms.<name>].
        origin: Any = get_origin(shape)
        return {"name": name, **child} if origin is dict and isinstance(child, Mapping) else child
    inside = isinstance(item, list) and isinstance(name, int) and name < len(item)
    return item[name] if inside else None


def _step(shape: Shape, item: Any, name: str | int) -> Shape:
    origin: Any = get_origin(shape)
    if origin in (tuple, list):
        return get_args(shape)[0]
    if origin is dict:
        return get_args(shape)[1]
    if not _is_table(shape):
        return None
    if name == "params" and issubclass(shape, Choice):
        return _params(shape, item)
    field = shape.model_fields.get(str(name))
    return field.annotation if field else None


def _params(choice: type[Choice], item: Any) -> Shape:
    default = choice.model_fields[choice.KEY].default
    name = item.get(choice.KEY, default) if isinstance(item, Mapping) else default
    try:
        return choice.KIND.find(name).Config
    except (PydanticCustomError, AttributeError):
        return None


def _narrow(shape: Shape, item: Any) -> Shape:
    """Return the one type that ``item`` must mean."""
    kinds = [kind for kind in _kinds(shape) if kind is not type(None)]
    if len(kinds) == 1:
        return kinds[0]
    named = item.get("distribution") if isinstance(item, Mapping) else None
    tables = [kind for kind in kinds if _is_table(kind)]
    for table in tables:
        field = table.model_fields.get("distribution")
        if field and get_origin(field.annotation) is Literal and named in get_args(field.annotation):
            return table
    return tables[0] if len(tables) == 1 else None


def _is_table(shape: Shape) -> bool:
    return isinstance(shape, type) and issubclass(shape, BaseModel)


def _kinds(shape: Shape) -> list[Shape]:
    if shape is Distribution:
        return list(_DISTRIBUTIONS)
    origin: Any = get_origin(shape)
    if origin is Annotated:
        return _kinds(get_args(shape)[0])
    if origin in (Union, types.UnionType):
        return [kind for part in get_args(shape) for kind in _kinds(part)]
    return [shape]
