"""Declaring messages: what annotations may say, and what the class then knows."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from typing import Any, Literal, Optional, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from fedsim.params import Array, Tree
from fedsim.wire import COMMON, Kinds, Message, counted, message, num_parameters, pack


@message("everything", data=True)
class Everything(Message):
    yes: bool
    whole: int | None
    real: Optional[float]  # noqa: UP045
    word: Literal["a", "b"]
    grid: NDArray[np.float32] | None
    tree: Tree = counted()
    trees: Mapping[str, Tree] = counted()
    one: Array | None = counted(default=None)


def of_type(annotation: object) -> type[Message]:
    return message("odd")(type("Odd", (Message,), {"__annotations__": {"field": annotation}}))


def test_a_declared_class_is_a_frozen_dataclass_with_a_kind() -> None:
    sent = Everything(True, 1, 2.0, "a", None, {}, {})
    assert (Everything.KIND, Everything.IS_DATA) == ("everything", True)
    assert [cls.KIND for cls in COMMON if cls.IS_DATA] == ["public_data"]
    with pytest.raises(FrozenInstanceError):
        sent.yes = False  # type: ignore[misc]
    assert sent != Everything(True, 1, 2.0, "a", None, {}, {})
    assert len({sent, sent}) == 1


def test_counted_scalars_are_parameters() -> None:
    weights = {"w": np.zeros((3, 4)), "b": np.zeros(3)}
    sent = Everything(True, 1, 2.0, "a", np.zeros((9, 9), np.float32), weights, {"x": weights, "y": {}})
    assert num_parameters(sent) == 15 + 15
    with_one = Everything(True, 1, 2.0, "a", None, {}, {}, np.zeros(()))
    assert num_parameters(with_one) == 1


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        object,
        bytes,
        complex,
        list[int],
        dict[str, int],
        tuple[int, ...],
        int | str,
        int | str | None,
        None,
        Literal["a", 1],
        np.ndarray,
        NDArray[np.complex64],
        NDArray[np.str_],
        NDArray[np.float32 | np.float64],
        Mapping[int, Array],
        Mapping[str, int],
        Mapping[str, Array | None],
        Mapping[str, Mapping[str, Mapping[str, Mapping[str, Tree]]]],
    ],
)
def test_other_annotations_are_refused_when_the_class_is_made(annotation: object) -> None:
    with pytest.raises(TypeError, match=r"Odd\.field: .* cannot travel: use bool, int, float, str, Literal"):
        of_type(annotation)


def test_an_alias_of_a_type_travels_as_what_it_stands_for() -> None:
    scalar = TypeVar("scalar", bound=np.generic)
    # As NumPy declares NDArray from 2.5 on.
    alias = TypeAliasType("alias", np.ndarray[Any, np.dtype[scalar]], type_params=(scalar,))
    word = TypeAliasType("word", Literal["a", "b"])
    for annotation in (alias[np.float32], alias[np.float32] | None, Mapping[str, alias[Any]], word):
        of_type(annotation)
    with pytest.raises(TypeError, match="cannot travel"):
        of_type(alias[np.complex64])


def test_trees_that_count_are_known_by_name() -> None:
    @message("trees")
    class Trees(Everything):
        maybe: Tree | None = counted(default=None)
        uncounted: Tree | None = None

    assert Everything.PLAN.trees == ("tree",)  # and no tree of trees, nor an array
    assert Trees.PLAN.trees == ("tree", "maybe")


def test_fields_that_can_hold_nan_are_known_by_name() -> None:
    assert Everything.PLAN.inexact == ("real", "grid", "tree", "trees", "one")


def test_a_scalar_cannot_be_counted() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.number: only arrays and trees"):

        @message("wrong")
        class Wrong(Message):
            number: int = counted()


def test_a_field_that_init_does_not_take_is_refused() -> None:
    from dataclasses import field

    with pytest.raises(TypeError, match=r"Wrong\.number: a field with init=False"):

        @message("wrong")
        class Wrong(Message):
            number: int = field(init=False, default=3)


def test_a_field_of_a_base_that_is_no_message_is_not_overlooked() -> None:
    class Base(Message):
        lost: int

    with pytest.raises(TypeError, match=r"Derived\.lost is annotated in a base that is no message"):

        @message("derived")
        class Derived(Base):
            kept: int


def test_fields_of_a_base_that_is_a_message_are_inherited() -> None:
    @message("base")
    class Base(Message):
        first: int

    @message("derived")
    class Derived(Base):
        second: int

    assert [name for name, _, _ in Derived.PLAN.fields] == ["first", "second"]
    assert (Base.KIND, Derived.KIND) == ("base", "derived")


def test_only_messages_can_be_declared_with_short_kinds() -> None:
    with pytest.raises(TypeError, match="derive a message from"):
        message("x")(int)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="0 characters"):
        message("")
    with pytest.raises(ValueError, match="65 characters"):
        message("k" * 65)


def test_an_undeclared_class_is_no_kind() -> None:
    class Derived(Everything):
        pass

    for cls in (Derived, Message):
        with pytest.raises(TypeError, match="declare it with @message"):
            Kinds([cls])
    with pytest.raises(TypeError, match="declare it with @message"):
        pack(Derived(True, 1, 2.0, "a", None, {}, {}))
    with pytest.raises(TypeError, match="declare it with @message"):
        pack("text")  # type: ignore[arg-type]


def test_kinds_are_unique_and_known_by_name() -> None:
    kinds = Kinds([*COMMON, Everything, Everything])
    assert "everything" in kinds
    assert "other" not in kinds
    common = ["model", "update", "public_batch", "public_data", "logits_up", "logits_down"]
    assert list(kinds) == [*common, "everything"]

    @message("model")
    class Rival(Message):
        pass

    with pytest.raises(ValueError, match=r"Rival and ModelBroadcast are both of kind 'model': rename one"):
        Kinds([*COMMON, Rival])
