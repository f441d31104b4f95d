"""Checks that cost too much to make always: hooks leave their arguments as they found them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fedsim import walk
from fedsim.errors import InvariantError

_UNCHECKED = nullcontext()


def fingerprint(value: Any) -> str:
    """Return a digest of any value, within this process; what has no digest elsewhere counts by its text."""
    return walk.digest(value, _text)


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


def _text(value: Any) -> str:
    # NumPy's own text of a long array leaves its middle out.
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)
