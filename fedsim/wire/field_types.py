"""The types of fields of a message, read once from annotations.

A field type turns a value into plain msgpack and back. A scalar stays as it is. An array becomes its number
in the frame's list of arrays, and a tree a map from names to such numbers, or to further maps. Arrays are
numbered in the order of the fields, so no two frames differ in numbering alone.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from struct import pack
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array, Form, PendingTree
from fedsim.quoting import shortened
from fedsim.wire.contents import DEFAULT, NAMES, Limits, PendingArray, plain

ALLOWED = (
    "bool, int, float, str, Literal of strings, fedsim.params.Array, NDArray of a dtype that travels, "
    "fedsim.params.Tree, Mapping[str, Tree], or one of these | None"
)
MAX_LEVELS = 4
"""Levels of a tree of trees."""


class Received:
    """The arrays of a frame, handed out in order and each once."""

    __slots__ = ("_arrays", "_used", "limits")

    def __init__(self, arrays: list[Array], limits: Limits) -> None:
        self._arrays = arrays
        self._used = 0
        self.limits = limits

    def take(self, number: object, where: str) -> Array:
        """Return the next array, whose number a field must give."""
        # Booleans equal integers, and are no numbers of arrays.
        if type(number) is not int or number != self._used or number == len(self._arrays):
            raise DecodeError(
                f"{where}: {show(number)} where array {self._used} of {len(self._arrays)} comes next: "
                "each is used once, in order"
            )
        self._used += 1
        return self._arrays[number]

    def finish(self) -> None:
        """Raise ``DecodeError`` where an array is left that no field mentioned."""
        if self._used != len(self._arrays):
            raise DecodeError(f"arrays[{self._used}]: no field uses it")


class FieldType(ABC):
    """One type of field.

    Attributes:
        holds_arrays: Whether its scalars may count as parameters.
        is_tree: Whether a value is one tree of arrays, or may be None instead.
        is_of_trees: Whether it is that, or trees of trees.
        is_float32: Whether it is an array of float32.
        is_exact: Whether no value is NaN or an infinity, or holds any.
    """

    holds_arrays = False
    is_tree = False
    is_of_trees = False
    is_float32 = False
    is_exact = False

    @abstractmethod
    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        """Return plain msgpack for ``value`` and append its arrays, as they travel, to ``arrays``."""

    def encoding_key(self, value: Any) -> Hashable | None:
        """Return what an encoded value depends on beside what is pending; None where it holds arrays."""
        return None

    @abstractmethod
    def received(self, value: Any) -> Any:
        """Return what :meth:`decode` gives for an encoded value, without encoding it."""

    @abstractmethod
    def decode(self, wire: Any, received: Received, where: str) -> Any:
        """Return the value."""


class _Scalar(FieldType):
    """Values of exactly one of Python's types, as they are."""

    is_exact = True

    def __init__(self, kind: type, rule: str) -> None:
        self._kind = kind
        self._rule = rule

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        if type(value) is not self._kind:
            name = self._kind.__name__
            raise TypeError(f"{where}: {show(value)} {self._rule}: write {name}(...)")
        return value

    def encoding_key(self, value: Any) -> Hashable | None:
        return (value,) if type(value) is self._kind else None

    def received(self, value: Any) -> Any:
        return value

    def decode(self, wire: Any, received: Received, where: str) -> Any:
        if not self._allows(wire):
            raise DecodeError(f"{where}: {show(wire)} {self._rule}")
        return wire

    def _allows(self, wire: Any) -> bool:
        return type(wire) is self._kind


class _Int(_Scalar):
    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        super().encode(value, arrays, where)
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{where}: an integer beyond 64 bits cannot travel")
        return value

    def _allows(self, wire: Any) -> bool:
        return type(wire) is int and wire < 2**63


class _Float(_Scalar):
    is_exact = False

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        if isinstance(value, float):
            return float(value)
        if type(value) is not int:  # an int where a float is meant is what type checkers allow too
            super().encode(value, arrays, where)
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where}: an integer too large for a float cannot travel as one") from None

    def encoding_key(self, value: Any) -> Hashable | None:
        # By its bytes: 0.0 equals -0.0, and no NaN equals another.
        return pack("<d", value) if type(value) is float else None

    def received(self, value: Any) -> Any:
        return value if type(value) is float else float(value)


class _Str(_Scalar):
    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        size = len(super().encode(value, arrays, where).encode())
        if size > DEFAULT.string_bytes:
            raise ValueError(
                f"{where}: {size} bytes of text, a field holds at most {DEFAULT.string_bytes}: send an array"
            )
        return value


class _Choice(_Scalar):
    def __init__(self, choices: tuple[str, ...]) -> None:
        super().__init__(str, f"is none of {', '.join(map(repr, choices))}")
        self._choices = choices

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        if not self._allows(value):
            raise ValueError(f"{where}: {show(value)} {self._rule}")
        return value

    def _allows(self, wire: Any) -> bool:
        return type(wire) is str and wire in self._choices


class _Array(FieldType):
    holds_arrays = True

    def __init__(self, dtype: np.dtype[Any] | None) -> None:
        self._dtype = dtype
        self.is_float32 = dtype == np.float32

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        array = value if type(value) is PendingArray else plain(value, where)
        if self._dtype is not None and array.dtype != self._dtype:
            raise TypeError(f"{where}: an array of {array.dtype}, the declaration says {self._dtype}")
        arrays.append(array)
        return len(arrays) - 1

    def received(self, value: Any) -> Any:
        view = plain(value, "").view()
        view.flags.writeable = False
        return view

    def decode(self, wire: Any, received: Received, where: str) -> Any:
        array = received.take(wire, where)
        if self._dtype is not None and array.dtype != self._dtype:
            raise DecodeError(f"{where}: an array of {array.dtype}, not of {self._dtype}")
        return array


@lru_cache(maxsize=256)  # a form is asked about in every reply
def _travels(form: Form) -> bool:
    """Say whether frames hold arrays of these dtypes as they are."""
    return all(array.dtype in NAMES for array in form.values())


def _items(tree: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Return names and arrays of a tree, those that are pending as such."""
    if isinstance(tree, PendingTree) and tree.is_pending and _travels(tree.form):
        return [(name, PendingArray(tree, name)) for name in tree]
    return tree.items()


class _Tree(FieldType):
    holds_arrays = is_of_trees = True

    def __init__(self, item: FieldType) -> None:
        self._item = item
        self.is_tree = isinstance(item, _Array)

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"{where}: {show(value)} is not a mapping from names")
        if len(value) > DEFAULT.arrays:
            raise ValueError(f"{where}: {len(value)} names, a tree holds at most {DEFAULT.arrays}")
        wire = {}
        for name, item in _items(value):
            if type(name) is not str:
                raise TypeError(f"{where}: the name {show(name)} is not a str")
            if len(name) > DEFAULT.name_characters:
                raise ValueError(
                    f"{where}: a name of {len(name)} characters, {DEFAULT.name_characters} are allowed"
                )
            wire[name] = self._item.encode(item, arrays, f"{where}[{name!r}]")
        return wire

    def encoding_key(self, value: Any) -> Hashable | None:
        if type(value) is PendingTree:
            return value.form if value.is_pending and _travels(value.form) else None
        return () if type(value) is dict and not value else None

    def received(self, value: Any) -> Any:
        if type(value) is PendingTree or (type(value) is dict and not value):
            return value  # its arrays, if any, are read-only, and in the layout of frames
        return {name: self._item.received(item) for name, item in value.items()}

    def decode(self, wire: Any, received: Received, where: str) -> Any:
        if type(wire) is not dict:
            raise DecodeError(f"{where}: {show(wire)} is not a map")
        longest = received.limits.name_characters
        value = {}
        for name, item in wire.items():
            if type(name) is not str or len(name) > longest:
                raise DecodeError(f"{where}: {show(name)} is not a name of at most {longest} characters")
            value[name] = self._item.decode(item, received, f"{where}[{name!r}]")
        return value


class _Maybe(FieldType):
    def __init__(self, item: FieldType) -> None:
        self._item = item
        self.holds_arrays, self.is_tree, self.is_exact = item.holds_arrays, item.is_tree, item.is_exact
        self.is_of_trees, self.is_float32 = item.is_of_trees, item.is_float32

    def encode(self, value: Any, arrays: list[Array | PendingArray], where: str) -> Any:
        return None if value is None else self._item.encode(value, arrays, where)

    def encoding_key(self, value: Any) -> Hashable | None:
        return ("none",) if value is None else self._item.encoding_key(value)

    def received(self, value: Any) -> Any:
        return None if value is None else self._item.received(value)

    def decode(self, wire: Any, received: Received, where: str) -> Any:
        return None if wire is None else self._item.decode(wire, received, where)


_SCALARS: dict[Any, FieldType] = {
    bool: _Scalar(bool, "is not a bool"),
    int: _Int(int, "is not a signed 64-bit integer"),
    float: _Float(float, "is not a float"),
    str: _Str(str, "is not a str"),
}


def field_type(annotation: Any) -> FieldType | None:
    """Return the field type that an evaluated annotation asks for, or None where no field may be of it."""
    annotation = without_alias(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        others = [choice for choice in get_args(annotation) if choice is not type(None)]
        if len(others) != 1 or len(get_args(annotation)) != 2:
            return None
        item = field_type(others[0])
        return _Maybe(item) if item else None
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return _Choice(choices) if all(type(choice) is str for choice in choices) else None
    return _arrays_type(annotation, MAX_LEVELS) or _SCALARS.get(annotation)


def without_alias(annotation: Any) -> Any:
    """Return what an alias of a type stands for, such as ``NDArray[...]`` from NumPy 2.5 on."""
    while hasattr(alias := get_origin(annotation) or annotation, "__value__"):
        annotation = alias.__value__[get_args(annotation)] if get_args(annotation) else alias.__value__
    return annotation


def _arrays_type(annotation: Any, levels: int) -> FieldType | None:
    annotation = without_alias(annotation)
    arguments = get_args(annotation)
    if get_origin(annotation) is np.ndarray:
        scalar = get_args(arguments[1])[0]
        if scalar is Any:
            return _Array(None)
        known = isinstance(scalar, type) and any(dtype.type is scalar for dtype in NAMES)
        return _Array(np.dtype(scalar)) if known else None
    if get_origin(annotation) is Mapping and arguments[0] is str and levels:
        item = _arrays_type(arguments[1], levels - 1)
        return _Tree(item) if item else None
    return None


def show(value: object) -> str:
    """Return a short description of any value, however large or deep it is."""
    if value is None or isinstance(value, (bool, int, float, str)):
        text = "an integer" if type(value) is int and value.bit_length() > 128 else repr(value)
        text = shortened(text)
        name = type(value).__name__
        return text if value is None or type(value) in (bool, int, float, str) else f"{text} of type {name}"
    return f"a value of type {type(value).__name__}"
