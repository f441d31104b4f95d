"""The difference from the model that came down, instead of the model."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.config import Config
from fedsim.params import Array
from fedsim.wire.codecs.base import About, Codec, Coded, Coding, Layout, Shapes


class Delta(Codec[Config]):
    """The change of the model of that dispatch, for codecs of changes; first in a chain.

    Of a field that is a change already nothing is subtracted.
    """

    about = About(kind="changes of models", unbiased=True)

    subtracts = True
    flops_per_value = (1.0, 1.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return the same shapes."""
        return Layout(shapes)

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Subtract the reference, if there is one."""
        if not coding.reference:
            return Coded(values)
        return Coded([value - other for value, other in zip(values, coding.reference, strict=True)])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Add the reference."""
        if not coding.reference:
            return list(coded.values)
        return [value + other for value, other in zip(coded.values, coding.reference, strict=True)]


PLUGINS = {"delta": Delta}
