"""Messages whose arrays are coded, and what they stand for.

A coded message is of a kind of its own, ``update+coded``, which has the fields of the other. Instead of each
field of models or predictions it has a coded tree (:mod:`fedsim.wire.codecs.chain`). What is sent is known
without its values, so a coded message of pending trees is pending too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast, get_type_hints
from weakref import WeakKeyDictionary

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array, Form, PendingTree, Tree, form_of, forms_of
from fedsim.rng import Key
from fedsim.wire.codecs.base import F32, total
from fedsim.wire.codecs.chain import Chain, Encoded, plain_form
from fedsim.wire.codecs.choices import HELD, CodecConfig, Held, Way
from fedsim.wire.contents import DEFAULT, PendingArray
from fedsim.wire.declare import Message, message
from fedsim.wire.field_types import without_alias

T = TypeVar("T")

Reference = Callable[[str, Form], Tree | None]
"""Given the name of a field and the form of its tree, returns what both sides have of that form, or None."""
Leaf = Callable[[Chain, str, str, Tree], Any]
"""Given the chain, the name and the path of a field, and a tree in it, returns what replaces the tree."""

SCALARS_PER_BYTE = 16
"""A coded message may always stand for this many scalars per byte, whatever the models of a run."""

_HELD: dict[type[Message], Mapping[str, Held]] = {}
_CODED: dict[type[Message], type[Message]] = {}


def held_by(kind: type[Message]) -> Mapping[str, Held]:
    """Return the fields of a kind of message that can be coded, with what they hold.

    They are those that count as parameters communicated: trees hold models, arrays of float32 logits.
    """
    if kind not in _HELD:
        types = {name: its_type for name, _, its_type in kind.PLAN.fields if name in kind.PLAN.counted}
        logits: dict[str, Held] = {name: "logits" for name, its_type in types.items() if its_type.is_float32}
        models: dict[str, Held] = {name: "models" for name, its_type in types.items() if its_type.is_of_trees}
        _HELD[kind] = logits | models
    return _HELD[kind]


def coded_kind(kind: type[Message]) -> type[Message]:
    """Return the kind of coded messages that stand for those of a kind, always the same class."""
    if kind not in _CODED:
        hints = get_type_hints(kind)
        annotations = {name: hints[name] for name, *_ in kind.PLAN.fields}
        for name, held in held_by(kind).items():
            if held == "logits":
                is_optional = type(None) in getattr(without_alias(hints[name]), "__args__", ())
                annotations[name] = Tree | None if is_optional else Tree
        namespace = {"__annotations__": annotations, "__module__": kind.__module__, "ORIGINAL": kind}
        made = type(f"Coded{kind.__name__}", (Message,), namespace | {"__post_init__": _check})
        _CODED[kind] = message(f"{kind.KIND}+coded", data=kind.IS_DATA)(cast(type[Message], made))
    return _CODED[kind]


def _check(coded: Message) -> None:
    """Raise ``ValueError`` unless the forms of a coded message are such that it can stand for another."""
    plain = _plain_forms(coded)
    for name, held in held_by(cast(type[Message], coded.ORIGINAL)).items():
        if held == "logits" and getattr(coded, name) is not None:
            form = plain[name]
            if list(form) != [""] or form[""].dtype != F32:
                raise ValueError(f"{name} stands for {len(form)} arrays: it is one of float32")
    num_bytes = sum(array.nbytes for form in plain.values() for array in form.values())
    if num_bytes > DEFAULT.frame_bytes:
        raise ValueError(f"it stands for {num_bytes} bytes: a frame holds at most {DEFAULT.frame_bytes}")


def _plain_forms(coded: Message) -> dict[str, Form]:
    """Return the form of each tree for which a coded one stands, by the path of the field."""
    plain = dict[str, Form]()

    def note(path: str, tree: Tree) -> None:
        plain[path] = plain_form(form_of(tree))

    for name in held_by(cast(type[Message], coded.ORIGINAL)):
        _mapped(getattr(coded, name), note, name)
    return plain


def stands_for(coded: Message) -> Message:
    """Return the message that a coded one stands for, whose trees and arrays cannot be looked at."""
    kind = cast(type[Message], coded.ORIGINAL)
    values = _values(coded)
    for name, held in held_by(kind).items():
        trees = _mapped(values[name], lambda _, tree: _formed(plain_form(form_of(tree))), name)
        values[name] = PendingArray(trees, "") if held == "logits" and trees is not None else trees
    made = object.__new__(kind)  # its own checks would look at values
    vars(made).update(values)
    return made


def trees_in(sent: Message) -> dict[str, Tree]:
    """Return the trees of a message that hold models, by the paths of their fields."""
    trees = dict[str, Tree]()
    for name, held in held_by(type(sent)).items():
        if held == "models":
            _mapped(getattr(sent, name), trees.__setitem__, name)
    return trees


@dataclass(slots=True, eq=False)
class _Once(Generic[T]):
    """What is computed when it is first asked for."""

    compute: Callable[[], T] | None
    result: T | None = None

    def __call__(self) -> T:
        if self.compute is not None:
            self.result, self.compute = self.compute(), None
        return cast(T, self.result)


class EncodedMessage(NamedTuple):
    """A message that was encoded.

    Attributes:
        message: The coded message; the message itself where nothing of it is coded.
        residuals: What was left out of each tree, by the path of its field.
    """

    message: Message
    residuals: Mapping[str, Tree]


@dataclass(eq=False, slots=True)
class _Saturated:
    """Values of a received message that were beyond the range of a codec, and whether they count already."""

    num_values: int = 0
    counts: bool = False


@dataclass(eq=False)
class MessageCodec:
    """The codecs of one direction.

    Attributes:
        config: Those of the run.
        way: The direction.
        max_scalars: The most that a message from a peer that is not trusted stands for, unless its bytes are
            many (:data:`SCALARS_PER_BYTE`); None where the peer is trusted.
        num_saturated: Values beyond the range of a codec, of what the server has sent or merged so far.
    """

    config: CodecConfig
    way: Way
    max_scalars: int | None = None
    num_saturated: int = field(default=0, init=False)
    _received: WeakKeyDictionary[Message, _Saturated] = field(default_factory=WeakKeyDictionary, init=False)

    def __post_init__(self) -> None:
        self._chains: dict[Held, Chain] = {held: self.config.of(self.way, held).made for held in HELD}

    def codes(self, kind: type[Message]) -> bool:
        """Say whether messages of a kind are coded."""
        return any(self._chains[held].codecs for held in held_by(kind).values())

    @property
    def has_feedback(self) -> bool:
        """Whether what was left out is sent later."""
        return self._chains["models"].has_feedback

    def encode(
        self,
        sent: Message,
        key: Key,
        reference: Reference = lambda name, form: None,
        residuals: Mapping[str, Tree] | None = None,
    ) -> EncodedMessage:
        """Encode a message; nothing pending in it is computed, unless a length depends on values.

        Args:
            sent: The message.
            key: Names the generators.
            reference: What both sides have.
            residuals: What was left out before, by the path of the field; those of another form are ignored.
        """
        left = dict[str, Tree]()

        def encoded(chain: Chain, name: str, path: str, tree: Tree) -> Tree:
            form = form_of(tree)
            other = reference(name, form) if chain.subtracts else None
            before = None if residuals is None else residuals.get(path)
            residual_form = chain.residual_form(form)
            if before is not None and not form_of(before).is_like(residual_form):
                before = None
            work = _Once(partial(self._encoded, chain, tree, key.child(path), other, before))
            is_pending = type(tree) is PendingTree and tree.is_pending and chain.has_fixed_length
            if chain.has_feedback:
                pending = PendingTree(residual_form, lambda: work().residual)
                left[path] = pending if is_pending else work().residual
            return PendingTree(chain.form(form), lambda: work().tree) if is_pending else work().tree

        return EncodedMessage(self._coded(sent, encoded), left)

    def _encoded(
        self, chain: Chain, tree: Tree, key: Key, reference: Tree | None, residual: Tree | None
    ) -> Encoded:
        encoded = chain.encode(tree, key, reference, residual)
        if self.way == "down":
            self.num_saturated += encoded.num_saturated
        return encoded

    def decode(self, coded: Message, reference: Reference = lambda name, form: None) -> Message:
        """Return the message that a coded one stands for; a message that is not coded is returned unchanged.

        Args:
            coded: The message received.
            reference: What both sides have.

        Raises:
            DecodeError: No encoder gives such a message.
        """
        kind = coded.ORIGINAL
        if kind is None:
            return coded
        if not self.codes(kind):
            raise DecodeError(f"a coded message of kind {coded.KIND!r}, and nothing of it is coded here")
        self._check_size(coded)

        saturated = _Saturated()

        def decoded(chain: Chain, name: str, path: str, tree: Tree) -> Tree:
            chain.check_form(form_of(tree))
            form = plain_form(form_of(tree))
            subtracted = reference(name, form) if chain.subtracts else None
            work = partial(self._decoded, chain, tree, subtracted, saturated)
            is_pending = type(tree) is PendingTree and tree.is_pending
            return PendingTree(form, work) if is_pending else work()

        values = self._replaced(kind, coded, decoded)
        for name, held in held_by(kind).items():
            if held == "logits" and values[name] is not None:
                values[name] = values[name][""]
        try:
            made = kind(**values)
            for name in of_probabilities(made):
                if self._chains["logits"].codecs:
                    values[name] = _probabilities(values[name])
                    made = kind(**values)
        except ValueError as error:
            raise DecodeError(f"fields of {kind.KIND!r}: {error}") from None
        self._received[made] = saturated
        return made

    def count(self, received: Message) -> None:
        """Let a message that was decoded here count among the saturated ones: it is merged.

        Others do not count, since whether their values are looked at at all depends on how a run is done.
        """
        if (saturated := self._received.pop(received, None)) is not None:
            self.num_saturated += saturated.num_values
            saturated.counts = True

    def _check_size(self, coded: Message) -> None:
        """Raise ``DecodeError`` where a message stands for too much; no memory has been taken for it."""
        num_bytes = 0

        def add(path: str, tree: Tree) -> None:
            nonlocal num_bytes
            num_bytes += sum(array.nbytes for array in form_of(tree).values())

        for name in held_by(cast(type[Message], coded.ORIGINAL)):
            _mapped(getattr(coded, name), add, name)
        size = sum(form.size for form in _plain_forms(coded).values())
        if self.max_scalars is not None and size > max(self.max_scalars, SCALARS_PER_BYTE * num_bytes):
            raise DecodeError(
                f"a coded message stands for {size} scalars, at most {self.max_scalars} are sent"
            )

    def _decoded(self, chain: Chain, tree: Tree, reference: Tree | None, saturated: _Saturated) -> Tree:
        decoded = chain.decode(tree, reference)
        if saturated.counts:
            self.num_saturated += decoded.num_saturated
        else:
            saturated.num_values += decoded.num_saturated
        return decoded.tree

    def like(self, sent: Message) -> Message:
        """Return a coded message of the same length as that which stands for a message, without values."""
        return self._coded(sent, lambda chain, name, path, tree: _formed(chain.form(form_of(tree))))

    def flops(self, sent: Message | None) -> tuple[float, float]:
        """Return the operations of encoding a message, and of decoding what stands for it."""
        costs = [(0.0, 0.0)]
        if sent is not None and self.codes(type(sent)):
            self._replaced(
                type(sent), sent, lambda chain, name, path, tree: costs.append(chain.flops(form_of(tree)))
            )
        encode, decode = (sum(parts) for parts in zip(*costs, strict=True))
        return encode, decode

    def _coded(self, sent: Message, leaf: Leaf) -> Message:
        """Return the coded message with other trees; the message itself where nothing of it is coded."""
        kind = type(sent)
        return coded_kind(kind)(**self._replaced(kind, sent, leaf)) if self.codes(kind) else sent

    def _replaced(self, kind: type[Message], sent: Message, leaf: Leaf) -> dict[str, Any]:
        """Return the fields of a message, or of a coded one of a kind, with other trees."""
        values = _values(sent)
        for name, held in held_by(kind).items():
            value = values[name]
            is_array = held == "logits" and value is not None and sent.ORIGINAL is None
            tree = {"": value} if is_array else value
            values[name] = _mapped(tree, partial(leaf, self._chains[held], name), name)
        return values


def _values(sent: Message) -> dict[str, Any]:
    return {name: getattr(sent, name) for name in sent.PLAN.names}


def _mapped(value: Any, function: Callable[[str, Tree], Any], path: str) -> Any:
    """Return a tree, or a mapping of trees, with each tree replaced by what a function gives of its path."""
    if value is None:
        return None
    forms = forms_of(value)
    if any(isinstance(item, Mapping) for item in forms.values()):
        return {name: _mapped(item, function, f"{path}/{name}") for name, item in value.items()}
    return function(path, value) if forms else {}


def _formed(form: Form) -> PendingTree:
    """Return a tree of which only the form is known."""
    return PendingTree(form, _unknown)


def _unknown() -> Tree:
    raise RuntimeError("only the form of this tree is known")


def of_probabilities(made: Message) -> list[str]:
    """Return the fields of a message that hold rows of probabilities."""
    declared = {one.name: one.metadata for one in fields(made)}  # type: ignore[arg-type]
    names = [name for name, held in held_by(type(made)).items() if held == "logits"]
    is_said = getattr(made, "form", None) == "probs"
    return [name for name in names if is_said or declared[name].get("probabilities")]


def _probabilities(values: Array) -> Array:
    """Return rows that are at least 0 and sum to 1; rows of zeros become uniform."""
    positive = np.maximum(values, 0).astype(np.float64)
    sums = np.expand_dims(total(np.atleast_1d(positive)), -1)
    with np.errstate(all="ignore"):
        rows: Array = np.where(sums == 0, 1.0 / max(1, np.atleast_1d(values).shape[-1]), positive / sums)
    rows = rows.astype(values.dtype).reshape(values.shape)
    rows.flags.writeable = False
    return rows
