"""Parts of models, and models composed of the parts of two.

A net is cut between its layers, and what is below and above a cut are architectures like any other. Their
labels are written like slices::

    cnn[:2]              the first two layers of cnn; its outputs are feature maps
    cnn[2:]              the other layers of cnn; its samples are such feature maps
    small[:2]+big[3:]    those of big on top of those of small

A model of such a label can do what every model can: it travels in the same messages and counts its own
bytes and parameters, it is averaged, trained, predicted with and evaluated, and its work has its cost. A part
has the names of the whole model, so it can be put into one again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from fedsim.config import Config
from fedsim.errors import DataError
from fedsim.models.architecture import Architecture
from fedsim.models.base import ModelPlugin, Net, named
from fedsim.models.mixture import SEPARATOR, mixed, mixture_of
from fedsim.params import Model, Tree
from fedsim.task import Task

_PART = re.compile(r"(?P<whole>[^\[\]+|]+)\[(?::(?P<below>\d{1,4})|(?P<above>\d{1,4}):)\]")
_LOWER, _UPPER = "lower", "upper"


def with_part(model: Model, *parts: Model) -> Model:
    """Return a model with the values of parts of it in place of its own."""
    params, buffers = dict(model.params), dict(model.buffers)
    for part in parts:
        for mine, its in ((params, part.params), (buffers, part.buffers)):
            if strange := [name for name in its if name not in mine]:
                raise ValueError(
                    f"{part.architecture!r} is no part of a model {model.architecture!r}, which has no "
                    f"{strange[0]!r}"
                )
            for name, array in its.items():
                if array.shape != mine[name].shape:
                    raise ValueError(
                        f"{name!r} of {part.architecture!r} is of shape {array.shape}, and that of a model "
                        f"{model.architecture!r} of {mine[name].shape}: take a part of a model whose layers "
                        "are alike there"
                    )
            mine.update(its)
    return Model(model.architecture, params, buffers)


def composed(lower: Model, upper: Model) -> Model:
    """Return the model that computes what is above a cut from what another one computes below its own."""
    for model, side in ((lower, "below"), (upper, "above")):
        match = _PART.fullmatch(model.architecture)
        if match is None or match[side] is None:
            raise ValueError(
                f"a model {model.architecture!r} where one of the layers {side} a cut belongs: take "
                f"architecture.{side}(cut).part_of(model)"
            )
    return Model(
        f"{lower.architecture}+{upper.architecture}",
        {**_moved(lower.params, _LOWER), **_moved(upper.params, _UPPER)},
        {**_moved(lower.buffers, _LOWER), **_moved(upper.buffers, _UPPER)},
    )


def _moved(tree: Tree, place: str) -> Tree:
    """Return a tree under the names that it has in a composed net; arrays of the head keep their names."""
    return {re.sub(r"^body\.", f"body.{place}.", name): array for name, array in tree.items()}


class Architectures(dict[str, Architecture]):
    """The architectures of a run by label; parts, compositions of these and mixtures are found by theirs.

    Only whole ones are listed. A part that there cannot be raises ``DataError``, any other label that is not
    known ``KeyError``.
    """

    def __missing__(self, label: str) -> Architecture:
        below, plus, above = label.partition("+")
        if plus:
            return _composition(self._part(below, "below"), self._part(above, "above"))
        if both := self._in_mixture(label):
            first, second = both
            return mixture_of(self[first], self[second])
        return self._part(label)

    def start(self, label: str, initial: Callable[[str], Model]) -> Model | None:
        """Return the start values of an architecture, a part or a mixture; None if no one has this label."""
        if label in self:
            return initial(label)
        if both := self._in_mixture(label):
            first, second = map(initial, both)
            return mixed(first, second, 0.5)
        try:
            part = self._part(label)
        except (DataError, KeyError):
            return None
        return part.part_of(initial(label.partition("[")[0]))

    def _in_mixture(self, label: str) -> tuple[str, str] | None:
        """Return the labels of the two listed architectures that are mixed, if this is such a label."""
        first, bar, second = label.partition(SEPARATOR)
        return (first, second) if bar and first in self and second in self else None

    def _part(self, label: str, side: str = "") -> Architecture:
        """Return a part by its label, on any side of its cut or on the one that is wanted."""
        if (match := _PART.fullmatch(label)) is None or (side and match[side] is None):
            raise KeyError(label)
        whole, above, below = self[match["whole"]], match["above"], match["below"]
        part = whole.below(int(below)) if above is None else whole.above(int(above))
        if part.label != label:  # such as a[0:], which is a
            raise KeyError(label)
        return part


class _Stack(ModelPlugin[Config]):
    """The layers of one architecture on top of those of another."""

    def __init__(self, lower: Architecture, upper: Architecture) -> None:
        super().__init__(Config())
        self._lower, self._upper = lower, upper

    def build(self, task: Task) -> Net:
        lower, upper = self._lower.skeleton(), self._upper.skeleton()
        return Net(named(**{_LOWER: lower.body, _UPPER: upper.body}), upper.head)


@lru_cache(maxsize=256)
def _composition(lower: Architecture, upper: Architecture) -> Architecture:
    if lower.output_shape != upper.task.input_shape:
        raise DataError(
            f"{upper.label!r} cannot stand on {lower.label!r}: it takes features of shape "
            f"{upper.task.input_shape}, and those are of shape {lower.output_shape}; cut elsewhere, or take "
            "models whose shapes are alike at the cut"
        )
    below = lower.task
    task = replace(upper.task, input_shape=below.input_shape, vocabulary=below.vocabulary)
    return Architecture(f"{lower.label}+{upper.label}", _Stack(lower, upper), task)
