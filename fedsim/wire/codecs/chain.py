"""Codecs one after the other, on the arrays of one tree.

A coded tree is a tree again, so it travels as any other. It has, under the names of the tree: small arrays,
and those that are no floating-point numbers, as they are; instead of each coded array an empty one of its
dtype and of the shape ``[0, *shape]``, which takes no bytes. Behind them are the segments, called ``+0``,
``+1`` and so on. So the form of a coded tree tells that of the tree, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm, Form, Tree, freeze
from fedsim.rng import Key
from fedsim.wire.codecs.base import F32, Codec, Coded, Coding, Layout, Shapes


class Encoded(NamedTuple):
    """A tree that was encoded.

    Attributes:
        tree: The coded tree.
        residual: What was left out of each coded array, float32; empty without error feedback.
        num_saturated: Values that were beyond a codec's range.
    """

    tree: Tree
    residual: Tree
    num_saturated: int


class Decoded(NamedTuple):
    """A tree that was decoded, and how many values were beyond a codec's range."""

    tree: Tree
    num_saturated: int


@dataclass(frozen=True, eq=False)
class Chain:
    """Codecs, first to last; without any nothing is coded.

    Attributes:
        codecs: The codecs.
        least_bytes: Arrays that are smaller stay as they are.
        has_feedback: Whether what is left out is added to the next tree (error feedback).
    """

    codecs: Sequence[Codec[Any]]
    least_bytes: int = 0
    has_feedback: bool = False

    @property
    def has_fixed_length(self) -> bool:
        """Whether the length of a coded tree follows from its form."""
        return not any(codec.longest for codec in self.codecs)

    @property
    def subtracts(self) -> bool:
        """Whether changes are coded."""
        return bool(self.codecs) and self.codecs[0].subtracts

    def form(self, form: Form) -> Form:
        """Return the form of the coded tree, given that of the tree; the longest one where lengths vary."""
        return _coded_form(self, form)

    def residual_form(self, form: Form) -> Form:
        """Return the form of what is left out of a tree."""
        return Form.of({name: ArrayForm(F32, form[name].shape) for name in self._names(form)})

    def encode(
        self, tree: Tree, key: Key, reference: Tree | None = None, residual: Tree | None = None
    ) -> Encoded:
        """Encode a tree.

        Args:
            tree: The tree.
            key: Names the generators.
            reference: What both sides have of the same form; None where nothing is subtracted.
            residual: What was left out before; None or empty where nothing was.
        """
        names, left, saturated = self._names(tree), dict[str, Array](), 0
        with np.errstate(all="ignore"):
            changes, rest = _floats(tree, names), self.codecs
            if self.subtracts:
                coding = Coding(reference=_floats(reference, names))
                changes, rest = list(rest[0].encode(changes, coding).values), rest[1:]
            if residual:
                changes = [change + residual[name] for name, change in zip(names, changes, strict=True)]
            coded = Coded(changes)
            for number, codec in enumerate(rest):
                before = len(coded.segments)
                coded = codec.apply(coded, Coding(key.child(number), has_feedback=self.has_feedback))
                saturated += codec.num_saturated(coded.segments[before:])
            if self.has_feedback:
                layouts = _layouts(rest, tuple(array.shape for array in changes))
                decoded, _ = _undone(coded, layouts, rest, Coding())
                pairs = zip(names, changes, decoded, strict=True)
                left = {name: change - sent for name, change, sent in pairs}
        whole = {
            name: np.empty((0, *array.shape), array.dtype) if self._is_coded(array) else array
            for name, array in tree.items()
        }
        segments = [*coded.segments, *(np.asarray(array, F32, order="C") for array in coded.values)]
        whole |= {f"+{number}": segment for number, segment in enumerate(segments)}
        return Encoded(freeze(whole), freeze(left), saturated)

    def decode(self, coded: Tree, reference: Tree | None = None) -> Decoded:
        """Return the tree that was encoded; :meth:`check_form` has accepted the form of the coded one.

        Raises:
            DecodeError: Segments that no encoder gives.
        """
        form = plain_form(Form.of(coded))
        names, layouts = self._names(form), _layouts(self.codecs, self._shapes(form))
        parts = [array for name, array in coded.items() if name.startswith("+")]
        count = len(layouts[-1].segments)
        with np.errstate(all="ignore"):
            coding = Coding(reference=_floats(reference, names))
            segments = Coded(parts[count:], parts[:count])
            values, saturated = _undone(segments, layouts, self.codecs, coding)
            arrays = {
                name: value.astype(form[name].dtype, copy=False)
                for name, value in zip(names, values, strict=True)
            }
        return Decoded(
            freeze({name: arrays[name] if name in arrays else coded[name] for name in form}), saturated
        )

    def check_form(self, coded: Form) -> None:
        """Raise ``DecodeError`` unless a form is that of a coded tree that an encoder gives."""
        try:
            expected = self.form(plain_form(coded))
        except ValueError as error:
            raise DecodeError(f"a coded tree: {error}") from None
        if list(expected) != list(coded):
            raise DecodeError(f"a coded tree: {len(coded)} arrays where {len(expected)} belong")
        for name, array in expected.items():
            own = coded[name]
            is_alike = own.shape == array.shape or (not self.has_fixed_length and _is_shorter(own, array))
            if own.dtype != array.dtype or not is_alike:
                is_one, wanted = f"{own.dtype} of {own.shape}", f"{array.dtype} of {array.shape}"
                raise DecodeError(f"a coded tree: {name!r} is {is_one}, not {wanted}")

    def flops(self, form: Form) -> tuple[float, float]:
        """Return the operations of encoding and of decoding a tree."""
        encode = decode = 0.0
        for codec, layout in zip(self.codecs, _layouts(self.codecs, self._shapes(form)), strict=False):
            its_encode, its_decode = codec.flops(layout)
            encode, decode = encode + its_encode, decode + its_decode
        # What is left out is found by decoding.
        return encode + (decode if self.has_feedback else 0.0), decode

    def _is_coded(self, array: Array | ArrayForm) -> bool:
        """Say whether an array is coded. Empty ones that would look like a coded one are, too."""
        if not prod(array.shape):
            return bool(array.shape) and array.shape[0] == 0
        return bool(self.codecs) and array.dtype.kind == "f" and array.nbytes >= self.least_bytes

    def _names(self, tree: Mapping[str, Array | ArrayForm]) -> list[str]:
        return [name for name, array in tree.items() if self._is_coded(array)]

    def _shapes(self, form: Form) -> Shapes:
        return tuple(form[name].shape for name in self._names(form))


@lru_cache(maxsize=1024)
def _coded_form(chain: Chain, form: Form) -> Form:
    last = _layouts(chain.codecs, chain._shapes(form))[-1]
    segments = [*last.segments, *(ArrayForm(F32, shape) for shape in last.values)]
    coded = {
        name: ArrayForm(array.dtype, (0, *array.shape)) if chain._is_coded(array) else array
        for name, array in form.items()
    }
    coded |= {f"+{number}": segment for number, segment in enumerate(segments)}
    if len(coded) != len(form) + len(segments):
        raise ValueError(f"arrays of a coded tree are not called '+0': {list(form)}")
    return Form.of(coded)


@lru_cache(maxsize=1024)
def plain_form(coded: Form) -> Form:
    """Return the form of the tree that a coded one stands for."""
    return Form.of(
        {
            name: ArrayForm(array.dtype, array.shape[1:]) if array.shape[:1] == (0,) else array
            for name, array in coded.items()
            if not name.startswith("+")
        }
    )


def _layouts(codecs: Sequence[Codec[Any]], shapes: Shapes) -> list[Layout]:
    """Return the layout before each codec, and that after the last."""
    layouts = [Layout(shapes)]
    for codec in codecs:
        layouts.append(codec.layout(layouts[-1]))
    return layouts


def _undone(
    coded: Coded, layouts: Sequence[Layout], codecs: Sequence[Codec[Any]], coding: Coding
) -> tuple[Sequence[Array], int]:
    """Return the values that were encoded, and how many were beyond a codec's range."""
    saturated = 0
    for codec, before in zip(reversed(codecs), reversed(layouts[:-1]), strict=True):
        saturated += codec.num_saturated(coded.segments[len(before.segments) :])
        coded = codec.undo(coded, before, coding)
    return coded.values, saturated


def _is_shorter(array: ArrayForm, longest: ArrayForm) -> bool:
    return len(array.shape) == len(longest.shape) == 1 and array.shape < longest.shape


def _floats(tree: Tree | None, names: Sequence[str]) -> list[Array]:
    return [] if tree is None else [np.asarray(tree[name], F32, order="C") for name in names]
