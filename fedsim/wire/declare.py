"""Declaring messages: a message is a frozen dataclass with a kind, and its annotations say how it travels.

::

    @message("update")
    class ModelUpdate(Message):
        architecture: str
        params: Tree = counted()
        num_samples: int

Annotations are read once, when the class is made; one that cannot be encoded raises ``TypeError`` there. A
class may refuse values by raising ``ValueError`` in ``__post_init__``, which a receiver sees as
``DecodeError``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_origin, get_type_hints

import msgpack

from fedsim.params import Array, PendingTree
from fedsim.wire.field_types import ALLOWED, FieldType, field_type

VERSION = 1
"""Version of the schema of envelopes; a decoder accepts no other."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one class of messages is encoded.

    Attributes:
        owner: The class.
        fields: Name, place in error messages, and type of each field, in the order of declaration.
        names: Names of the fields.
        counted: Names of the fields whose scalars are parameters communicated.
        trees: Names of those among them that are a tree each, or None.
        inexact: Names of the fields that could hold NaN or an infinity.
        prefix: The first bytes of every envelope of this kind: map header, version and kind.
    """

    owner: type[Message]
    fields: tuple[tuple[str, str, FieldType], ...]
    names: frozenset[str]
    counted: tuple[str, ...]
    trees: tuple[str, ...]
    inexact: tuple[str, ...]
    prefix: bytes


class Message:
    """Base of all messages; make one with :func:`message`.

    Messages compare by identity: use :func:`fedsim.wire.same` to compare contents.

    Attributes:
        KIND: The name of this kind of message in a frame.
        IS_DATA: Whether its bytes are training or public data, which the ledger counts apart.
        PLAN: How it is encoded.
        ORIGINAL: The kind for which messages of this one stand, if they are coded.
    """

    KIND: ClassVar[str]
    IS_DATA: ClassVar[bool] = False
    PLAN: ClassVar[Plan]
    ORIGINAL: ClassVar[type[Message] | None] = None


M = TypeVar("M", bound=Message)


def counted(*, default: Any = MISSING, probabilities: bool = False) -> Any:
    """Declare an array or tree whose scalars count as "parameters communicated" (specification 2.3).

    Args:
        default: Its default.
        probabilities: Whether rows of an array are probabilities, where no field ``form`` says so.
    """
    return dataclasses.field(default=default, metadata={"counted": True, "probabilities": probabilities})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(counted, dataclasses.field))
def message(kind: str, *, data: bool = False) -> Callable[[type[M]], type[M]]:
    """Make a class derived from :class:`Message` a frozen dataclass that travels as ``kind``.

    Args:
        kind: One to sixty-four characters; unique among the kinds of a run.
        data: Whether its bytes are training or public data.

    Raises:
        TypeError: An annotation that cannot travel, or one that ``dataclass`` would overlook.
        ValueError: A kind that is no short word.
    """
    if not 1 <= len(kind) <= 64:
        raise ValueError(f"the kind {kind!r} has {len(kind)} characters: use 1 to 64")

    def declare(cls: type[M]) -> type[M]:
        if not issubclass(cls, Message):
            raise TypeError(f"{cls.__name__}: derive a message from fedsim.wire.Message")
        made = dataclass(frozen=True, eq=False)(cls)
        made.KIND, made.IS_DATA, made.PLAN = kind, data, _plan(made, kind)
        return made

    return declare


def plan_of(cls: type[Message]) -> Plan:
    """Return how a class of messages is encoded.

    Raises:
        TypeError: The class itself was not declared with :func:`message`.
    """
    plan = getattr(cls, "PLAN", None)
    if plan is None or plan.owner is not cls:
        raise TypeError(f"{cls.__name__} is not a kind of message: declare it with @message('...')")
    return plan  # type: ignore[no-any-return]


def num_parameters(sent: Message) -> int:
    """Return the "parameters communicated" of a message: the scalars in its counted fields."""
    return sum([_scalars(getattr(sent, name)) for name in sent.PLAN.counted])


class Kinds(dict[str, Plan]):
    """The kinds of message that a receiver knows, and how each is encoded.

    Raises:
        ValueError: Two classes of one kind.
        TypeError: A class that was not declared with :func:`message`.
    """

    def __init__(self, message_classes: Sequence[type[Message]]) -> None:
        super().__init__()
        for cls in message_classes:
            plan = plan_of(cls)
            other = self.setdefault(cls.KIND, plan).owner
            if other is not cls:
                raise ValueError(
                    f"{cls.__qualname__} and {other.__qualname__} are both of kind {cls.KIND!r}: rename one"
                )


def _plan(cls: type[Message], kind: str) -> Plan:
    hints = {name: hint for name, hint in get_type_hints(cls).items() if get_origin(hint) is not ClassVar}
    declared = dataclasses.fields(cls)  # type: ignore[arg-type]
    overlooked = sorted(hints.keys() - {field.name for field in declared})
    if overlooked:
        raise TypeError(
            f"{cls.__name__}.{overlooked[0]} is annotated in a base that is no message, so it would not "
            "travel: annotate it here too, or put @message(...) on the base"
        )
    fields = []
    for field in declared:
        its_type = field_type(hints[field.name])
        if its_type is None:
            raise TypeError(f"{cls.__name__}.{field.name}: {hints[field.name]} cannot travel: use {ALLOWED}")
        if field.metadata.get("counted") and not its_type.holds_arrays:
            raise TypeError(f"{cls.__name__}.{field.name}: only arrays and trees can be counted()")
        if not field.init:
            raise TypeError(f"{cls.__name__}.{field.name}: a field with init=False cannot be received")
        fields.append((field.name, f"fields.{field.name}", its_type))
    counted = tuple(field.name for field in declared if field.metadata.get("counted"))
    return Plan(
        owner=cls,
        fields=tuple(fields),
        names=frozenset(name for name, _, _ in fields),
        counted=counted,
        trees=tuple(name for name, _, its_type in fields if name in counted and its_type.is_tree),
        inexact=tuple(name for name, _, its_type in fields if not its_type.is_exact),
        # A map of eight: version and kind here, the other six where the frame is made.
        prefix=b"".join([b"\x88", *map(msgpack.packb, ("fedsim", VERSION, "kind", kind))]),
    )


def _scalars(value: Mapping[str, Any] | Array | None) -> int:
    if value is None:
        return 0
    if type(value) is PendingTree:
        return value.form.size
    if not isinstance(value, Mapping):
        return value.size
    return sum([_scalars(item) for item in value.values()])
