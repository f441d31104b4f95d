"""Sets of k of the numbers below n, in a fixed number of bytes.

Elias and Fano: the l = floor(log2(n / k)) low bits of each number, and then one bit for each number and each
bucket of 2^l numbers: k l + k + floor(n / 2^l) + 1 bits (Elias, J. ACM 21(2), 1974). Where that is longer
than n bits, one bit for each number.
"""

from __future__ import annotations

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array
from fedsim.wire.codecs.base import require_zero_bits


def num_bytes(n: int, k: int) -> int:
    """Return the length of an encoded set."""
    return -(-_num_bits(n, k) // 8)


def encode(indices: Array, n: int) -> Array:
    """Return the bytes of ascending numbers, int64 ``[k]``."""
    k = len(indices)
    bits = np.zeros(_num_bits(n, k), bool)
    if _is_bitmap(n, k):
        bits[indices] = True
    elif k:
        low = _low_bits(n, k)
        bits[: k * low] = (indices[:, None] >> np.arange(low) & 1).astype(bool).reshape(-1)
        bits[k * low + (indices >> low) + np.arange(k)] = True
    return np.packbits(bits, bitorder="little")


def decode(packed: Array, n: int, k: int) -> Array:
    """Return the numbers, ascending, int64 ``[k]``.

    Raises:
        DecodeError: These bytes are no such set.
    """
    num_bits = _num_bits(n, k)
    require_zero_bits(packed, num_bits)
    bits = np.unpackbits(packed, count=num_bits, bitorder="little")
    if _is_bitmap(n, k) or not k:
        indices = np.flatnonzero(bits)
    else:
        low = _low_bits(n, k)
        places = np.flatnonzero(bits[k * low :])
        if len(places) != k:
            raise DecodeError(f"a set of {k} of {n} numbers has {len(places)}")
        lows = bits[: k * low].reshape(k, low).astype(np.int64) << np.arange(low)
        indices = (places - np.arange(k) << low) + lows.sum(axis=1)
    if len(indices) != k or (k and (indices[-1] >= n or (np.diff(indices) <= 0).any())):
        raise DecodeError(f"numbers of a set of {k} of {n} are not ascending, or too large or too few")
    return indices


def _low_bits(n: int, k: int) -> int:
    return (n // k).bit_length() - 1


def _is_bitmap(n: int, k: int) -> bool:
    return _elias_fano_bits(n, k) >= n


def _num_bits(n: int, k: int) -> int:
    return min(n, _elias_fano_bits(n, k)) if k else 0


def _elias_fano_bits(n: int, k: int) -> int:
    return k * _low_bits(n, k) + k + (n >> _low_bits(n, k)) + 1 if k else 0
