"""The contract of a codec, which makes the arrays of a message shorter before they become a frame.

A codec is a pure function of arrays, its parameters and a key. It takes float32 arrays, the *values*, and
gives values on which the next codec of a chain works, and *segments*, which travel as they are. The forms of
both follow from the shapes of what it takes, so the length of a frame is known before the values are; only a
codec that says otherwise in ``longest`` needs the values.

Bits are equal on every processor: codecs use no sum of NumPy or BLAS, whose order depends on the processor
(:func:`total` adds in a fixed order), and no choice among equal values that a sort makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm
from fedsim.plugins import C, Plugin
from fedsim.rng import Key

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
F32, I8, U8 = np.dtype("<f4"), np.dtype("|i1"), np.dtype("|u1")


class Layout(NamedTuple):
    """Shapes of values that go on to the next codec, and forms of segments."""

    values: Shapes
    segments: tuple[ArrayForm, ...] = ()


class Coded(NamedTuple):
    """Values that go on to the next codec, and segments."""

    values: Sequence[Array]
    segments: Sequence[Array] = ()


@dataclass(frozen=True, slots=True)
class Coding:
    """How arrays are coded, beside the codec's own parameters.

    Attributes:
        key: Names the generator of an encoder; a decoder has none.
        reference: Arrays that both sides have, of the shapes of the values, for ``delta``.
        has_feedback: Whether what is left out is sent later (error feedback), so that nothing is scaled up.
    """

    key: Key | None = None
    reference: Sequence[Array] = ()
    has_feedback: bool = False

    def generator(self) -> np.random.Generator:
        """Return a new generator of the encoder."""
        if self.key is None:
            raise ValueError("only an encoder draws")
        return self.key.numpy()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts of a codec.

    Attributes:
        kind: What it is made for: any array that counts as parameters; changes of models, as ``delta`` gives
            them; or predictions.
        unbiased: Whether the expectation of what is decoded is what was encoded.
    """

    kind: Literal["any array", "changes of models", "predictions"]
    unbiased: bool = False


class Codec(Plugin[C], ABC):
    """Base of all codecs.

    Attributes:
        about: Facts of it.
        subtracts: Whether it makes changes of models.
        takes_segments: Whether it codes what the codecs before give, too.
        extra: The package that it needs and the extra of fedsim that installs it; empty: none.
        longest: Path of a codec that always gives the most bytes that this one can give, if its length
            depends on values.
        flops_per_value: Operations for each value, of encoding and of decoding.
    """

    about: ClassVar[About]
    subtracts: ClassVar[bool] = False
    takes_segments: ClassVar[bool] = False
    extra: ClassVar[tuple[str, str]] = ("", "")
    longest: ClassVar[str] = ""
    flops_per_value: ClassVar[tuple[float, float]] = (0.0, 0.0)

    @abstractmethod
    def coded(self, shapes: Shapes) -> Layout:
        """Return the forms of what :meth:`encode` gives for values of these shapes."""

    @abstractmethod
    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Encode float32 arrays; what is not finite decodes to NaN."""

    @abstractmethod
    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> Sequence[Array]:
        """Return float32 arrays of these shapes.

        Args:
            coded: Of the forms that :meth:`coded` gives for the shapes.
            shapes: Those of the values that were encoded.
            coding: That of the encoder, without its key.

        Raises:
            DecodeError: Segments that no encoder gives.
        """

    def flops(self, before: Layout) -> tuple[float, float]:
        """Return the operations of encoding and of decoding what is laid out like this."""
        count, (encode, decode) = num_values(before.values), self.flops_per_value
        return encode * count, decode * count

    def num_saturated(self, segments: Sequence[Array]) -> int:
        """Return how many values were beyond the codec's range and have become the largest number."""
        return 0

    # With the segments of codecs before it in a chain

    def layout(self, before: Layout) -> Layout:
        """Return the forms of what :meth:`apply` gives."""
        own = self.coded(before.values)
        return Layout(own.values, before.segments + own.segments)

    def apply(self, before: Coded, coding: Coding) -> Coded:
        """Encode the values, and add the segments."""
        own = self.encode(before.values, coding)
        return Coded(own.values, (*before.segments, *own.segments))

    def undo(self, after: Coded, before: Layout, coding: Coding) -> Coded:
        """Return what :meth:`apply` has encoded."""
        first = len(before.segments)
        own = Coded(after.values, after.segments[first:])
        return Coded(self.decode(own, before.values, coding), after.segments[:first])


class ArrayCodec(Codec[C]):
    """Base of codecs that give segments for each array by itself, and no values."""

    @abstractmethod
    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return the forms of the segments of an array."""

    @abstractmethod
    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Return the segments of a float32 array."""

    @abstractmethod
    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Return the float32 array of a shape; a DecodeError where no encoder gives the segments."""

    def coded(self, shapes: Shapes) -> Layout:
        """Return the forms of the segments, array by array."""
        return Layout((), tuple(form for shape in shapes for form in self.forms(shape)))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Encode one array after the other."""
        generator = coding.generator()
        return Coded((), [one for array in values for one in self.encode_array(array, generator)])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Decode one array after the other."""
        segments = iter(coded.segments)
        return [self.decode_array([next(segments) for _ in self.forms(shape)], shape) for shape in shapes]


def num_values(shapes: Shapes) -> int:
    """Return the scalars of arrays of these shapes."""
    return sum(map(prod, shapes))


def split(row: Array, shapes: Shapes) -> list[Array]:
    """Return parts of a row as arrays of these shapes."""
    parts, first = [], 0
    for shape in shapes:
        parts.append(row[first : first + prod(shape)].reshape(shape))
        first += prod(shape)
    return parts


def total(terms: NDArray[np.float64]) -> Any:
    """Return the sum along the last axis, added in halves: in one order on every processor."""
    while (count := terms.shape[-1]) > 1:
        half = count // 2
        pairs = terms[..., :half] + terms[..., half : 2 * half]
        terms = np.concatenate([pairs, terms[..., 2 * half :]], axis=-1) if count % 2 else pairs
    return terms[..., 0] if terms.shape[-1] else np.zeros(terms.shape[:-1], terms.dtype)


def checked_scales(scales: Array) -> Array:
    """Return scales; a DecodeError if one is negative or infinite. NaN marks what was not finite."""
    if (scales < 0).any() or np.isinf(scales).any():
        raise DecodeError("a scale of coded values is negative or infinite")
    return scales


def require_zero_bits(packed: Array, num_bits: int) -> None:
    """Raise ``DecodeError`` if a bit behind the last one that counts is set, the lowest bits being first."""
    if num_bits % 8 and packed[-1] >> num_bits % 8:
        raise DecodeError(f"bits behind the {num_bits} of coded values are set")
