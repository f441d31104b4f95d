"""The table of dtypes, which is part of the format."""

from typing import Any

import numpy as np

from fedsim.walk import octets
from fedsim.wire.contents import DTYPES, NAMES, plain


def test_the_table_is_the_whitelist() -> None:
    scalars = {
        np.bool_,
        *(np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64),
    }
    assert {dtype.type for dtype in NAMES} == scalars
    assert all(np.dtype(name) == dtype and dtype.str == name for name, dtype in DTYPES.items())


def test_scalars_that_numpy_makes_of_0d_arrays_travel() -> None:
    scalar: Any = np.array(3, np.int16) + np.array(4, np.int16)
    assert not isinstance(scalar, np.ndarray)
    made = plain(scalar, "field")
    assert (type(made), made.shape, made.dtype.str, int(made)) == (np.ndarray, (), "<i2", 7)


def test_a_plain_array_is_returned_itself() -> None:
    array = np.zeros((2, 3), np.float32)
    assert plain(array, "field") is array
    assert np.shares_memory(np.frombuffer(octets(array), np.uint8), array)
    assert bytes(octets(np.zeros((0, 3)))) == b""
    assert bytes(octets(np.array(1, np.int16))) == b"\1\0"
