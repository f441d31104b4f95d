"""The difference from the model that came down, instead of the model."""

from __future__ import annotations

from collections.abc import Sequence

from fedsim.config import Config
from fedsim.params import Array
from fedsim.wire.codecs.base import Codec, Coded, Coding, Layout, Shapes


class Delta(Codec[Config]):
    """Sends the change of the model of that dispatch, as the client has decoded it; first in a chain.

    Of a field that is a change already nothing is subtracted.
    """

    subtracts = True
    unbiased = True
    bits = "32"
    codes = "models"
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
