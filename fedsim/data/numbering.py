"""Numbers for the names of classes and users, as people's tables and folders have them."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from fedsim.data.base import Indices

Name = TypeVar("Name", int, str)


def numbered(names: Iterable[Name]) -> tuple[Indices, int]:
    """Return the rank of each name among the different names, sorted, and the number of different names.

    Whole numbers are sorted by value, texts by their characters.
    """
    names = list(names)
    place = {name: number for number, name in enumerate(in_order(names))}
    return np.array([place[name] for name in names], np.int64), len(place)


def in_order(names: Iterable[Name]) -> list[Name]:
    """Return the different names in the order in which they are numbered."""
    return sorted(set(names))
