"""Checks that cost too much to make always: hooks leave their arguments as they found them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fedsim.errors import InvariantError
from fedsim.params import PendingTree
from fedsim.walk import octets, parts


def fingerprint(value: Any) -> str:
    """Return a digest of any value, within this process: arrays by bytes, other leaves by their text."""
    state = hashlib.blake2b(digest_size=16)
    for piece in _pieces(value):
        # With its length before it, no piece runs into the next one.
        state.update(b"%d:" % len(piece))
        state.update(piece)
    return state.hexdigest()


_UNCHECKED = nullcontext()  # one for all, as each dispatch meets several, and making one takes a microsecond


def unchanged(enabled: bool, hook: str, *arguments: Any) -> AbstractContextManager[None]:
    """Return a context that checks, if ``enabled``, that its block does not change the arguments.

    Raises:
        InvariantError: When the context ends, it did.
    """
    return _checked(hook, arguments) if enabled else _UNCHECKED


@contextmanager
def _checked(hook: str, arguments: Sequence[Any]) -> Iterator[None]:
    before = [fingerprint(argument) for argument in arguments]
    yield
    for position, (old, argument) in enumerate(zip(before, arguments, strict=True)):
        if fingerprint(argument) != old:
            raise InvariantError(
                f"hook {hook} changed its argument {position}, a {type(argument).__name__}: return a new one"
            )


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        yield f"{value.dtype.str}{value.shape}".encode()
        yield octets(np.asarray(value))
        return
    if isinstance(value, PendingTree):
        value = value.computed()
    inner = parts(value)
    yield f"{type(value).__qualname__}{len(inner)}".encode()
    if not inner:
        # NumPy's own text of a long array leaves its middle out.
        yield repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()
    for name, part in inner.items():
        yield from _pieces(name)
        yield from _pieces(part)
