from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsim.errors import DecodeError
from fedsim.wire.binary_arrays import Bins, arrays_of_bytes, checked_headers, lead
from fedsim.wire.contents import DEFAULT, DTYPES

arrays = hnp.arrays(
    st.sampled_from(list(DTYPES.values())), hnp.array_shapes(min_dims=0, min_side=0, max_side=9)
)


def _list(bins: Bins) -> Any:
    return tuple((name, tuple(shape), num_bytes) for name, shape, num_bytes in bins.listed)


@given(st.binary(max_size=40), st.lists(arrays, max_size=4))
def test_arrays_come_back_from_bytes(head: bytes, sent: list[Any]) -> None:
    bins = Bins(sent)
    first = head + lead(bins.first, len(head))
    whole = b"".join((first, *bins.parts))
    assert len(whole) == len(first) + bins.num_bytes
    announced = checked_headers(_list(bins), DEFAULT)
    received = arrays_of_bytes(memoryview(whole), len(head), announced)
    for one, other in zip(received, sent, strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert not one.flags.writeable


def test_bytes_that_are_left_over_are_no_arrays() -> None:
    bins = Bins([np.zeros(2)])
    data = b"".join((lead(bins.first, 0), *bins.parts, b"x"))
    with pytest.raises(DecodeError, match="1 bytes are left over at byte 32"):
        arrays_of_bytes(memoryview(data), 0, checked_headers(_list(bins), DEFAULT))
