"""Named random generators, all derived from one seed.

A :class:`Key` is a place in a tree of names. The root is a run's seed; a child is named by words and numbers,
such as ``key.child("train", client, dispatch)``. Equal paths give equal streams, different paths independent
ones, and nothing depends on the order in which generators are asked for. No global generator is ever read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import cos, log, pi, sqrt
from operator import index
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


_HALVES: Callable[[bytes], tuple[int, int]] = Struct("<QQ").unpack
"""Gives both halves of a digest as numbers from 0 to 2**64 - 1."""


@dataclass(frozen=True, slots=True)
class Key:
    """A named place from which generators are made.

    Attributes:
        digest: 16 bytes that stand for the whole path from the root.
    """

    digest: bytes

    @classmethod
    def root(cls, seed: int) -> Key:
        """Return the key of a run's seed (any integer)."""
        return cls(blake2b(b"fedsim:%d" % seed, digest_size=16).digest())

    def child(self, *names: str | int) -> Key:
        """Return the key reached by ``names``; ``child("a", 1)`` is ``child("a").child(1)``.

        A word and a number of the same spelling are different names; NumPy's integers are numbers too.

        Raises:
            TypeError: A name that is neither a string nor an integer.
        """
        digest = self.digest
        for name in names:
            if type(name) is int:  # as mostly
                word = b"i%d" % name
            else:
                word = b"s" + name.encode() if isinstance(name, str) else b"i%d" % index(name)
            digest = blake2b(word, digest_size=16, key=digest).digest()
        return Key(digest)

    @property
    def seed(self) -> int:
        """A seed in ``[0, 2**63)`` for generators that take a number."""
        return _HALVES(self.digest)[0] >> 1

    def uniform(self) -> float:
        """Return one uniform draw in ``(0, 1]``, computed from the key itself.

        Where a single number is needed, this costs a tenth of making a generator.
        """
        return ((_HALVES(self.digest)[0] >> 11) + 1) * 2.0**-53

    def normal(self) -> float:
        """Return one standard normal draw, computed from the key itself (Box and Muller, 1958)."""
        first, second = _HALVES(self.digest)
        radius = sqrt(-2 * log(((first >> 11) + 1) * 2.0**-53))
        return radius * cos(2 * pi * ((second >> 11) * 2.0**-53))

    def numpy(self) -> np.random.Generator:
        """Return a new NumPy generator at the start of this key's stream."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self.digest, "little")))

    def torch(self) -> torch.Generator:
        """Return a new torch generator, on the CPU, at the start of this key's stream.

        Torch's generator uses 32 bits of its seed: of a hundred thousand keys, about one pair shares one.
        """
        import torch

        return torch.Generator().manual_seed(self.seed)
