"""Clients' states as bytes: for the observer's probes between processes, and for state folders. No pickle.

A state is made of None, booleans, numbers, strings, arrays, tuples, mappings with strings or integers as
keys, and frozen dataclasses of classes that the reader names beforehand. Its *structure* travels as msgpack,
in which everything that is not plain is a list that starts with its tag. Arrays follow it, each once however
often it occurs, aligned, so that decoding makes read-only views and copies nothing::

    magic | length of the structure | structure | array | array | ...

Arrays come back bit for bit and mappings in their order, so digests of models stay the same.
"""

from __future__ import annotations

import dataclasses
import inspect
import struct
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack
import numpy as np

from fedsim.algorithms.base import Algorithm
from fedsim.engine import jobs
from fedsim.errors import DecodeError
from fedsim.params import Array, Model
from fedsim.quoting import quoted, shortened
from fedsim.runtime.host import Held
from fedsim.runtime.type_check import fits, hints_of
from fedsim.walk import octets
from fedsim.wire import Message
from fedsim.wire.dtypes import BOOL, DTYPES, NAMES, plain
from fedsim.wire.unpack import unpack

MAGIC = b"fedsim state 1\r\n"
ALIGNMENT = 16

SAMPLES = (
    jobs.ClientSamples,
    jobs.PublicSamples,
    jobs.GlobalTest,
    jobs.InlineSamples,
    jobs.PooledSamples,
)
"""Records of samples, which several algorithms' clients remember."""

_LENGTH = struct.Struct("<Q")
_TUPLE, _MAPPING, _RECORD, _ARRAY, _SCALAR = "t", "m", "r", "a", "s"


@dataclass(frozen=True, slots=True)
class StateLimits:
    """What a decoder accepts.

    Attributes:
        state_bytes: Longest state.
        structure_bytes: Longest structure.
        values: Most values in it, all levels together.
        depth: Deepest nesting.
        arrays: Most arrays.
    """

    state_bytes: int = 2**32
    structure_bytes: int = 2**24
    values: int = 1_000_000
    depth: int = 32
    arrays: int = 100_000


DEFAULT = StateLimits()


def classes_of(algorithm: Algorithm[Any, Any, Any]) -> tuple[type, ...]:
    """Return the classes that may occur in a state of an algorithm's clients.

    They are models, records of samples, and the frozen dataclasses that the modules of the algorithm and of
    its bases know by name.
    """
    found: dict[type, None] = dict.fromkeys((Model, *SAMPLES))
    for base in type(algorithm).__mro__:
        if issubclass(base, Algorithm) and base is not Algorithm:
            for value in vars(sys.modules[base.__module__]).values():
                if inspect.isclass(value) and _is_frozen(value) and not issubclass(value, Message):
                    found[value] = None
    return tuple(found)


def encode(value: Any, limits: StateLimits = DEFAULT) -> bytes:
    """Return a state as bytes.

    Raises:
        TypeError: Something in it that cannot travel; the message says where.
        ValueError: Too much of it, or a number or string that does not fit.
    """
    writer = _Writer(limits)
    tree = writer.tree(value, "state", 0)
    described = [(NAMES[array.dtype], array.shape) for array in writer.arrays]
    try:
        structure = bytes(msgpack.packb((tree, described)))
    except (OverflowError, UnicodeError) as error:
        raise ValueError(
            f"state: a number beyond 64 bits, or a string that is no Unicode ({error})"
        ) from None
    parts: list[bytes | memoryview] = [MAGIC, _LENGTH.pack(len(structure)), structure]
    position = sum(map(len, parts))
    for array in writer.arrays:
        gap = bytes(-position % ALIGNMENT)
        parts += [gap, octets(array)]
        position += len(gap) + array.nbytes
    if position > limits.state_bytes or len(structure) > limits.structure_bytes:
        raise ValueError(f"state: {position} bytes, {len(structure)} of them structure: more than {limits}")
    return b"".join(parts)


def decode(data: bytes, classes: Collection[type], limits: StateLimits = DEFAULT) -> Any:
    """Return the state that bytes stand for; its arrays are read-only views of them.

    Args:
        data: What :func:`encode` made.
        classes: The classes of records that may occur, see :func:`classes_of`.
        limits: The most that is accepted.

    Raises:
        DecodeError: Anything else, down to a field of a record that does not suit its annotation.
    """
    if len(data) > limits.state_bytes:
        raise DecodeError(f"state: {len(data)} bytes, the limit is {limits.state_bytes}")
    start = len(MAGIC) + _LENGTH.size
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise DecodeError("state: these bytes are no state of a client, or of another format")
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > limits.structure_bytes or length > len(data) - start:
        raise DecodeError(f"state: a structure of {length} bytes cannot be in {len(data)}")
    tree, described = _parsed(data[start : start + length], len(data), limits)
    reader = _Reader(_arrays(data, start + length, described, limits), classes, limits)
    value = reader.value(tree, "state", 0)
    if unused := reader.unused():
        raise DecodeError(f"state: array {unused[0]} belongs to nothing")
    return value


def decode_held(data: bytes, classes: Collection[type], limits: StateLimits = DEFAULT) -> Held:
    """Return what a client holds, as :func:`decode` does a state, whose classes are given.

    Raises:
        DecodeError: As there, or it is something else.
    """
    held = decode(data, (Held, *classes), limits)
    if not isinstance(held, Held):
        raise DecodeError(f"a {type(held).__name__} where what a client holds belongs")
    return held


class _Writer:
    """Turns values into what msgpack knows, and collects arrays."""

    def __init__(self, limits: StateLimits) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # while these live, nothing else has their identity
        self._left = limits.values
        self._limits = limits

    def tree(self, value: Any, where: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > self._limits.depth:
            raise ValueError(f"{where:.200}: more values, or deeper nested ones, than {self._limits}")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray | np.generic):
            return (_ARRAY if isinstance(value, np.ndarray) else _SCALAR, self._number(value, where))
        if type(value) is tuple:
            inner = (self.tree(item, f"{where}[{place}]", depth + 1) for place, item in enumerate(value))
            return (_TUPLE, *inner)
        if isinstance(value, Mapping):
            return (_MAPPING, *self._pairs(value, where, depth))
        if _is_frozen(type(value)):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return (_RECORD, _name(type(value)), *self._pairs(fields, where, depth))
        raise TypeError(
            f"{where:.200}: a {type(value).__name__} cannot be part of a state that leaves its process: use "
            "frozen dataclasses, tuples, mappings, arrays, numbers and strings"
        )

    def _pairs(self, items: Mapping[Any, Any], where: str, depth: int) -> list[Any]:
        pairs: list[Any] = []
        for key, item in items.items():
            if type(key) not in (str, int):
                raise TypeError(f"{where:.200}: a key is a string or an integer, not {quoted(key)}")
            pairs += [key, self.tree(item, f"{where}.{key}", depth + 1)]
        return pairs

    def _number(self, value: Any, where: str) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.arrays)
            self._alive.append(value)
            self.arrays.append(plain(value, where))
        return number


class _Reader:
    """Turns what msgpack gave into values."""

    def __init__(self, arrays: list[Array], classes: Collection[type], limits: StateLimits) -> None:
        self._arrays = arrays
        self._used = [False] * len(arrays)
        self._classes = {_name(cls): cls for cls in classes}
        self._left = limits.values
        self._limits = limits

    def unused(self) -> list[int]:
        return [number for number, used in enumerate(self._used) if not used]

    def value(self, tree: Any, where: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > self._limits.depth:
            raise DecodeError(f"{where:.200}: more values, or deeper nested ones, than {self._limits}")
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        # What is empty passes every limit of the parser, so only a list is looked into.
        tag, rest = (tree[0], tree[1:]) if type(tree) is tuple and tree else (None, ())
        if tag == _TUPLE:
            return tuple(self.value(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(rest))
        if tag == _MAPPING:
            return self._pairs(rest, where, depth)
        if tag == _RECORD and rest:
            return self._record(rest[0], self._pairs(rest[1:], where, depth), where)
        if tag in (_ARRAY, _SCALAR) and len(rest) == 1 and type(rest[0]) is int:
            if not 0 <= rest[0] < len(self._arrays):
                raise DecodeError(f"{where:.200}: there is no array {rest[0]}")
            self._used[rest[0]] = True
            array = self._arrays[rest[0]]
            if tag == _ARRAY:
                return array
            if array.shape == ():
                return array[()]
        raise DecodeError(f"{where:.200}: {quoted(tree)} is none of the values of a state")

    def _pairs(self, flat: tuple[Any, ...], where: str, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        if len(flat) % 2:
            raise DecodeError(f"{where:.200}: a key without a value")
        for key, item in zip(flat[::2], flat[1::2], strict=True):
            if type(key) not in (str, int) or key in made:
                raise DecodeError(f"{where:.200}: {quoted(key)} is no key, or there twice")
            made[key] = self.value(item, f"{where}.{shortened(key)}", depth + 1)
        return made

    def _record(self, name: Any, values: dict[Any, Any], where: str) -> Any:
        cls = self._classes.get(name) if type(name) is str else None
        if cls is None:
            raise DecodeError(
                f"{where:.200}: {quoted(name)} is none of the classes of this algorithm's states"
            )
        names = [field.name for field in dataclasses.fields(cls)]
        if list(values) != names:
            raise DecodeError(f"{where:.200}: {name} has the fields {names}, not {shortened(list(values))}")
        for field, hint in hints_of(cls).items():
            if field in values and not fits(values[field], hint):
                kind = type(values[field]).__name__
                raise DecodeError(f"{where:.160}.{field}: a {kind} where {shortened(hint)} belongs")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise DecodeError(f"{where:.200}: {name}: {error}") from None


def _parsed(structure: bytes, state_bytes: int, limits: StateLimits) -> tuple[Any, Any]:
    parsed, length = unpack(
        structure,
        where="state: the structure is damaged",
        whole_bytes=state_bytes,
        most_bytes=limits.structure_bytes,
        str_bytes=limits.structure_bytes,
        array_items=limits.values,
        map_items=0,
    )
    if length != len(structure) or type(parsed) is not tuple or len(parsed) != 2:
        raise DecodeError("state: the structure is not [value, arrays]")
    return parsed[0], parsed[1]


def _arrays(data: bytes, position: int, described: Any, limits: StateLimits) -> list[Array]:
    """Return views of the bytes; nothing is made before each shape agrees with them."""
    if type(described) is not tuple or len(described) > limits.arrays:
        raise DecodeError(f"state: not a list of at most {limits.arrays} arrays")
    arrays = []
    for number, entry in enumerate(described):
        name, shape = entry if type(entry) is tuple and len(entry) == 2 else (None, None)
        dtype = DTYPES.get(name) if type(name) is str else None
        sizes = shape if type(shape) is tuple and len(shape) <= 32 else (-1,)
        if dtype is None or not all(type(size) is int and 0 <= size <= len(data) for size in sizes):
            raise DecodeError(f"state: array {number}: {quoted(entry)} is not [dtype, shape]")
        gap = data[position : position + (-position % ALIGNMENT)]
        position += -position % ALIGNMENT
        num_bytes = prod(sizes) * dtype.itemsize
        # Beside a zero the other sizes are free, but NumPy counts them without it.
        if prod(size or 1 for size in sizes) > limits.state_bytes:
            raise DecodeError(f"state: array {number}: the shape {quoted(sizes)} is absurd")
        if gap.strip(b"\0") or position + num_bytes > len(data):
            raise DecodeError(f"state: array {number}: {num_bytes} bytes are not at byte {position}")
        array: Array = np.ndarray(sizes, dtype, data, position if num_bytes else 0)
        if dtype is BOOL and array.view(np.uint8).max(initial=0) > 1:
            raise DecodeError(f"state: array {number}: a bool is neither 0 nor 1")
        arrays.append(array)
        position += num_bytes
    if position != len(data):
        raise DecodeError(f"state: {len(data) - position} bytes are left over at byte {position}")
    return arrays


def _is_frozen(cls: type) -> bool:
    # A dataclass is itself only if it was declared one: a class derived from one may hold more.
    parameters = vars(cls).get("__dataclass_params__")
    return (
        parameters is not None
        and bool(parameters.frozen)
        and all(field.init for field in dataclasses.fields(cls))
    )


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
