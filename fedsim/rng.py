"""Named random generators, all derived from one seed.

A :class:`Key` is a place in a tree of names. The root is a run's seed; a child is named by words and numbers,
such as ``key.child("train", client, dispatch)``. Equal paths give equal streams, different paths independent
ones, and nothing depends on the order in which generators are asked for. No global generator is ever read.

Words lead to a purpose, and numbers count within it. So the draws of many clients for one purpose
(:meth:`Key.seeds`, :meth:`Key.normals`) take one keyed hash each, with the values that their own keys give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import cos, log, pi, sqrt
from operator import index
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.frozen import made_fast
from fedsim.params import Array

if TYPE_CHECKING:
    import torch


_HALVES: Callable[[bytes], tuple[int, int]] = Struct("<QQ").unpack
"""Gives both halves of 16 bytes as numbers from 0 to 2**64 - 1."""

_MAX_COUNTS = 3
_PACK_COUNTS = [Struct(f"<c{number}q").pack for number in range(_MAX_COUNTS + 1)]
_END_OF_COUNTS = 2**63


@made_fast
@dataclass(frozen=True, slots=True)
class Key:
    """A named place from which generators are made.

    Attributes:
        digest: 16 bytes that stand for the words of the path from the root, and where numbers are among them.
        counts: The numbers, at most 3; ``digest`` stands for those before these.
    """

    digest: bytes
    counts: tuple[int, ...] = ()

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
        digest, counts = self.digest, self.counts
        for name in names:
            if isinstance(name, str):
                word = b"s%d%s" % (len(counts), name.encode())
                digest = blake2b(word, digest_size=16, key=digest).digest()
                continue
            number = index(name)
            if 0 <= number < _END_OF_COUNTS and len(counts) < _MAX_COUNTS:
                counts = (*counts, number)
            else:
                word = b"i%d:%s" % (number, _packed(counts))
                digest, counts = blake2b(word, digest_size=16, key=digest).digest(), ()
        return Key(digest, counts)

    def sibling(self, number: int) -> Key:
        """Return the key with another last number, for a key that ends in one."""
        return Key(self.digest, (*self.counts[:-1], number))

    def seeds(self, counts: Iterable[Sequence[int]]) -> list[int]:
        """Return :attr:`seed` of the keys with the same words and other numbers, as many as this one's."""
        return [half >> 1 for half, _ in self._draws(counts)]

    def normals(self, counts: Iterable[Sequence[int]]) -> list[float]:
        """Return :meth:`normal` of the keys with the same words and other numbers, as many as this one's."""
        return [_normal(*halves) for halves in self._draws(counts)]

    def uniforms(self, counts: Iterable[Sequence[int]]) -> list[float]:
        """Return :meth:`uniform` of the keys with the same words and other numbers, as many as this one's."""
        return [_uniform(half) for half, _ in self._draws(counts)]

    def _draws(self, counts: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
        if not self.counts:
            return [_HALVES(self.digest) for _ in counts]
        pack, begun = _PACK_COUNTS[len(self.counts)], blake2b(digest_size=16, key=self.digest)
        draws = []
        for numbers in counts:
            hashed = begun.copy()
            hashed.update(pack(b"c", *numbers))
            draws.append(_HALVES(hashed.digest()))
        return draws

    def _bytes(self) -> bytes:
        """Return 16 bytes that stand for the whole path."""
        if not self.counts:
            return self.digest
        return blake2b(_packed(self.counts), digest_size=16, key=self.digest).digest()

    @property
    def seed(self) -> int:
        """A seed in ``[0, 2**63)`` for generators that take a number."""
        return _HALVES(self._bytes())[0] >> 1

    def uniform(self) -> float:
        """Return one uniform draw in ``(0, 1]``, computed from the key itself.

        Where a single number is needed, this costs a tenth of making a generator.
        """
        return _uniform(_HALVES(self._bytes())[0])

    def normal(self) -> float:
        """Return one standard normal draw, computed from the key itself (Box and Muller, 1958)."""
        return _normal(*_HALVES(self._bytes()))

    def numpy(self) -> np.random.Generator:
        """Return a new NumPy generator at the start of this key's stream."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self._bytes(), "little")))

    def torch(self) -> torch.Generator:
        """Return a new torch generator, on the CPU, at the start of this key's stream.

        Torch's generator uses 32 bits of its seed: of a hundred thousand keys, about one pair shares one.
        """
        import torch

        return torch.Generator().manual_seed(self.seed)


def _packed(counts: Sequence[int]) -> bytes:
    return _PACK_COUNTS[len(counts)](b"c", *counts)


def _uniform(half: int) -> float:
    return ((half >> 11) + 1) * 2.0**-53


def _normal(first: int, second: int) -> float:
    radius = sqrt(-2 * log(_uniform(first)))
    return radius * cos(2 * pi * ((second >> 11) * 2.0**-53))


class SeededStream:
    """A stream of 64-bit numbers for each seed: Philox4x64-10, keyed by the seed and by a purpose.

    Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011. To start another stream
    takes less than to make a generator. It is started before the first draw, and used by one thread.

    Args:
        purpose: Words that name the purpose.
    """

    def __init__(self, *purpose: str) -> None:
        self._generator = np.random.Philox(key=0)
        self._start: Any = self._generator.state
        self._key = self._start["state"]["key"]
        self._key[1] = _HALVES(Key.root(0).child(*purpose).digest)[0]

    def start(self, seed: int) -> None:
        """Go to the start of the stream of a seed, an integer in ``[0, 2**64)``."""
        self._key[0] = seed
        self._generator.state = self._start

    def draw(self, count: int) -> Array:
        """Return the next numbers, uint64 ``[count]``."""
        numbers: Array = self._generator.random_raw(count)
        return numbers
