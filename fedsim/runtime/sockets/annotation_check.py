"""Whether a value suits an annotation: what decoded states are checked against, since their sender may lie.

An annotation that is not known here, such as a protocol, takes any value.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np


@cache
def hints_of(cls: type) -> Mapping[str, Any]:
    """Return the annotations of a class by name; none where they cannot be resolved."""
    try:
        return get_type_hints(cls)
    except NameError:
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Say whether a value is what an annotation asks for; integers and NumPy's numbers are numbers too."""
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or fits(value, hint.__bound__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _has_dtype(value, arguments[1])
    if origin is tuple:
        return isinstance(value, tuple) and _fit_each(value, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = arguments
        return isinstance(value, Mapping) and all(
            fits(name, key) and fits(one, item) for name, one in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, tuple) and all(fits(one, arguments[0]) for one in value)
    return _is_one(value, hint) if isinstance(hint, type) else True


def _is_one(value: Any, cls: type) -> bool:
    if cls is bool:
        return isinstance(value, bool | np.bool_)
    if isinstance(value, bool):
        return cls is object
    if cls is int:
        return isinstance(value, int | np.integer)
    if cls is float:
        return isinstance(value, int | float | np.integer | np.floating)
    try:
        return isinstance(value, cls)
    except TypeError:  # a protocol that cannot be asked
        return True


def _has_dtype(array: np.ndarray[Any, Any], hint: Any) -> bool:
    (scalar,) = get_args(hint) or (Any,)
    return not (isinstance(scalar, type) and issubclass(scalar, np.generic)) or issubclass(
        array.dtype.type, scalar
    )


def _fit_each(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(one, hints[0]) for one in value)
    return len(value) == len(hints) and all(map(fits, value, hints))
