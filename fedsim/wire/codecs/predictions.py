"""Codecs of predictions: rows of one output for each class."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm
from fedsim.wire.codecs.base import (
    F32,
    U8,
    About,
    ArrayCodec,
    Codec,
    Coded,
    Coding,
    Layout,
    Shape,
    Shapes,
    total,
)


class HardLabels(ArrayCodec[Config]):
    """8 bits a row: its class, and one margin for all rows (CFD with one bit).

    Of equal outputs the first is the class; from 257 classes on it takes 16 bits. A row decodes to the margin
    at this class and 0 elsewhere, which is one-hot for probabilities. The margin is the mean over rows of the
    largest output less the mean of the others. Sattler, Marban, Rischke, Samek: CFD: Communication-Efficient
    Federated Distillation via Soft-Label Quantization and Delta Coding, IEEE Transactions on Network Science
    and Engineering 9(4), 2022 (arXiv 2012.00632).
    """

    about = About(kind="predictions")
    flops_per_value = (2.0, 1.0)

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return a label for each row, and the margin."""
        rows, classes = _table(shape)
        return ArrayForm(_label_dtype(classes), (rows,)), ArrayForm(F32, (1,))

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Find the largest outputs."""
        rows, classes = _table(array.shape)
        if not rows * classes:
            return np.zeros(rows, _label_dtype(classes)), np.zeros(1, F32)
        table = array.reshape(rows, classes).astype(np.float64)
        largest = table.max(axis=1)
        margins = largest - (total(table) - largest) / max(1, classes - 1)
        margin = total(margins) / rows
        margin = np.array([margin if np.isfinite(margin) else np.nan], F32)
        return table.argmax(axis=1).astype(_label_dtype(classes)), margin

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Put the margin in the places of the labels."""
        labels, margin = segments
        table = np.zeros(_table(shape), F32)
        if table.size and labels.max() >= table.shape[1]:
            raise DecodeError(f"a label is {labels.max()}: there are {table.shape[1]} classes")
        if np.isinf(margin).any():
            raise DecodeError("the margin of labels is infinite")
        if table.size:
            table[np.arange(len(labels)), labels] = margin[0]
        return table.reshape(shape)


class TopClassesConfig(Config):
    """How many outputs are sent."""

    classes: Annotated[int, Field(ge=1, le=1000)] = 3
    """Outputs of each row that are sent."""


class TopClasses(Codec[TopClassesConfig]):
    """The largest outputs of each row with their classes, and the mean of the others for these."""

    about = About(kind="predictions")
    flops_per_value = (4.0, 1.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return outputs and means, and the classes."""
        tables = [_table(shape) for shape in shapes]
        values = tuple((rows, self._sent(classes) + 1) for rows, classes in tables)
        segments = (ArrayForm(_label_dtype(classes), (rows, self._sent(classes))) for rows, classes in tables)
        return Layout(values, tuple(segments))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Choose the largest outputs; of equal ones the first."""
        chosen, segments = [], []
        for array in values:
            _, classes = _table(array.shape)
            rows = array.reshape(_table(array.shape))
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, F32.type(np.nan))
            order = np.argsort(-rows, axis=1, kind="stable")
            largest, others = np.split(order, [self._sent(classes)], axis=1)
            largest.sort(axis=1)
            rest = np.take_along_axis(rows, np.sort(others, axis=1), axis=1).astype(np.float64)
            means = total(rest)[:, None] / max(1, others.shape[1])
            kept = np.take_along_axis(rows, largest, axis=1)
            chosen.append(np.concatenate([kept, means.astype(F32)], axis=1))
            segments.append(largest.astype(_label_dtype(classes)))
        return Coded(chosen, segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Put the outputs in the places of their classes."""
        arrays = []
        for shape, values, segment in zip(shapes, coded.values, coded.segments, strict=True):
            (_, classes), labels = _table(shape), segment.astype(np.int64)
            if labels.size and (labels.max() >= classes or (np.diff(labels, axis=1) <= 0).any()):
                raise DecodeError(f"classes of a row are not ascending, or not below {classes}")
            rows = np.repeat(values[:, -1:], classes, axis=1)
            np.put_along_axis(rows, labels, values[:, :-1], axis=1)
            arrays.append(rows.reshape(shape))
        return arrays

    def _sent(self, classes: int) -> int:
        return min(self.config.classes, classes)


def _table(shape: Shape) -> tuple[int, int]:
    """Return the number of rows of an array, and that of the classes."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def _label_dtype(classes: int) -> np.dtype[np.generic]:
    return U8 if classes <= 2**8 else np.dtype("<u2") if classes <= 2**16 else np.dtype("<u4")


PLUGINS = {"hard_labels": HardLabels, "top_classes": TopClasses}
