"""Codecs one after the other, on the arrays of one tree.

A coded tree is a tree again, so it travels as any other. It has, under the names of the tree: small arrays,
and those that are no floating-point numbers, as they are; instead of each coded array an empty one of its
dtype and of the shape ``[0, *shape]``, which takes no bytes. Behind them are the segments, called ``+0``,
``+1`` and so on. So the form of a coded tree tells that of the tree, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm, Form, Tree, forms_of, freeze
from fedsim.rng import Key
from fedsim.wire.codecs.base import F32, Codec, Coded, Coding, Layout, Shapes

SCALARS_PER_BYTE = 16
"""A coded tree may stand for so many scalars a byte, however large the models of a run are."""


class Encoded(NamedTuple):
    """A tree that was encoded.

    Attributes:
        tree: The coded tree.
        residual: What was left out, by name, float32; empty without error feedback.
    """

    tree: Tree
    residual: Tree


@dataclass(frozen=True, eq=False)
class Chain:
    """Codecs, first to last.

    Attributes:
        codecs: The codecs.
        least_bytes: Arrays that are smaller stay as they are.
        has_feedback: Whether what is left out is added to the next tree (error feedback).
    """

    codecs: Sequence[Codec[Any]]
    least_bytes: int = 0
    has_feedback: bool = False
    form: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "form", lru_cache(maxsize=256)(self._form))

    @property
    def has_fixed_length(self) -> bool:
        """Whether the length of a coded tree follows from its form."""
        return all(codec.has_fixed_length for codec in self.codecs)

    @property
    def subtracts(self) -> bool:
        """Whether changes are coded."""
        return bool(self.codecs) and self.codecs[0].subtracts

    def _form(self, form: Form) -> Form:
        """Return the form of the coded tree for that of a tree; of the longest where lengths vary."""
        segments = self._layouts(self._shapes(form))[-1]
        forms = [*segments.segments, *(ArrayForm(F32, shape) for shape in segments.values)]
        coded = {
            name: ArrayForm(array.dtype, (0, *array.shape)) if self._is_coded(array) else array
            for name, array in form.items()
        }
        coded |= {f"+{number}": segment for number, segment in enumerate(forms)}
        if len(coded) != len(form) + len(forms):
            raise ValueError(f"arrays of a coded tree are not called '+0': {list(form)}")
        return _form(coded)

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
        names = [name for name, array in tree.items() if self._is_coded(array)]
        coding = Coding(key, _floats(reference, names), self.has_feedback)
        values = _floats(tree, names)
        with np.errstate(all="ignore"):
            changes, rest = values, self.codecs
            if self.subtracts:
                changes, rest = list(rest[0].encode(values, coding).values), rest[1:]
            if residual:
                changes = [change + residual[name] for name, change in zip(names, changes, strict=True)]
            coded = Coded(changes)
            for number, codec in enumerate(rest):
                coded = codec.apply(coded, Coding(key.child(str(number)), has_feedback=self.has_feedback))
            left = dict[str, Array]()
            if self.has_feedback:
                layouts = self._layouts(tuple(array.shape for array in changes))
                decoded = self._undone(coded, layouts[len(self.codecs) - len(rest) :], rest, Coding())
                left = {
                    name: change - sent for name, change, sent in zip(names, changes, decoded, strict=True)
                }
        return Encoded(freeze(self._as_tree(tree, coded)), freeze(left))

    def _as_tree(self, tree: Tree, coded: Coded) -> Tree:
        whole = {
            name: np.empty((0, *array.shape), array.dtype) if self._is_coded(array) else array
            for name, array in tree.items()
        }
        segments = [*coded.segments, *(np.asarray(array, F32, order="C") for array in coded.values)]
        return whole | {f"+{number}": segment for number, segment in enumerate(segments)}

    def decode(self, coded: Tree, reference: Tree | None = None) -> Tree:
        """Return the tree that was encoded; :func:`check_form` has accepted the form of the coded one.

        Raises:
            DecodeError: Segments that no encoder gives.
        """
        form = plain_form(Form.of(coded))
        names = [name for name, array in form.items() if self._is_coded(array)]
        layouts = self._layouts(self._shapes(form))
        parts = [array for name, array in coded.items() if name.startswith("+")]
        count = len(layouts[-1].segments)
        with np.errstate(all="ignore"):
            coding = Coding(None, _floats(reference, names))
            values = self._undone(Coded(parts[count:], parts[:count]), layouts, self.codecs, coding)
            arrays = {
                name: value.astype(form[name].dtype, copy=False)
                for name, value in zip(names, values, strict=True)
            }
        return freeze({name: arrays[name] if name in arrays else coded[name] for name in form})

    def check_form(self, coded: Tree, max_scalars: int) -> None:
        """Raise ``DecodeError`` unless the form of a coded tree is that of an encoder's.

        No memory is taken for it: it may stand for at most so many scalars, or :data:`SCALARS_PER_BYTE`.
        """
        forms = Form.of(cast(Tree, forms_of(coded)))
        try:
            form, num_bytes = plain_form(forms), sum(array.nbytes for array in forms.values())
            if form.size > max(max_scalars, SCALARS_PER_BYTE * num_bytes):
                raise ValueError(f"it stands for {form.size} scalars, models of this run have {max_scalars}")
            expected = self.form(form)
        except ValueError as error:
            raise DecodeError(f"a coded tree: {error}") from None
        if list(expected) != list(forms):
            raise DecodeError(f"a coded tree: {len(forms)} arrays where {len(expected)} belong")
        for name, array in expected.items():
            own = forms[name]
            is_alike = own.shape == array.shape or (not self.has_fixed_length and _is_shorter(own, array))
            if own.dtype != array.dtype or not is_alike:
                is_one, wanted = f"{own.dtype} of {own.shape}", f"{array.dtype} of {array.shape}"
                raise DecodeError(f"a coded tree: {name!r} is {is_one}, not {wanted}")

    def num_saturated(self, coded: Tree) -> int:
        """Return how many values of a coded tree were beyond a codec's range."""
        layouts = self._layouts(self._shapes(plain_form(Form.of(coded))))
        segments, count = [coded[name] for name in coded if name.startswith("+")], 0
        for codec, before, after in zip(self.codecs, layouts, layouts[1:], strict=False):
            count += codec.num_saturated(segments[len(before.segments) : len(after.segments)])
        return count

    def flops(self, form: Form) -> tuple[float, float]:
        """Return the operations of encoding and of decoding a tree."""
        encode = decode = 0.0
        for codec, layout in zip(self.codecs, self._layouts(self._shapes(form)), strict=False):
            its_encode, its_decode = codec.flops(layout.values)
            encode, decode = encode + its_encode, decode + its_decode
        # What is left out is found by decoding.
        return encode + (decode if self.has_feedback else 0.0), decode

    def _is_coded(self, array: Array | ArrayForm) -> bool:
        """Say whether an array is coded. Empty ones that would look like a coded one are, too."""
        if not prod(array.shape):
            return bool(array.shape) and array.shape[0] == 0
        return array.dtype.kind == "f" and array.nbytes >= self.least_bytes

    def _shapes(self, form: Form) -> Shapes:
        return tuple(array.shape for array in form.values() if self._is_coded(array))

    def _layouts(self, shapes: Shapes) -> list[Layout]:
        """Return the layout before each codec, and that after the last."""
        layouts = [Layout(shapes)]
        for codec in self.codecs:
            layouts.append(codec.layout(layouts[-1]))
        return layouts

    @staticmethod
    def _undone(
        coded: Coded, layouts: Sequence[Layout], codecs: Sequence[Codec[Any]], coding: Coding
    ) -> Sequence[Array]:
        for codec, before in zip(reversed(codecs), reversed(layouts[:-1]), strict=True):
            coded = codec.undo(coded, before, coding)
        return coded.values


@lru_cache(maxsize=256)
def plain_form(coded: Form) -> Form:
    """Return the form of the tree that a coded one stands for."""
    return _form(
        {
            name: ArrayForm(array.dtype, array.shape[1:]) if array.shape[:1] == (0,) else array
            for name, array in coded.items()
            if not name.startswith("+")
        }
    )


def _form(forms: Mapping[str, ArrayForm]) -> Form:
    return Form.of(cast(Tree, forms))


def _is_shorter(array: ArrayForm, longest: ArrayForm) -> bool:
    return len(array.shape) == len(longest.shape) == 1 and array.shape < longest.shape


def _floats(tree: Tree | None, names: Sequence[str]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [] if tree is None else [np.asarray(tree[name], F32, order="C") for name in names]
