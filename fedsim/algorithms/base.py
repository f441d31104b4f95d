"""The contract of an algorithm.

An algorithm says *what* goes down, what a client does with it and how replies are merged. It knows no time
and no transport; *when* to merge is the participation policy's business. It is a sequence of exchanges, and
an :class:`Exchange` called ``x`` has three hooks, methods of the algorithm::

    async instruct_x(server, state, cohort) -> (state, {client: message or None})  at the server
    async local_x(client, state, message)   -> (state, reply or None)              at each client
    async merge_x(server, state, replies)   -> state                               at the server

State is a frozen record; a hook returns a new one and changes none of its arguments. ``None`` for a message
means that no frame travels. The server merges only when somebody has replied (specification 3.5, E2), with
the replies sorted by client, finite and vetted. All numbers in the server's state are finite, with None for
what is not known: a merge that returns NaN or an infinity, or raises an ``ArithmeticError``, is refused.

In a hook, ``await client.fit(...)``, ``.predict(...)`` and ``.call(...)`` take the time of that side's
device. An algorithm charges what grows with replies times samples times classes, or is made for each client,
by ``call``; the one mean of a cohort's models of an architecture, as in FedAvg, is free.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.models import Architecture
from fedsim.params import Model
from fedsim.plugins import Plugin
from fedsim.task import Task
from fedsim.wire import Message

S = TypeVar("S")
"""Type of the server's state."""
P = TypeVar("P")
"""Type of a client's state."""
C = TypeVar("C", bound=Config)

When = Literal["opening", "round", "closing"]
Who = Literal["cohort", "all", "answered"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question to clients and the merging of their replies.

    Attributes:
        name: Names the three hooks.
        when: ``opening``, once before round 1; ``round``; ``closing``, once after the last round.
        who: The round's ``cohort``, ``all`` clients, or those who ``answered`` the exchange before. Before
            the first round and after the last there is no cohort, so it means all.
        reply: What comes back; a reply of another kind is rejected. None: no frame goes up.
    """

    name: str
    when: When = "round"
    who: Who = "cohort"
    reply: type[Message] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A client's answer.

    Attributes:
        client: Who.
        dispatch: To which asking.
        exchange: In which exchange.
        version: The server's version (number of merges) that the client was asked with.
        staleness: Merges since then; 0 in a synchronous round.
        weight: What the staleness policy makes of it; 1 in a synchronous round.
        message: What came back.
    """

    client: int
    dispatch: int
    exchange: str
    version: int
    staleness: int
    weight: float
    message: Any


def mirrored() -> Any:
    """Declare a field of a client's state that mirrors something at the server (specification 3.4).

    Its new value counts only once the server has merged the reply that went with it; otherwise the field goes
    back to its value before the asking. All other fields are kept, whatever becomes of the reply.
    """
    return field(metadata={"mirrored": True})


def unmirrored(before: P, after: P) -> P:
    """Return ``after`` with mirrored fields as they were ``before``: what stands if nothing is merged."""
    if before is after or not dataclasses.is_dataclass(after):
        return after
    back = {f.name: getattr(before, f.name) for f in dataclasses.fields(after) if f.metadata.get("mirrored")}
    return dataclasses.replace(after, **back) if back else after  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """Something to evaluate.

    Attributes:
        model: The model whose largest logit is the prediction.
        on: For names other than ``personal`` and ``global``: whether it is measured on the client's ``own``
            test samples, or on the ``global`` test set.
        weight: There, what it weighs in the mean over the distinct models of its name, summed over clients.
    """

    model: Model
    on: Literal["own", "global"] = "own"
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds an algorithm, for it to say whether it can work there.

    Attributes:
        task: What is learned.
        clients: The clients' architectures by label, in the order of the fleet.
        server: The server's architecture.
        num_public: Samples in the public set.
        public_labelled: Whether these have labels of the task.
        architectures: All of the run, by label, those that nobody starts with too.
    """

    task: Task
    clients: Mapping[str, Architecture]
    server: Architecture
    num_public: int
    public_labelled: bool
    architectures: Mapping[str, Architecture] = field(default_factory=dict)


class Algorithm(Plugin[C], ABC, Generic[C, S, P]):
    """Base of all algorithms; see the module's docstring.

    Attributes:
        messages: Kinds of message of its own, beside the common ones.
        mixed_architectures: Whether clients may have different architectures.
        needs_public: Whether there must be a public set.
        accepts_stale: Whether merges may come from older versions, so that asynchronous pacing makes sense.
    """

    messages: ClassVar[tuple[type[Message], ...]] = ()
    mixed_architectures: ClassVar[bool] = False
    needs_public: ClassVar[bool] = False
    accepts_stale: ClassVar[bool] = False

    @property
    @abstractmethod
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges, in the order in which they happen."""

    @abstractmethod
    def start(self, server: ServerContext) -> S:
        """Return the server's state before anything has happened."""

    @abstractmethod
    def join(self, client: ClientContext) -> P:
        """Return the state of a client that was never asked; pure, since the observer asks as well.

        None where clients remember nothing, and then for every client.
        """

    @abstractmethod
    async def models_of(
        self, observer: ClientContext, server_state: S, client_state: P
    ) -> Mapping[str, Predictor]:
        """Return what stands for a client when accuracy is measured.

        ``personal`` is measured on the client's own test samples; ``global`` on the global test set as well,
        and on the client's own where there is no ``personal``. Models under other names are reported beside:
        such as a personal one before it is fine-tuned, on the client's own samples, where a client without
        one counts with what stands for it, so that all means are over the same clients; or on the global
        test set (:class:`Predictor`). Work done through ``observer`` takes no virtual time.
        """

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Return why a reply cannot be merged, or None.

        Only frames of the exchange's kind with finite values come here. Where they have a field
        ``num_samples``, it is from 1 to as many training samples as the client holds.
        """
        return None

    def misfit(self, setting: Setting) -> str | None:
        """Return why the algorithm cannot work in a setting, and what to write instead; None if it can.

        What class attributes say has been checked before.
        """
        return None

    def hook(self, step: Literal["instruct", "local", "merge"], exchange: str) -> Any:
        """Return one of the three hooks of an exchange."""
        return getattr(self, f"{step}_{exchange}")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = {
            name.partition("_")[::2]
            for name in dir(cls)
            if name.startswith(("instruct_", "local_", "merge_"))
        }
        exchanges = sorted({exchange for _, exchange in hooks})
        missing = [
            f"{step}_{exchange}"
            for exchange in exchanges
            for step in ("instruct", "local", "merge")
            if (step, "_", exchange) not in {(s, "_", e) for s, e in hooks}
        ]
        if missing:
            raise TypeError(f"{cls.__name__}: an exchange has three hooks; missing: {', '.join(missing)}")


def broadcast(cohort: Sequence[int], message: Message | None) -> dict[int, Message | None]:
    """Return the same message for everyone; its arrays are encoded once."""
    return dict.fromkeys(cohort, message)


def shares(replies: Sequence[Reply], amounts: Sequence[float]) -> list[float]:
    """Return weights in proportion to ``amounts``, discounted by each reply's own weight; they sum to one."""
    raw = [amount * reply.weight for amount, reply in zip(amounts, replies, strict=True)]
    total = sum(raw)
    return [value / total for value in raw]
