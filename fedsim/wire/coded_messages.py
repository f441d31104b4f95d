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

import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm, Form, PendingTree, Tree, forms_of
from fedsim.rng import Key
from fedsim.wire.codecs.base import F32, total
from fedsim.wire.codecs.chain import Chain, Encoded, plain_form
from fedsim.wire.codecs.choices import HELD, CodecConfig, Held, Way
from fedsim.wire.contents import PendingArray
from fedsim.wire.declare import Message, message
from fedsim.wire.field_types import without_alias

T = TypeVar("T")

Reference = Callable[[str, Form], Tree | None]
"""Given the name of a field and the form of its tree, returns what both sides have of that form, or None."""

_WORD = "+coded"


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
        _CODED[kind] = _made_coded(kind)
    return _CODED[kind]


def _made_coded(kind: type[Message]) -> type[Message]:
    hints, held = get_type_hints(kind), held_by(kind)
    annotations = {name: hints[name] for name, *_ in kind.PLAN.fields}
    for name, what in held.items():
        if what == "logits":
            is_optional = type(None) in getattr(without_alias(hints[name]), "__args__", ())
            annotations[name] = Tree | None if is_optional else Tree
    namespace = {"__annotations__": annotations, "__module__": kind.__module__, "ORIGINAL": kind}
    made = cast(type[Message], type(f"Coded{kind.__name__}", (Message,), namespace))
    return message(f"{kind.KIND}{_WORD}", data=kind.IS_DATA)(made)


def stands_for(coded: Message) -> Message:
    """Return the message that a coded one stands for, whose trees and arrays cannot be looked at."""
    kind = cast(type[Message], coded.ORIGINAL)
    values = {name: getattr(coded, name) for name in kind.PLAN.names}
    for name, held in held_by(kind).items():
        trees = _mapped(values[name], partial(_formed, plain_form), name)
        values[name] = PendingArray(trees, "") if held == "logits" and trees is not None else trees
    made = object.__new__(kind)  # its own checks would look at values
    vars(made).update(values)
    return made


def _unknown() -> Tree:
    raise RuntimeError("only the form of this tree is known")


@dataclass(slots=True, eq=False)
class _Once(Generic[T]):
    """What is computed when it is first asked for."""

    compute: Callable[[], T] | None
    result: T | None = None

    def __call__(self) -> T:
        if self.compute is not None:
            self.result, self.compute = self.compute(), None
        return cast(T, self.result)


def trees_in(sent: Message) -> dict[str, Tree]:
    """Return the trees of a message that hold models, by the paths of their fields."""
    trees = dict[str, Tree]()
    for name, held in held_by(type(sent)).items():
        if held == "models":
            _mapped(getattr(sent, name), trees.__setitem__, name)
    return trees


class EncodedMessage(NamedTuple):
    """A message that was encoded.

    Attributes:
        message: The coded message; the message itself where nothing of it is coded.
        residuals: What was left out of each tree, by the path of its field.
    """

    message: Message
    residuals: Mapping[str, Tree]


@dataclass(eq=False)
class MessageCodec:
    """The codecs of one direction.

    Attributes:
        config: Those of the run.
        way: The direction.
        max_scalars: The most that a tree may have, such as the parameters of all models together.
        num_saturated: Values beyond the range of a codec, of what the server has sent or received so far.
    """

    config: CodecConfig
    way: Way
    max_scalars: int
    num_saturated: int = field(default=0, init=False)

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
            residuals: What was left out before, by the path of the field.
        """
        kind, left = type(sent), dict[str, Tree]()
        if not self.codes(kind):
            return EncodedMessage(sent, left)
        values = {name: getattr(sent, name) for name in kind.PLAN.names}

        def encoded(chain: Chain, name: str, path: str, tree: Tree) -> Tree:
            form = _form(tree)
            other = reference(name, form) if chain.subtracts else None
            before = None if residuals is None else residuals.get(path)
            work = _Once(partial(self._encoded, chain, tree, key.child(path), other, before))
            is_pending = type(tree) is PendingTree and tree.is_pending and chain.has_fixed_length
            residual: Tree = {}
            if chain.has_feedback:
                residual = PendingTree(_as_float32(form), lambda: work().residual)
                left[path] = residual if is_pending else work().residual
            return PendingTree(chain.form(form), lambda: work().tree) if is_pending else work().tree

        for name, held in held_by(kind).items():
            tree = _tree_of(values[name], held)
            values[name] = _mapped(tree, partial(encoded, self._chains[held], name), name)
        return EncodedMessage(coded_kind(kind)(**values), left)

    def _encoded(
        self, chain: Chain, tree: Tree, key: Key, reference: Tree | None, residual: Tree | None
    ) -> Encoded:
        encoded = chain.encode(tree, key, reference, residual)
        if self.way == "down":
            self.num_saturated += chain.num_saturated(encoded.tree)
        return encoded

    def _decoded(self, chain: Chain, tree: Tree, reference: Tree | None) -> Tree:
        if self.way == "up":
            self.num_saturated += chain.num_saturated(tree)
        return chain.decode(tree, reference)

    def decode(self, coded: Message, reference: Reference = lambda name, form: None) -> Message:
        """Return the message that a coded one stands for; another one as it is.

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
        values = {name: getattr(coded, name) for name in kind.PLAN.names}

        def decoded(chain: Chain, name: str, path: str, tree: Tree) -> Tree:
            chain.check_form(tree, self.max_scalars)
            form = plain_form(_form(tree))
            other = reference(name, form) if chain.subtracts else None
            if type(tree) is PendingTree and tree.is_pending:
                return PendingTree(form, partial(self._decoded, chain, tree, other))
            return self._decoded(chain, tree, other)

        for name, held in held_by(kind).items():
            chain = self._chains[held]
            tree = _mapped(values[name], partial(decoded, chain, name), name)
            if held == "logits" and tree is not None:
                if list(tree) != [""]:
                    raise DecodeError(f"fields.{name}: {len(tree)} arrays where one belongs")
                array = tree[""]
                if chain.codecs and _are_probabilities(kind, name, values):
                    array = _probabilities(array)
                array.flags.writeable = False
                values[name] = array
            else:
                values[name] = tree
        try:
            return kind(**values)
        except ValueError as error:
            raise DecodeError(f"fields of {kind.KIND!r}: {error}") from None

    def like(self, sent: Message) -> Message:
        """Return a coded message of the same length as that which stands for a message, without values."""
        kind = type(sent)
        if not self.codes(kind):
            return sent
        values = {name: getattr(sent, name) for name in kind.PLAN.names}
        for name, held in held_by(kind).items():
            tree = _tree_of(values[name], held)
            values[name] = _mapped(tree, partial(_formed, self._chains[held].form), name)
        return coded_kind(kind)(**values)

    def flops(self, sent: Message | None) -> tuple[float, float]:
        """Return the operations of encoding a message, and of decoding what stands for it."""
        encode = decode = 0.0
        if sent is None or not self.codes(type(sent)):
            return encode, decode
        for name, held in held_by(type(sent)).items():
            forms = list[Form]()
            _mapped(_tree_of(getattr(sent, name), held), partial(_collected, forms), name)
            for form in forms:
                its_encode, its_decode = self._chains[held].flops(form)
                encode, decode = encode + its_encode, decode + its_decode
        return encode, decode


def _mapped(value: Any, function: Callable[[str, Tree], Any], path: str) -> Any:
    """Return a tree, or a mapping of trees, with each tree replaced by what a function gives of its path."""
    if value is None:
        return None
    forms = forms_of(value)
    if any(isinstance(item, Mapping) for item in forms.values()):
        return {name: _mapped(item, function, f"{path}/{name}") for name, item in value.items()}
    return function(path, value) if forms else {}


def _tree_of(value: Any, held: Held) -> Any:
    """Return the trees of a field; of an array, a tree of it alone."""
    return {"": value} if held == "logits" and value is not None else value


def _formed(form_of: Callable[[Form], Form], path: str, tree: Tree) -> PendingTree:
    return PendingTree(form_of(_form(tree)), _unknown)


def _collected(forms: list[Form], path: str, tree: Tree) -> None:
    forms.append(_form(tree))


def _form(tree: Tree) -> Form:
    forms = forms_of(tree)
    return forms if isinstance(forms, Form) else Form.of(tree)


def _as_float32(form: Form) -> Form:
    return Form.of(cast(Tree, {name: ArrayForm(F32, array.shape) for name, array in form.items()}))


def _are_probabilities(kind: type[Message], name: str, values: Mapping[str, Any]) -> bool:
    declared = {one.name: one.metadata for one in fields(kind)}  # type: ignore[arg-type]
    return values.get("form") == "probs" or bool(declared[name].get("probabilities"))


def _probabilities(values: Array) -> Array:
    """Return rows that are at least 0 and sum to 1; rows of zeros become uniform."""
    positive = np.maximum(values, 0)
    sums = total(positive.astype(np.float64))[..., None]
    with np.errstate(all="ignore"):
        rows: Array = np.where(sums == 0, 1.0 / max(1, values.shape[-1]), positive / sums)
    return rows.astype(values.dtype)
