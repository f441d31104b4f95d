"""What a job comes to, in 32 characters: equal where the result must be, on every host and in every process.

A digest covers everything in the job that decides its result: a step by the dotted path of its class with all
its settings, functions by their dotted paths, models and arrays by every byte, and the order of mappings. It
does not cover what the job only names and the whole run shares: the data set, what an architecture's label
stands for, and the code behind a path. Nor does it cover what a :class:`Call` costs, which decides when the
result is there and not what it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from fedsim.config import Config
from fedsim.engine.jobs import Call, Job
from fedsim.params import Array
from fedsim.quoting import quoted

Bytes = bytes | memoryview


def digest(job: Job) -> str:
    """Return the digest of a job, 32 hexadecimal characters.

    Raises:
        ValueError: It has a function or a class that no dotted path leads to, such as a lambda.
        TypeError: It holds something that is neither a record, a mapping, a sequence, an array, a function
            nor a plain value.
    """
    state = hashlib.blake2b(digest_size=16)
    whole: Any = ("call", job.function, job.arguments) if isinstance(job, Call) else job
    for piece in _pieces(whole):
        # With its length before it, no piece runs into the next one.
        state.update(b"%d:" % len(piece))
        state.update(piece)
    return state.hexdigest()


def _pieces(value: Any) -> Iterator[Bytes]:
    """Yield what a value is made of; every kind begins with a letter of its own."""
    match value:
        case None | bool():
            yield repr(value).encode()
        case Enum():
            yield from (b"e", path_of(type(value)).encode(), value.name.encode())
        case np.ndarray() | np.generic():
            yield from _of_array(np.asarray(value))
        case int():
            yield b"i%d" % value
        case float():
            yield b"f" + struct.pack("<d", value)
        case str():
            yield b"s" + value.encode()
        case bytes():
            yield b"b" + value
        case Mapping():
            yield b"m%d" % len(value)
            for name, item in value.items():
                yield from _pieces(name)
                yield from _pieces(item)
        case tuple() | list():
            yield from _of_sequence(value)
        case partial():
            yield b"p"
            yield from _pieces((value.func, value.args, value.keywords))
        case type():
            yield b"c" + path_of(value).encode()
        case Config():
            yield from _of_record(value, list(type(value).model_fields))
        case _ if dataclasses.is_dataclass(value):
            yield from _of_record(value, [field.name for field in dataclasses.fields(value)])
        case _ if callable(value):
            yield b"c" + path_of(value).encode()
        case _:
            raise TypeError(
                f"a job holds {quoted(value)}, a {type(value).__name__}, which has no digest: use records, "
                "mappings, tuples, NumPy arrays, functions at module level and plain values"
            )


def _of_record(record: Any, names: Sequence[str]) -> Iterator[Bytes]:
    yield b"r%d" % len(names)
    yield path_of(type(record)).encode()
    for name in names:
        yield name.encode()
        yield from _pieces(getattr(record, name))


def _of_sequence(items: Sequence[Any]) -> Iterator[Bytes]:
    yield b"%c%d" % (b"t" if isinstance(items, tuple) else b"l", len(items))
    for item in items:
        yield from _pieces(item)


def _of_array(array: Array) -> Iterator[Bytes]:
    if array.dtype.kind not in "biufcSU":
        raise TypeError(f"a job holds an array of {array.dtype}: only numbers and texts have a digest")
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    yield f"a{little.dtype.str}{array.shape}".encode()
    yield little.tobytes() if little.dtype.kind in "SU" else little.reshape(-1).view(np.uint8).data


def path_of(named: Any) -> str:
    """Return the dotted path of a function or a class.

    Raises:
        ValueError: None leads to it: it is a lambda, a method of one object, or made inside a function.
    """
    module, full_name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    # Some of torch's functions are methods of a hidden class, offered at the top of the module.
    for name in (full_name, getattr(named, "__name__", None)):
        if isinstance(module, str) and isinstance(name, str) and _at(module, name) is named:
            return f"{module}.{name}"
    raise ValueError(
        f"a job names {full_name or type(named).__name__!r} of {module or 'no module'}, and no dotted path "
        "leads there: define it with def or class at the top of a module, and give it what it needs as "
        "settings of a frozen record, as arguments or as extras"
    )


def _at(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
