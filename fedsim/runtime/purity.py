"""Checks that cost too much to make always: hooks leave their arguments as they found them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fedsim.errors import InvariantError
from fedsim.params import PendingTree, RowTree
from fedsim.walk import octets, parts


def fingerprint(value: Any) -> str:
    """Return a digest of any value, within this process: arrays by bytes, other leaves by their text."""
    state = hashlib.blake2b(digest_size=16)
    _add(state.update, value)
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


def _add(update: Callable[[bytes | memoryview], None], value: Any) -> None:
    if type(value) is str:  # what most values are: names of fields and of arrays
        update(b"%a" % value)
        return
    while type(value) is PendingTree:  # one may be computed as another
        value = value.computed()
    cls = dict if type(value) is RowTree else type(value)  # how a tree lies in memory is no difference
    if issubclass(cls, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        array = octets(np.asarray(value))
        # With its length before it, no piece runs into the next one.
        update(b"%s%s %d:" % (value.dtype.str.encode(), str(value.shape).encode(), len(array)))
        update(array)
        return
    inner = parts(value)
    text = b""
    if not inner:
        # NumPy's own text of a long array leaves its middle out.
        text = repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()
    update(b"%s%d %d:%s" % (cls.__qualname__.encode(), len(inner), len(text), text))
    for name, part in inner.items():
        _add(update, name)
        _add(update, part)
