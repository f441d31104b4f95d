"""Codecs at work: the server and the clients encode what they send, and decode what they receive.

Algorithms do not notice. Downwards each distinct message is encoded once, without a state. Upwards a chain
with ``delta`` subtracts the model that the client has received with the dispatch, as it was decoded there;
the server keeps what it has sent until the reply is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fedsim.algorithms.base import Exchange
from fedsim.bus import Header
from fedsim.engine.compute_context import ComputeContext
from fedsim.errors import DecodeError, Fault, RunError
from fedsim.params import ArrayForm, Form, Tree, form_of
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.wire import Message, Packed, message, pack
from fedsim.wire.codecs.base import F32
from fedsim.wire.coded_messages import EncodedMessage, MessageCodec, coded_kind, held_by, trees_in

if TYPE_CHECKING:
    from fedsim.runtime.changeable_settings import Stages
    from fedsim.runtime.parts import Parts
    from fedsim.wire.codecs.choices import CodecConfig


MODELS_PER_REPLY = 4
"""The most models of each architecture for which a reply may stand."""


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
    def of(cls, parts: Parts, codec: CodecConfig) -> MessageCodecs:
        """Return those of a run whose settings of codecs are these."""
        models = sum(architecture.num_params for architecture in parts.architectures.values())
        rows = max(len(parts.data.public), int(parts.data.sizes("train").max(initial=0)))
        most = MODELS_PER_REPLY * models + rows * parts.data.task.num_outputs
        up, down = MessageCodec(codec, "up", most), MessageCodec(codec, "down")
        return cls(up, down, parts.key.child("codec"))

    def kinds(self, kinds: Iterable[type[Message]]) -> list[type[Message]]:
        """Return the kinds of coded messages that stand for those of some kinds."""
        return [coded_kind(kind) for kind in kinds if self.up.codes(kind) or self.down.codes(kind)]

    # Towards clients

    def pack_for_clients(self, sent: Message, header: Header) -> Packed:
        """Return a message of the server's, encoded.

        Args:
            sent: The message.
            header: Of the first dispatch that carries it: messages are coded alike for all receivers.
        """
        key = self.key.child("down", header.exchange).child(header.client, header.dispatch)
        return pack(self.down.encode(sent, key).message)

    def read_from_server(self, received: Message | None) -> Message | None:
        """Return the message that clients have received: the same object to all that received the same one.

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
        if reply.ORIGINAL is None or not issubclass(reply.ORIGINAL, exchange.reply or ()):
            return reply  # which is vetted by its kind
        try:
            message = None if sent is None else self.read_from_server(sent.received)
            return self.up.decode(reply, partial(_reference, message, exchange))
        except (DecodeError, RunError) as error:
            return Unreadable(str(error))


class CodecsOfRounds:
    """The codecs of a run by rounds: a dispatch and its reply are coded as in the round of the dispatch.

    Args:
        parts: What the run is made of.
        stages: In a fork, its settings from the beginning on, and from the ends of rounds on.
    """

    def __init__(self, parts: Parts, stages: Stages) -> None:
        self._by_round: list[tuple[int, MessageCodecs | None]] = []  # from which round on, ascending
        before = None
        for ended, settings in sorted({0: {"codec": parts.codec}, **stages}.items()):
            if (config := settings["codec"]) != before:
                codecs = MessageCodecs.of(parts, config) if config.is_on() else None
                self._by_round.append((ended and ended + 1, codecs))
            before = config
        self._made = [codecs for _, codecs in self._by_round if codecs is not None]
        self._decode: WeakKeyDictionary[Message, MessageCodecs] = WeakKeyDictionary()

    def __bool__(self) -> bool:
        """Whether anything is coded in any round."""
        return bool(self._made)

    def of(self, round: int) -> MessageCodecs | None:  # noqa: A002
        """Return those of a round; None where nothing is coded in it."""
        if len(self._by_round) == 1:  # as in most runs: it is asked several times for each dispatch
            return self._by_round[0][1]
        return next(codecs for first, codecs in reversed(self._by_round) if round >= first)

    def kinds(self, kinds: Sequence[type[Message]]) -> Iterable[type[Message]]:
        """Return the kinds of coded messages that stand for those of some kinds."""
        return dict.fromkeys(kind for codecs in self._made for kind in codecs.kinds(kinds))

    def read_reply(self, reply: Message, sent: Packed | None, exchange: Exchange, round: int) -> Message:  # noqa: A002
        """Return the reply that the server has received; see :meth:`MessageCodecs.read_reply`."""
        if (codecs := self.of(round)) is None:
            return reply
        message = codecs.read_reply(reply, sent, exchange)
        self._decode[message] = codecs
        return message

    def decoding_flops(self, reply: Message | None) -> float:
        """Return the operations that decoding a reply has taken which was read here."""
        codecs = None if reply is None else self._decode.get(reply)
        return 0.0 if codecs is None else codecs.up.flops(reply)[1]

    def count(self, reply: Message | None) -> None:
        """Let the saturated values of a reply count, which was read here and is merged."""
        if reply is not None and (codecs := self._decode.get(reply)) is not None:
            codecs.up.count(reply)

    @property
    def num_saturated(self) -> tuple[int, int]:
        """Values up and down that were beyond the range of a codec, and have become its largest number."""
        up = sum(codecs.up.num_saturated for codecs in self._made)
        return up, sum(codecs.down.num_saturated for codecs in self._made)

    def count_from(self, num_saturated: Sequence[int]) -> None:
        """Let values count that were beyond the range of a codec before."""
        for codecs in self._made:
            codecs.up.num_saturated, codecs.down.num_saturated = num_saturated
            num_saturated = 0, 0


def _reference(message: Message | None, exchange: Exchange, name: str, form: Form) -> Tree | None:
    """Return the model whose difference a field of a reply is coded as; None where it is one already.

    It is that of the field of the same name in the message, or the only one of that form.
    """
    if name in exchange.changes:
        return None
    trees = {} if message is None else trees_in(message)
    same = {path: tree for path, tree in trees.items() if form_of(tree).is_like(form)}
    if name in same:
        return same[name]
    if len(same) == 1:
        return next(iter(same.values()))
    what = "several models of its form came" if same else "no model of its form came"
    raise RunError(
        f"codec.up.models.chain has 'delta', and {what} down with exchange {exchange.name!r}, whose reply "
        f"has the model {name!r}: leave 'delta' out"
    )


def misfits(parts: Parts) -> Iterator[Fault]:
    """Yield why the codecs cannot work with the algorithm or the pacing."""
    path, chain = "codec.up.models", parts.codec.up.models.made
    needy = [name_of(codec) for codec in chain.codecs if codec.about.kind == "changes of models"]
    for exchange in parts.algorithm.exchanges if chain.codecs else ():
        held = {} if exchange.reply is None else held_by(exchange.reply)
        models = [name for name, what in held.items() if what == "models" and name not in exchange.changes]
        where = f"and exchange {exchange.name!r} of {name_of(parts.algorithm)!r}"
        if chain.has_feedback and held.keys() & set(exchange.varying):
            problem = f"error feedback is for the changes of one model, {where} sends now one and now another"
            yield Fault(f"{path}.error_feedback", problem, "leave it out")
        if models and chain.subtracts and exchange.instruct is None:
            problem = f"'delta' subtracts the model that came down, {where} sends none down"
            yield Fault(f"{path}.chain", problem, "leave 'delta' out")
        elif models and not chain.subtracts and needy:
            problem = f"{needy[0]!r} codes changes of models, {where} sends whole models"
            yield Fault(f"{path}.chain", problem, "write 'delta' first")
        elif models and not chain.subtracts and chain.has_feedback:
            problem = f"error feedback is for changes of models, {where} sends whole models"
            yield Fault(f"{path}.error_feedback", problem, "write 'delta' first")
    is_asynchronous = parts.pacing.merge_size(parts.cohort_size) is not None
    if chain.has_feedback and (is_asynchronous or parts.pacing.carries):
        when = f"under {name_of(parts.pacing)!r} a client can be asked again before its reply is merged"
        problem = f"{when}, so it cannot know whether what it left out counts"
        yield Fault(f"{path}.error_feedback", problem, "leave it out, or write 'synchronous'")


def least_flops(parts: Parts) -> float:
    """Return the operations that encoding a client's reply of a round takes at least."""
    kinds = [one.reply for one in parts.algorithm.exchanges if one.when == "round" and one.reply is not None]
    if not kinds or not all("models" in held_by(kind).values() for kind in kinds):
        return 0.0
    chain = parts.codec.up.models.made
    nets = [architecture.structure for architecture in parts.architectures.values()]
    forms = [{name: ArrayForm(F32, tuple(one.shape)) for name, one in net.named_parameters()} for net in nets]
    return min(chain.flops(Form.of(form))[0] for form in forms)


async def spend(context: ComputeContext, flops: float) -> None:
    """Take the time of encoding or decoding; the codecs themselves work when somebody looks."""
    if flops:
        await context.call(_nothing, flops=flops)


def _nothing() -> None:
    """Do nothing."""
