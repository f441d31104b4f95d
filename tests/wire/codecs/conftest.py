"""Trees to encode, and chains by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.params import Array, Tree
from fedsim.rng import Key
from fedsim.wire.codecs.chain import Chain
from fedsim.wire.codecs.choices import ChainConfig

Make = Callable[..., Chain]


@pytest.fixture
def make() -> Make:
    """Make a chain of codecs; all arrays are coded, however small."""

    def made(*codecs: str | dict[str, Any], least: str = "1 B", feedback: bool = False) -> Chain:
        tables = {"chain": list(codecs), "least": least, "error_feedback": feedback}
        return ChainConfig.model_validate(tables).made

    return made


def floats(*values: float) -> Array:
    """Return an array of float32."""
    return np.array(values, np.float32)


def drawn(*shape: int, seed: int = 0) -> Array:
    """Return standard normal numbers, float32."""
    return Key.root(seed).numpy().standard_normal(shape).astype(np.float32)


def zeros_like(tree: Tree) -> Tree:
    """Return a tree of zeros."""
    return {name: np.zeros_like(array) for name, array in tree.items()}


def num_bytes(tree: Tree, names: Sequence[str] | None = None) -> int:
    """Return the bytes of the segments of a coded tree, or of those named."""
    return sum(
        array.nbytes for name, array in tree.items() if name.startswith("+") and (not names or name in names)
    )
