"""Codecs at work: the server and the clients encode what they send, and decode what they receive.

Algorithms do not notice. Downwards each distinct message is encoded once, without a state. Upwards a chain
with ``delta`` subtracts the model that the client has received with the dispatch, as it was decoded there;
the server keeps what it has sent until the reply is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fedsim.algorithms.base import Exchange
from fedsim.bus import Header
from fedsim.engine.compute_context import ComputeContext
from fedsim.errors import DecodeError, Fault, RunError
from fedsim.params import Form, Tree, forms_of
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.wire import Message, Packed, message, pack
from fedsim.wire.coded_messages import EncodedMessage, MessageCodec, coded_kind, held_by, trees_in

if TYPE_CHECKING:
    from fedsim.runtime.parts import Parts


@message("unreadable")
class Unreadable(Message):
    """Stands for a reply that cannot be decoded; it never travels.

    Attributes:
        why: What is wrong with it.
    """

    why: str


@dataclass(eq=False)
class MessageCodecs:
    """The codecs of a run, at the server or at clients.

    Attributes:
        up: Those towards the server.
        down: Those towards clients.
        key: Names their generators.
    """

    up: MessageCodec
    down: MessageCodec
    key: Key
    _received: WeakKeyDictionary[Message, Message] = field(default_factory=WeakKeyDictionary, init=False)

    @classmethod
    def of(cls, parts: Parts) -> MessageCodecs:
        """Return those of a run."""
        models = sum(architecture.num_params for architecture in parts.architectures.values())
        rows = max(len(parts.data.public), int(parts.data.sizes("train").max(initial=0)))
        largest = max(models, rows * parts.data.task.num_outputs)
        up, down = (MessageCodec(parts.codec, way, largest) for way in ("up", "down"))
        return cls(up, down, parts.key.child("codec"))

    def kinds(self, kinds: Iterable[type[Message]]) -> list[type[Message]]:
        """Return the kinds of coded messages that stand for those of some kinds."""
        return [coded_kind(kind) for kind in kinds if self.up.codes(kind) or self.down.codes(kind)]

    # Towards clients

    def pack_for_clients(self, sent: Message, exchange: str, version: int, number: int) -> Packed:
        """Return a message of the server's, encoded.

        Args:
            sent: The message.
            exchange: The name of the exchange.
            version: The server's.
            number: Of the message among the distinct ones of this dispatch, from 0.
        """
        key = self.key.child("down", exchange).child(version, number)
        return pack(self.down.encode(sent, key).message)

    def read_from_server(self, received: Message | None) -> Message | None:
        """Return the message that clients have received; of one received by many always the same object.

        Raises:
            DecodeError: It cannot be decoded.
        """
        if received is None or received.ORIGINAL is None:
            return received
        known = self._received.get(received)
        if known is None:
            known = self._received[received] = self.down.decode(received)
        return known

    # Towards the server

    def encode_reply(
        self,
        reply: Message,
        received: Message | None,
        exchange: Exchange,
        header: Header,
        residuals: Mapping[str, Tree],
    ) -> EncodedMessage:
        """Return a client's reply, encoded.

        Args:
            reply: The reply.
            received: What the client has received.
            exchange: The exchange.
            header: Of the dispatch.
            residuals: What was left out before.

        Raises:
            RunError: There is no model whose difference could be sent.
        """
        key = self.key.child("up", exchange.name).child(header.client, header.dispatch)
        return self.up.encode(reply, key, partial(_reference, received, exchange), residuals)

    def read_reply(self, reply: Message, sent: Packed | None, exchange: Exchange) -> Message:
        """Return the reply that the server has received; an :class:`Unreadable` where it cannot be decoded.

        Args:
            reply: The reply, coded or not.
            sent: What the server has sent with the dispatch.
            exchange: The exchange.
        """
        try:
            message = None if sent is None else self.read_from_server(sent.received)
            return self.up.decode(reply, partial(_reference, message, exchange))
        except (DecodeError, RunError) as error:
            return Unreadable(str(error))


def _reference(message: Message | None, exchange: Exchange, name: str, form: Form) -> Tree | None:
    """Return the model whose difference a field of a reply is coded as; None where it is one already.

    It is that of the field of the same name in the message, or the only one of that form.
    """
    if name in exchange.changes:
        return None
    trees = {} if message is None else trees_in(message)
    same = {path: tree for path, tree in trees.items() if forms_of(tree) is form or _form(tree) is form}
    if name in same:
        return same[name]
    if len(same) == 1:
        return next(iter(same.values()))
    what = "several models of its form came" if same else "no model of its form came"
    raise RunError(
        f"codec.up.models.chain has 'delta', and {what} down with exchange {exchange.name!r}, whose reply "
        f"has the model {name!r}: leave 'delta' out"
    )


def _form(tree: Tree) -> Form:
    forms = forms_of(tree)
    return forms if isinstance(forms, Form) else Form.of(tree)


def misfits(parts: Parts) -> Iterator[Fault]:
    """Yield why the codecs cannot work with the algorithm or the pacing."""
    config = parts.codec.up.models
    chain, algorithm = config.made, name_of(parts.algorithm)
    path, needy = (
        "codec.up.models",
        next((one for one in chain.codecs if one.about.kind == "changes of models"), None),
    )
    for exchange in parts.algorithm.exchanges:
        held = {} if exchange.reply is None else held_by(exchange.reply)
        models = [name for name, what in held.items() if what == "models" and name not in exchange.changes]
        if not models or not chain.codecs:
            continue
        where = f"and exchange {exchange.name!r} of {algorithm!r}"
        if chain.subtracts and exchange.instruct is None:
            problem = f"'delta' subtracts the model that came down, {where} sends none down"
            yield Fault(f"{path}.chain", problem, "leave 'delta' out")
        elif not chain.subtracts and needy is not None:
            problem = f"{name_of(needy)!r} codes changes of models, {where} sends whole models"
            yield Fault(f"{path}.chain", problem, "write 'delta' first")
        elif not chain.subtracts and chain.has_feedback:
            problem = f"error feedback is for changes of models, {where} sends whole models"
            yield Fault(f"{path}.error_feedback", problem, "write 'delta' first")
    is_asynchronous = parts.pacing.merge_size(parts.cohort_size) is not None
    if chain.has_feedback and (is_asynchronous or parts.pacing.carries):
        problem = (
            f"under {name_of(parts.pacing)!r} a client can be asked again before its reply is merged, so "
        )
        problem += "it cannot know whether what it left out counts"
        yield Fault(f"{path}.error_feedback", problem, "leave it out, or write 'synchronous'")


async def spend(context: ComputeContext, flops: float) -> None:
    """Take the time of encoding or decoding; the codecs themselves work when somebody looks."""
    if flops:
        await context.call(_nothing, flops=flops)


def _nothing() -> None:
    """Do nothing."""
