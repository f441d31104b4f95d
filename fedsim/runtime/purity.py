"""Checks that cost too much to make always: hooks leave their arguments as they found them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fedsim.errors import InvariantError

_UNCHECKED = nullcontext()


def fingerprint(value: Any) -> str:
    """Return a digest of a value made of records, mappings, sequences, arrays and plain values."""
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value):
        state.update(piece)
        state.update(b";")
    return state.hexdigest()


def unchanged(enabled: bool, hook: str, *arguments: Any) -> AbstractContextManager[None]:
    """Check, if ``enabled``, that a block does not change the arguments.

    Raises:
        InvariantError: It did.
    """
    return _unchanged(hook, *arguments) if enabled else _UNCHECKED


@contextmanager
def _unchanged(hook: str, *arguments: Any) -> Iterator[None]:
    before = [fingerprint(argument) for argument in arguments]
    yield
    for position, (old, argument) in enumerate(zip(before, arguments, strict=True)):
        if fingerprint(argument) != old:
            raise InvariantError(
                f"hook {hook} changed its argument {position}, a {type(argument).__name__}: return a new one"
            )


def _pieces(value: Any) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from _pieces(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield b"%d" % len(value)
        for name, item in value.items():
            yield repr(name).encode()
            yield from _pieces(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield b"%d" % len(value)
        for item in value:
            yield from _pieces(item)
    else:
        yield repr(value).encode()
