"""States as bytes: for probes of the observer between processes, state folders and checkpoints. No pickle.

A state is made of None, booleans, numbers, strings, arrays, tuples, mappings with strings or integers as
keys, and frozen dataclasses of classes that the reader names beforehand. It travels as a frame without an
address: one msgpack list of a word, the value and the list of arrays, and behind it the arrays
(:mod:`fedsim.wire.binary_arrays`). In the value everything that is not plain is a list that starts with its
tag; an array is its number, so that it travels once however often it occurs. So does any other object: where
it occurs again, its number stands in its place, and one object is one object again.

Arrays come back bit for bit, also in memory, and mappings in their order, so digests of models stay the same.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgpack
import numpy as np

from fedsim.algorithms.base import Algorithm
from fedsim.engine.jobs import Samples
from fedsim.errors import DecodeError
from fedsim.params import Array, Model, PendingTree, RowTree
from fedsim.plugins import Plugin
from fedsim.quoting import quoted, shortened
from fedsim.runtime.clients.held import Held
from fedsim.walk import field_names, parts
from fedsim.wire import Limits, Message
from fedsim.wire.binary_arrays import Bins, arrays_of_bytes, checked_headers, lead
from fedsim.wire.contents import plain
from fedsim.wire.field_types import without_alias
from fedsim.wire.unpack_msgpack import unpack

WORD = "fedsim state"
"""The first thing in every state."""

SAMPLES = get_args(Samples)
"""Records of samples, which several algorithms' clients remember."""

_HEAD = b"\x93" + msgpack.packb(WORD)  # a list of three
_TUPLE, _MAPPING, _RECORD, _ARRAY, _SCALAR, _AGAIN, _KNOWN = "t", "m", "r", "a", "s", "=", "k"


@dataclass(frozen=True, slots=True)
class StateLimits(Limits):
    """What a decoder accepts: the limits of a frame, and two of its own.

    Attributes:
        values: Most values in the structure, all levels together.
        depth: Deepest nesting.
    """

    frame_bytes: int = 2**32
    envelope_bytes: int = 2**22
    arrays: int = 100_000
    string_bytes: int = 2**22
    values: int = 1_000_000
    depth: int = 32


DEFAULT = StateLimits()

_MAPPINGS = (dict, types.MappingProxyType, PendingTree, RowTree)
_UNFINISHED = object()
_CARRIED = "model"  # what a message makes of its fields once, and receivers may hold


def classes_of(plugin: Plugin[Any], kind: type[Plugin[Any]] = Algorithm) -> tuple[type, ...]:
    """Return the classes that may occur in a state of an algorithm, or in what a selector remembers.

    They are models, records of samples, and the frozen dataclasses that the modules of the plugin and of its
    bases know by name.

    Args:
        plugin: The plugin.
        kind: Its last base that counts for nothing.
    """
    classes: dict[type, None] = dict.fromkeys((Model, *SAMPLES))
    for base in type(plugin).__mro__:
        if issubclass(base, kind) and base is not kind:
            for value in vars(sys.modules[base.__module__]).values():
                if inspect.isclass(value) and _is_frozen(value) and not issubclass(value, Message):
                    classes[value] = None
    return tuple(classes)


def encode(value: Any, limits: StateLimits = DEFAULT) -> bytes:
    """Return a state as bytes."""
    writer = Writer(limits)
    tree = writer.tree(value, "state")
    bins = Bins(writer.arrays)
    try:
        head = bytes(msgpack.packb((WORD, tree, bins.listed)))
    except (OverflowError, UnicodeError) as error:
        raise ValueError(
            f"state: a number beyond 64 bits, or a string that is no Unicode ({error})"
        ) from None
    gap = lead(bins.first, len(head))
    size = len(head) + len(gap) + bins.num_bytes
    if size > limits.frame_bytes or len(head) > limits.envelope_bytes:
        raise ValueError(f"state: {size} bytes, {len(head)} of them structure: more than {limits}")
    return b"".join((head, gap, *bins.parts))


def decode(data: bytes, classes: Collection[type], limits: StateLimits = DEFAULT) -> Any:
    """Return the state that bytes stand for; its arrays are read-only views of them."""
    if len(data) > limits.frame_bytes:
        raise DecodeError(f"state: {len(data)} bytes, the limit is {limits.frame_bytes}")
    if not data.startswith(_HEAD):
        raise DecodeError("state: these bytes are no state of a client, or of another format")
    (_, tree, arrays), position = unpack(
        data,
        where="state: the structure is damaged",
        max_bytes=limits.envelope_bytes,
        str_bytes=limits.string_bytes,
        array_items=limits.values,
        map_items=0,
    )
    received = arrays_of_bytes(memoryview(data), position, checked_headers(arrays, limits))
    reader = Reader(received, classes, limits)
    value = reader.value(tree, "state")
    if reader.unused:
        raise DecodeError(f"state: array {min(reader.unused)} belongs to nothing")
    return value


def decode_held(data: bytes, classes: Collection[type], limits: StateLimits = DEFAULT) -> Held:
    """Return what a client holds, as :func:`decode` does a state, whose classes are given."""
    held = decode(data, (Held, *classes), limits)
    if not isinstance(held, Held):
        raise DecodeError(f"a {type(held).__name__} where what a client holds belongs")
    return held


class Writer:
    """Turns values into what msgpack knows, and collects arrays.

    Args:
        limits: What is accepted.
        known: Objects that the reader has, by identity: what each is called.
        classes: Those of records that the reader knows; None if that is not known.

    Attributes:
        arrays: The arrays.
    """

    def __init__(
        self,
        limits: StateLimits,
        known: Mapping[int, Sequence[Any]] | None = None,
        classes: Collection[type] | None = None,
    ) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._alive: list[Any] = []  # while these live, nothing else has their identity
        self._left = limits.values
        self._limits = limits
        self._known = known or {}
        self._classes = classes

    def tree(self, value: Any, where: str, depth: int = 0) -> Any:
        """Return a value as msgpack knows it; ``where`` names it for an error.

        Raises:
            ValueError: It is larger than the limits.
            TypeError: It has parts of another kind.
        """
        self._left -= 1
        if self._left < 0 or depth > self._limits.depth:
            raise ValueError(f"{where:.200}: more values, or deeper nested ones, than {self._limits}")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray):
            axes = _axes(value)
            return (
                _ARRAY,
                self._number(value if axes is None else value.transpose(axes), where),
                *(axes or ()),
            )
        if isinstance(value, np.generic):
            return (_SCALAR, self._number(value, where))
        if (known := self._known.get(id(value))) is not None:
            return (_KNOWN, *known)
        if (number := self._objects.get(id(value))) is not None:
            return (_AGAIN, number)
        self._objects[id(value)] = len(self._objects)
        self._alive.append(value)
        if type(value) is tuple:
            inner = (self.tree(item, f"{where}[{place}]", depth + 1) for place, item in enumerate(value))
            return (_TUPLE, *inner)
        if type(value) in _MAPPINGS:
            return (_MAPPING, *self._pairs(value, where, depth))
        if _is_frozen(type(value)) and (self._classes is None or type(value) in self._classes):
            items = parts(value)
            if isinstance(value, Message) and (model := vars(value).get(_CARRIED)) is not None:
                items = {**items, _CARRIED: model}
            return (_RECORD, _name(type(value)), *self._pairs(items, where, depth))
        raise TypeError(
            f"{where:.200}: a {type(value).__name__} cannot be part of a state that leaves its process: use "
            "tuples, dictionaries, arrays, numbers, strings, and frozen dataclasses of the plugin's module"
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


class Reader:
    """Turns what msgpack gave into values.

    Args:
        arrays: The arrays.
        classes: Those of records.
        limits: What is accepted.
        known: Gives the objects that the writer knew, by what they are called.
        is_trusted: Whether fields need not be compared with annotations: this program has written them.

    Attributes:
        unused: Numbers of the arrays that were not asked for.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        classes: Collection[type],
        limits: StateLimits,
        known: Callable[..., Any] | None = None,
        *,
        is_trusted: bool = False,
    ) -> None:
        self._is_trusted = is_trusted
        self._arrays = arrays
        self._objects: list[Any] = []
        self._known = known
        self.unused = set(range(len(arrays)))
        self._classes = {_name(cls): cls for cls in classes}
        self._left = limits.values
        self._limits = limits

    def value(self, tree: Any, where: str, depth: int = 0) -> Any:
        """Return a value; a DecodeError if it is none."""
        self._left -= 1
        if self._left < 0 or depth > self._limits.depth:
            raise DecodeError(f"{where:.200}: more values, or deeper nested ones, than {self._limits}")
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        # What is empty passes every limit of the parser, so only a list is looked into.
        tag, rest = (tree[0], tree[1:]) if type(tree) is tuple and tree else (None, ())
        if tag in (_TUPLE, _MAPPING) or (tag == _RECORD and rest):
            number = len(self._objects)
            self._objects.append(_UNFINISHED)
            self._objects[number] = made = self._object(tag, rest, where, depth)
            return made
        if tag == _AGAIN and len(rest) == 1 and type(rest[0]) is int and 0 <= rest[0] < len(self._objects):
            made = self._objects[rest[0]]
            if made is not _UNFINISHED:
                return made
        if tag == _KNOWN and self._known is not None:
            return self._known(*rest)
        if tag in (_ARRAY, _SCALAR) and rest and all(type(number) is int for number in rest):
            if not 0 <= rest[0] < len(self._arrays):
                raise DecodeError(f"{where:.200}: there is no array {rest[0]}")
            self.unused.discard(rest[0])
            array, axes = self._arrays[rest[0]], rest[1:]
            if tag == _ARRAY and not axes:
                return array
            if tag == _ARRAY and sorted(axes) == list(range(array.ndim)):
                return array.transpose(np.argsort(axes))
            if tag == _SCALAR and not axes and array.shape == ():
                return array[()]
        raise DecodeError(f"{where:.200}: {quoted(tree)} is none of the values of a state")

    def _object(self, tag: str, rest: tuple[Any, ...], where: str, depth: int) -> Any:
        if tag == _TUPLE:
            return tuple([self.value(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(rest)])
        if tag == _RECORD:
            return self._record(rest[0], self._pairs(rest[1:], where, depth), where)
        return self._pairs(rest, where, depth)

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
        names = field_names(cls) or ()
        carried = values.pop(_CARRIED, None) if issubclass(cls, Message) and _CARRIED not in names else None
        if tuple(values) != names:
            raise DecodeError(f"{where:.200}: {name} has the fields {names}, not {shortened(list(values))}")
        for field, hint in () if self._is_trusted else hints_of(cls).items():
            if field in values and not fits(values[field], hint):
                kind = type(values[field]).__name__
                raise DecodeError(f"{where:.160}.{field}: a {kind} where {shortened(hint)} belongs")
        try:
            made = cls(**values)
        except (TypeError, ValueError) as error:
            raise DecodeError(f"{where:.200}: {name}: {error}") from None
        if carried is not None:
            vars(made)[_CARRIED] = carried
        return made


def _axes(array: Array) -> tuple[int, ...] | None:
    """Return the order of axes in which an array lies densely in memory; None for C order, or no such one."""
    if array.flags.c_contiguous:
        return None
    axes = tuple(np.argsort([-stride for stride in array.strides], kind="stable").tolist())
    return axes if array.transpose(axes).flags.c_contiguous else None


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


@cache
def hints_of(cls: type) -> Mapping[str, Any]:
    """Return the annotations of a class by name; none where they cannot be resolved."""
    try:
        return get_type_hints(cls)
    except NameError:
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value suits an annotation; unknown annotations, such as protocols, take any value."""
    hint = without_alias(hint)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if isinstance(hint, TypeVar):
        return hint.__bound__ is None or fits(value, hint.__bound__)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _has_dtype(value, arguments[1])
    if origin is tuple:
        return isinstance(value, tuple) and _fit_each(value, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key_hint, item_hint = arguments
        return isinstance(value, Mapping) and all(
            fits(key, key_hint) and fits(item, item_hint) for key, item in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
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
        return all(fits(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(fits, value, hints))
