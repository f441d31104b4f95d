"""Frozen dataclasses that are made fast are like any others."""

from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import pytest

from fedsim.frozen import made_fast

T = TypeVar("T")


def _record(name: str) -> Any:
    """Return a frozen dataclass as ``dataclass`` makes it."""

    @dataclass(frozen=True, slots=True)
    class Record(Generic[T]):
        name: T
        size: int = 3
        notes: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError(f"size is {self.size}")

    Record.__qualname__ = name
    return Record


Usual, Fast = _record("Usual"), made_fast(_record("Fast"))


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 5), {}),
    (("a", 5, ["x"]), {}),
    ((), {"size": 0, "name": "b"}),
    (("c",), {"notes": ["y"]}),
]


@pytest.mark.parametrize(("positional", "named"), CALLS)
def test_fields_are_those_of_the_usual_class(positional: Any, named: Any) -> None:
    fast, usual = Fast(*positional, **named), Usual(*positional, **named)
    assert type(fast) is Fast
    assert [getattr(fast, one.name) for one in fields(fast)] == [
        getattr(usual, one.name) for one in fields(usual)
    ]
    assert repr(fast) == repr(usual).replace("Usual", "Fast")


def test_defaults_that_are_made_are_made_anew() -> None:
    assert Fast("a").notes is not Fast("a").notes


def test_it_is_frozen() -> None:
    one = Fast("a")
    with pytest.raises(FrozenInstanceError):
        one.size = 4
    with pytest.raises(FrozenInstanceError):
        del one.size
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("cls", [Usual, Fast])
def test_wrong_arguments_are_refused(cls: Any) -> None:
    for arguments in ({}, {"name": "a", "other": 1}):
        with pytest.raises(TypeError):
            cls(**arguments)
    with pytest.raises(ValueError, match="size is -1"):
        cls("a", -1)


def test_equal_hashed_copied_and_replaced() -> None:
    one = Fast((1, 2), 4, notes=[])
    assert one == Fast((1, 2), 4)
    assert one != Fast((1, 2), 5)
    for other in (copy(one), deepcopy(one), replace(one)):
        assert type(other) is Fast
        assert other == one
    assert replace(one, size=7).size == 7
