"""What a path of a scenario leads to: its table in the schema, and its value where that is valid by itself.

Rules between tables read single values, so that a fault hides only what depends on the value that is wrong.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from fedsim.errors import Fault
from fedsim.fleet.distributions import Choice as AnyOf
from fedsim.fleet.distributions import Distribution, LogNormal, Normal, Uniform
from fedsim.scenario import toml
from fedsim.scenario.choices import Choice
from fedsim.scenario.schema import Scenario

Path = tuple[str | int, ...]
"""Keys, and numbers of entries, from the whole document on."""

Shape = Any
"""A type annotation."""

_DISTRIBUTIONS: tuple[type[BaseModel], ...] = (LogNormal, Uniform, Normal, AnyOf)


class NotValidError(Exception):
    """A value that has a fault, or lies in something that has: nothing can be said about it."""


class Values:
    """What is valid in a document.

    Args:
        document: As it was read, or a whole scenario.
        faults: Those that are known of it.
    """

    def __init__(self, document: Mapping[str, Any] | Scenario, faults: Sequence[Fault] = ()) -> None:
        self._document = document
        self._faulty = [fault.path for fault in faults]

    def at(self, *path: str | int) -> Any:
        """Return a value, or its default where it is left out.

        Raises:
            NotValidError: It has a fault.
        """
        here = toml.path(*path)
        if any(f"{place}.".startswith(f"{here}.") for place in self._faulty):
            raise NotValidError(here)
        try:
            return reduce(_child, path, self._document)
        except KeyError:
            return self._default(path)
        except (IndexError, TypeError):
            raise NotValidError(here) from None

    def given(self, *paths: Path) -> Iterator[tuple[Path, Any]]:
        """Yield those of the paths whose values are valid and not their defaults, and these values."""
        for path in paths:
            try:
                value = self.at(*path)
            except NotValidError:
                continue
            if value != self._default(path):
                yield path, value

    def names(self, *path: str | int) -> Sequence[str | int]:
        """Return the keys of a table, or the numbers of a list's entries, whether these are valid or not.

        Raises:
            NotValidError: It is neither, or too short.
        """
        here = toml.path(*path)
        if here in self._faulty:
            raise NotValidError(here)
        try:
            item: Any = reduce(_child, path, self._document)
        except KeyError:
            return ()
        except (IndexError, TypeError):
            raise NotValidError(here) from None
        return list(item) if isinstance(item, Mapping) else range(len(item))

    def _default(self, path: Path) -> Any:
        field = field_at(self._document, path)
        if field is None or field.is_required():
            raise NotValidError(toml.path(*path))
        return field.get_default(call_default_factory=False)


def table_at(document: Any, loc: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the class of the table that a path leads to.

    Args:
        document: As it was read, or a whole scenario.
        loc: The path, as pydantic gives it.
    """
    shape: Shape = Scenario
    item = document
    for name in loc:
        shape = _narrow(shape, item)
        given = item if isinstance(item, Mapping) else ()
        if _is_table(shape) and name not in shape.model_fields and name not in given:
            # Not a key, but the branch of a union that pydantic followed.
            continue
        shape, item = _step(shape, item, name)
        if shape is None:
            return None
    shape = _narrow(shape, item)
    return shape if _is_table(shape) else None


def field_at(document: Any, loc: Sequence[str | int]) -> FieldInfo | None:
    """Return the field that a path leads to, if it is the field of a table."""
    table = table_at(document, loc[:-1])
    return table.model_fields.get(str(loc[-1])) if table and loc else None


def _child(item: Any, name: str | int) -> Any:
    if isinstance(item, BaseModel):
        return getattr(item, str(name))
    if isinstance(item, Mapping | list | tuple):
        return item[name]  # type: ignore[index]
    raise TypeError(f"nothing lies below a {type(item).__name__}")


def _step(shape: Shape, item: Any, name: str | int) -> tuple[Shape, Any]:
    """Return type and value one step further; None for a type that is not known, and for no value."""
    try:
        child = _child(item, name)
    except (LookupError, TypeError):
        child = None
    origin: Any = get_origin(shape)
    if origin in (tuple, list):
        return get_args(shape)[0], child
    if origin is dict:
        # The label of a model is its name unless it says otherwise, and so is that of [algorithms.<name>].
        return get_args(shape)[1], {"name": name, **child} if isinstance(child, Mapping) else child
    if not _is_table(shape):
        return None, child
    if name == "params" and issubclass(shape, Choice):
        return _params(shape, item), child
    field = shape.model_fields.get(str(name))
    return field.annotation if field else None, child


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
        if field and named in get_args(field.annotation):
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
