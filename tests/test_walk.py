from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.walk import digest, field_names, instances, little_endian, octets, parts


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = None


@dataclass
class Empty:
    pass


class Settings(Config):
    rate: float = 1.0


@pytest.mark.parametrize(
    ("value", "made_of"),
    [
        (Pair(1, 2), {"left": 1, "right": 2}),
        (Settings(), {"rate": 1.0}),
        ({"b": 1, 0: 2}, {"b": 1, 0: 2}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ((7, 8), {0: 7, 1: 8}),
        ([7], {0: 7}),
        *((leaf, {}) for leaf in (None, 1, 2.0, "text", b"bytes", Pair, len, {1}, Empty(), np.zeros(3))),
    ],
)
def test_what_a_value_is_made_of(value: Any, made_of: Mapping[Any, Any]) -> None:
    assert list(parts(value).items()) == list(made_of.items())


def test_a_record_without_fields_is_a_record() -> None:
    assert field_names(Empty) == ()
    assert field_names(int) is None


def test_instances_come_in_order_and_whole() -> None:
    inner = Pair(Pair(1))
    value = {"a": [inner, 2], "b": Pair}, Pair(3)
    assert list(instances(value, Pair)) == [inner, Pair(3)]
    assert list(instances(value, int)) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["?", "<i2", ">i2", "<f2", "<f8", ">f8", "<c16", "<U3", ">U3", "S2", "<g"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (0, 2)])
def test_octets_are_the_bytes_in_c_order(kind: str, shape: tuple[int, ...]) -> None:
    array = np.array(np.arange(int(np.prod(shape))).reshape(shape), kind, order="F")
    little = little_endian(array)
    assert little.shape == shape
    assert little.tolist() == array.tolist()
    assert little_endian(little) is little
    assert bytes(octets(little)) == little.tobytes()
    assert octets(little).readonly
    if little.nbytes and little.dtype.kind in "biuf" and kind != "<g":
        assert np.shares_memory(np.frombuffer(octets(little), np.uint8), little)


def _named(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else repr(value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


@given(values, values)
def test_digests_are_equal_where_values_are_and_nowhere_else(one: Any, other: Any) -> None:
    assert (digest(one, _named) == digest(other, _named)) is (repr(one) == repr(other))


def test_what_has_no_form_of_its_own_is_named() -> None:
    asked = list[Any]()

    def named(value: Any) -> str:
        asked.append(value)
        return "named"

    odd = np.array([None])
    digest((Empty(), len, {1}, odd, 1, "text"), named)
    assert asked == [Empty, len, {1}, odd]
