"""Records of one kind as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedsim.params import Array

Column: TypeAlias = Any
"""The values of a field: an array ``[records]``, or one value for all."""

_DTYPES: Mapping[type, Any] = {int: np.int64, float: np.float64, bool: np.bool_}


class Columns(NamedTuple):
    """Records of one kind.

    Attributes:
        num_records: How many there are.
        values: The column of the instants, int64, ns, then one for each field.
    """

    num_records: int
    values: Sequence[Column]

    def rows(self, *before: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the records in plain values, each with others before its own."""
        columns: list[Iterable[Any]] = [
            value.tolist() if isinstance(value, np.ndarray) else repeat(value, self.num_records)
            for value in (*before, *self.values)
        ]
        return zip(*columns, strict=True)

    def plain(self, place: int) -> list[Any]:
        """Return a column as plain values."""
        value = self.values[place]
        return value.tolist() if isinstance(value, np.ndarray) else list(repeat(value, self.num_records))

    def chosen(self, places: Array) -> Columns:
        """Return the records at some places."""
        values = [value[places] if isinstance(value, np.ndarray) else value for value in self.values]
        return Columns(len(places), values)


def column(values: Sequence[Any]) -> Column:
    """Return plain values, at least one, as a column."""
    first, types = values[0], {type(value) for value in values}
    if len(types) == 1 and all(value == first for value in values):
        return first
    return np.array(values, _dtype(first) if len(types) == 1 else object)


def joined(counts: Sequence[int], columns: Sequence[Column]) -> Column:
    """Return columns one after the other, each of so many values."""
    if len(columns) == 1:
        return columns[0]
    arrays = [
        value if isinstance(value, np.ndarray) else np.full(count, value, _dtype(value))
        for count, value in zip(counts, columns, strict=True)
    ]
    is_mixed = len({array.dtype for array in arrays}) > 1
    return np.concatenate([array.astype(object) for array in arrays] if is_mixed else arrays)


def _dtype(value: Any) -> Any:
    return _DTYPES.get(type(value), object)
