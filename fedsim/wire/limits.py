"""The limits of frames. They hold for packing too, so whatever is sent can be decoded under the default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a decoder accepts.

    There is no limit of nesting: the declared fields of a kind say how deep its trees go.

    Attributes:
        frame_bytes: Longest frame.
        envelope_bytes: Longest envelope.
        arrays: Most arrays in a frame, and most names in one tree.
        dimensions: Most dimensions of an array.
        string_bytes: Longest string in UTF-8.
        name_characters: Longest name in a tree, and longest name of an exchange.
    """

    frame_bytes: int = 2**31
    envelope_bytes: int = 256 * 1024
    arrays: int = 4096
    dimensions: int = 16
    string_bytes: int = 4096
    name_characters: int = 256


DEFAULT = Limits()
