"""The contract of an algorithm.

An algorithm says *what* goes down, what a client does with it and how replies are merged. It knows no time and no
transport; *when* to merge is the participation policy's business. It is a sequence of :class:`Exchange` s. An
exchange called ``x`` has three hooks, methods of the algorithm::

    async instruct_x(server, state, cohort) -> (state, {client: message or None})   at the server
    async local_x(client, state, message)   -> (state, reply or None)               at each client
    async merge_x(server, state, replies)   -> state                                at the server

State is a frozen record; a hook returns a new one and changes none of its arguments. ``None`` for a message means
that no frame travels. The server merges only when somebody has replied (specification 3.5, E2), with the replies
sorted by client, finite and vetted.

In a hook, ``await client.fit(...)``, ``.predict(...)`` and ``.call(...)`` take the time of that side's device.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from fedsim.config import Config
from fedsim.data import Split
from fedsim.engine.workbench import Workbench
from fedsim.params import Model
from fedsim.plugins import Plugin
from fedsim.wire import Message

S = TypeVar("S")
"""Type of the server's state."""
P = TypeVar("P")
"""Type of a client's state."""
C = TypeVar("C", bound=Config)
T = TypeVar("T")

When = Literal["opening", "round", "closing"]
Who = Literal["cohort", "all", "answered"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question to clients and the merging of their replies.

    Attributes:
        name: Names the three hooks.
        when: ``opening``, once before round 1; ``round``; ``closing``, once after the last round.
        who: The round's ``cohort``, ``all`` clients, or those who ``answered`` the exchange before. Before the
            first round and after the last there is no cohort, so it means all.
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
    """Return ``after`` with its mirrored fields as they were ``before``: what stands if the reply is not merged."""
    if before is after or not dataclasses.is_dataclass(after):
        return after
    back = {
        f.name: getattr(before, f.name) for f in dataclasses.fields(after) if f.metadata.get("mirrored")
    }
    return dataclasses.replace(after, **back) if back else after  # type: ignore[type-var]


class Initial:
    """Start values by architecture, made once each."""

    def __init__(self, make: Mapping[str, Any]) -> None:
        self._make = make
        self._made: dict[str, Model] = {}

    def __call__(self, architecture: str) -> Model:
        """Return the one start model of an architecture."""
        if architecture not in self._made:
            self._made[architecture] = self._make[architecture]()
        return self._made[architecture]


class Background:
    """Work of the server that is under way beside the clients'."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> None:
        """Start work under a name that is not in use."""
        if name in self._tasks:
            work.close()
            raise ValueError(f"background work {name!r} has not been collected yet")
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=f"server background {name}")

    async def collect(self, name: str) -> Any:
        """Wait for work and return its result."""
        if name not in self._tasks:
            raise ValueError(f"no background work is called {name!r}; there is: {', '.join(self._tasks) or 'none'}")
        return await self._tasks.pop(name)

    @property
    def uncollected(self) -> tuple[str, ...]:
        """Names of work whose result nobody has asked for."""
        return tuple(self._tasks)


class ClientContext(Workbench):
    """What a client's hook may know and do.

    Attributes:
        architecture: Label of the client's own architecture.
        round: The round in which the server asked.
    """

    def __init__(self, *args: Any, architecture: str, round: int, initial: Initial, **kwargs: Any) -> None:  # noqa: A002
        super().__init__(*args, **kwargs)
        self.architecture = architecture
        self.round = round
        self._initial = initial

    def initial_model(self) -> Model:
        """Return the start values of the client's architecture, equal for all who share it."""
        return self._initial(self.architecture)

    def num_samples(self, split: Split = "train") -> int:
        """Return how many samples of a split the client holds."""
        return self._engine.resources.data.num_samples(self.client, split)


class ServerContext(Workbench):
    """What a hook at the server may know and do.

    Attributes:
        architecture: Label of the server's own architecture.
        round: The round's number: 0 before the first, one more than the last after it.
        num_rounds: How many rounds the run has.
        num_clients: Clients in the population.
    """

    def __init__(
        self,
        *args: Any,
        architecture: str,
        round: int,  # noqa: A002
        num_rounds: int,
        initial: Initial,
        background: Background,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.architecture = architecture
        self.round = round
        self.num_rounds = num_rounds
        self._initial = initial
        self._background = background

    @property
    def num_clients(self) -> int:
        """Clients in the population."""
        return self._engine.resources.data.num_clients

    def initial_model(self, architecture: str | None = None) -> Model:
        """Return the start values of an architecture, by default the server's own."""
        return self._initial(architecture or self.architecture)

    def background(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Start work that overlaps with the clients'; a later hook of the round collects it."""
        self._background.start(name, work)

    async def collect(self, name: str) -> Any:
        """Wait for background work and return its result."""
        return await self._background.collect(name)


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """Something to evaluate.

    Attributes:
        model: The model whose largest logit is the prediction.
    """

    model: Model


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
        """Return the state of a client that was never asked; pure, since the observer asks as well."""

    @abstractmethod
    async def models_of(
        self, observer: ClientContext, server_state: S, client_state: P
    ) -> Mapping[str, Predictor]:
        """Return what stands for a client when accuracy is measured.

        ``personal`` is measured on the client's own test samples; ``global`` on the global test set as well, and
        on the client's own where there is no ``personal``. Work done through ``observer`` takes no virtual time.
        """

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Return why a reply cannot be merged, or None.

        Only frames of the exchange's kind with finite values come here.
        """
        return None

    def hook(self, step: Literal["instruct", "local", "merge"], exchange: str) -> Any:
        """Return one of the three hooks of an exchange."""
        return getattr(self, f"{step}_{exchange}")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = {name.partition("_")[::2] for name in dir(cls) if name.startswith(("instruct_", "local_", "merge_"))}
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
