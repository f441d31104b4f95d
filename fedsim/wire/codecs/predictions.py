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
    Codec,
    Coded,
    Coding,
    Layout,
    Shapes,
    checked_scales,
    total,
)

U16 = np.dtype("<u2")
_NO_CLASS = 0xFFFF


class HardLabels(Codec[Config]):
    """8 bits a row: its class, and one margin for all rows (CFD with one bit).

    A row decodes to the margin at this class and 0 elsewhere, which is one-hot for probabilities. The margin
    is the mean over rows of the largest output less the mean of the others. Sattler, Marban, Rischke, Samek:
    CFD: Communication-Efficient Federated Distillation via Soft-Label Quantization and Delta Coding, IEEE
    Transactions on Network Science and Engineering 9(4), 2022 (arXiv 2012.00632).
    """

    about = About(kind="predictions")

    flops_per_value = (2.0, 1.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return a label for each row, and the margin."""
        forms = [(ArrayForm(_label_dtype(shape), (_rows(shape),)), ArrayForm(F32, (1,))) for shape in shapes]
        return Layout((), tuple(form for pair in forms for form in pair))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Find the largest outputs; of equal ones the first."""
        segments = list[Array]()
        for array in values:
            rows = array.reshape(_rows(array.shape), -1) if array.size else np.empty((0, 1), F32)
            labels = rows.argmax(axis=1) if rows.size else np.empty(0, np.int64)
            wide = rows.astype(np.float64)
            largest, others = wide.max(axis=1, initial=-np.inf), max(1, wide.shape[1] - 1)
            margins = largest - (total(wide) - largest) / others
            margin = total(margins) / max(1, len(rows))
            margin = margin if np.isfinite(margin) else np.nan
            segments += (
                labels.astype(_label_dtype(array.shape)),
                np.array([margin if len(rows) else 0.0], F32),
            )
        return Coded((), segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Put the margin in the places of the labels."""
        arrays = []
        for shape, labels, margin in zip(shapes, coded.segments[::2], coded.segments[1::2], strict=True):
            rows = np.zeros((_rows(shape), _classes(shape)), F32)
            if len(labels) and labels.max() >= rows.shape[1]:
                raise DecodeError(f"a label is {labels.max()}: there are {rows.shape[1]} classes")
            rows[np.arange(len(labels)), labels] = checked_scales(margin)[0]
            arrays.append(rows.reshape(shape))
        return arrays


class TopClassesConfig(Config):
    """How many outputs are sent."""

    classes: Annotated[int, Field(ge=1, le=1000)] = 3
    """Outputs of each row that are sent."""


class TopClasses(Codec[TopClassesConfig]):
    """The largest outputs of each row with their classes, and the mean of the others."""

    about = About(kind="predictions")

    flops_per_value = (4.0, 1.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return outputs and means, and the classes."""
        values = tuple((_rows(shape), self._sent(shape) + 1) for shape in shapes)
        segments = (ArrayForm(_label_dtype(shape), (_rows(shape), self._sent(shape))) for shape in shapes)
        return Layout(values, tuple(segments))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Choose the largest outputs; of equal ones the first."""
        chosen, segments = [], []
        for array in values:
            rows = array.reshape(_rows(array.shape), _classes(array.shape))
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, F32.type(np.nan))
            order = np.argsort(-rows, axis=1, kind="stable")
            classes, others = np.split(order, [self._sent(array.shape)], axis=1)
            classes.sort(axis=1)
            rest = np.take_along_axis(rows, np.sort(others, axis=1), axis=1).astype(np.float64)
            means = total(rest)[:, None] / max(1, others.shape[1])
            kept = np.take_along_axis(rows, classes, axis=1)
            chosen.append(np.concatenate([kept, means.astype(F32)], axis=1))
            segments.append(classes.astype(_label_dtype(array.shape)))
        return Coded(chosen, segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Put the outputs in the places of their classes."""
        arrays = []
        for shape, values, classes in zip(shapes, coded.values, coded.segments, strict=True):
            if classes.size and (
                classes.max() >= _classes(shape) or (np.diff(classes.astype(np.int64), axis=1) <= 0).any()
            ):
                raise DecodeError(f"classes of a row are not ascending, or not below {_classes(shape)}")
            rows = np.repeat(values[:, -1:], _classes(shape), axis=1)
            np.put_along_axis(rows, classes.astype(np.int64), values[:, :-1], axis=1)
            arrays.append(rows.reshape(shape))
        return arrays

    def _sent(self, shape: tuple[int, ...]) -> int:
        return min(self.config.classes, _classes(shape))


def _classes(shape: tuple[int, ...]) -> int:
    return shape[-1] if shape else 1


def _rows(shape: tuple[int, ...]) -> int:
    return prod(shape[:-1])


def _label_dtype(shape: tuple[int, ...]) -> np.dtype[np.generic]:
    return U8 if _classes(shape) <= 256 else U16 if _classes(shape) <= _NO_CLASS else np.dtype("<u4")


PLUGINS = {"hard_labels": HardLabels, "top_classes": TopClasses}
