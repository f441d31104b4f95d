"""Matrices as products of two with few columns: 32 r (m + n) / (m n) bits a value (PowerSGD).

An array ``[m, ...]`` of several dimensions is a matrix M of m rows. With an n x r matrix Q of uniform draws,
P = M Q is made orthonormal (Gram and Schmidt), and P and M^T P are sent: one step of the power method. Arrays
that would not become shorter go on as they are. Vogels, Karimireddy, Jaggi: PowerSGD: Practical Low-Rank
Gradient Compression for Distributed Optimization, NeurIPS 2019; there Q is that of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.params import Array
from fedsim.wire.codecs.base import F32, About, Codec, Coded, Coding, Layout, Shapes, total

_TINY = 1e-10
"""A column that loses all but this share of its length depends on those before."""


class LowRankConfig(Config):
    """How much is sent."""

    rank: Annotated[int, Field(ge=1, le=64)] = 2
    """Columns of each of the two matrices."""


class LowRank(Codec[LowRankConfig]):
    """Sends two thin matrices instead of each matrix."""

    about = About(kind="changes of models")

    def coded(self, shapes: Shapes) -> Layout:
        """Return the shapes of both matrices, or of the array itself."""
        values: list[tuple[int, ...]] = []
        for shape in shapes:
            m, n = _matrix(shape)
            values += [(m, self.config.rank), (n, self.config.rank)] if self._pays(shape) else [shape]
        return Layout(tuple(values))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Take one step of the power method."""
        generator, thin = coding.generator(), list[Array]()
        for array in values:
            if not self._pays(array.shape):
                thin.append(array)
                continue
            m, n = _matrix(array.shape)
            matrix = array.reshape(m, n).astype(np.float64)
            drawn = 2 * generator.random((n, self.config.rank)) - 1
            left = _orthonormal(_product(matrix, drawn))
            thin += left.astype(F32), _product(matrix.T, left).astype(F32)
        return Coded(thin)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Multiply the matrices."""
        thin, arrays = iter(coded.values), []
        for shape in shapes:
            if not self._pays(shape):
                arrays.append(next(thin))
                continue
            left, right = next(thin), next(thin)
            array = left[:, :1] * right[:, 0]
            for column in range(1, self.config.rank):
                array += left[:, column, None] * right[:, column]
            arrays.append(array.reshape(shape))
        return arrays

    def flops(self, before: Layout) -> tuple[float, float]:
        """Return the operations of two products, and of one."""
        rank = self.config.rank
        scalars = sum(prod(shape) for shape in before.values if self._pays(shape))
        return 4.0 * rank * scalars, 2.0 * rank * scalars

    def _pays(self, shape: tuple[int, ...]) -> bool:
        m, n = _matrix(shape)
        return len(shape) > 1 and self.config.rank * (m + n) < m * n


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0], prod(shape[1:])) if shape else (1, 1)


def _product(matrix: Array, thin: Array) -> Array:
    """Return the product of a matrix and one with few columns, added in one order on every processor."""
    columns = [total(matrix * thin[:, column]) for column in range(thin.shape[1])]
    return np.stack(columns, axis=1)


def _orthonormal(matrix: Array) -> Array:
    """Return a matrix whose columns are orthonormal, or zero where they depend on those before."""
    columns = list[Array]()
    for column in matrix.T:
        whole = np.sqrt(total(column * column))
        for before in columns:
            column = column - before * total(before * column)
        length = np.sqrt(total(column * column))
        columns.append(np.zeros_like(column) if length <= _TINY * whole else column / length)
    return np.stack(columns, axis=1)


PLUGIN = LowRank
