from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.config import Config
from fedsim.engine.losses import absolute_error, empirical_loss
from fedsim.engine.optimisers import Clipped, Sgd
from fedsim.engine.steps import Descent
from fedsim.walk import field_names, instances, is_leaf, is_own, little_endian, octets, parts


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = None


@dataclass
class Empty:
    pass


def _renamed(function: Any) -> Any:
    """Return a function that says it is another one."""

    def other() -> None: ...

    other.__module__, other.__qualname__ = function.__module__, function.__qualname__
    return other


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
    assert is_leaf(type(value)) == (not made_of)


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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Descent(), True),
        (Clipped(Sgd(0.1), 1.0), True),
        (empirical_loss, True),
        (Sgd, True),
        (("text", 1, 2.0, True, None, (absolute_error,)), True),
        (Descent(loss=lambda *_: torch.zeros(())), False),
        (Descent(loss=partial(empirical_loss)), False),
        (Clipped(Pair(1, 2), 1.0), False),  # type: ignore[arg-type]
        (Pair, False),
        (Pair(1, 2), False),
        (_renamed(empirical_loss), False),
        ((np.zeros(3),), False),
        ([1], False),
        (Descent().__call__, False),
    ],
)
def test_fedsims_own_code_is_told_from_others(value: Any, expected: bool) -> None:
    assert is_own(value) is expected
