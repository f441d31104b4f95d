"""The contract of an algorithm.

An algorithm says *what* is sent, what a client does with it and how replies are merged. It has no code for
time or transport; the pacing decides *when* to merge. It is a sequence of exchanges. An :class:`Exchange`
names up to three hooks, async methods of the algorithm::

    instruct(server, state, cohort) -> (state, {client: message or None})  at the server
    local(client, state, message)   -> (state, reply or None)              at each client
    merge(server, state, replies)   -> state                               at the server

State is a frozen record; a hook returns a new one and changes none of its arguments. ``None`` for a message
means that no frame is sent. The server merges only if a client has replied (specification 3.5, E2); replies
are sorted by client, finite and vetted. All numbers in the server's state are finite, with None for unknown
ones: a merge that returns NaN or an infinity, or raises an ``ArithmeticError``, is rejected.

A pacing may merge stale replies, to dispatches from before other merges. It gives each a ``discount``, above
0. The algorithm says in ``discounted`` what the discount acts on. ``shares`` of a mean
(:func:`fedsim.algorithms.common.model_rounds.shares`): only their ratios count, so the discount of a single
reply vanishes. ``steps``: the algorithm multiplies its steps by it, as FedBuff in ``sum of discount * delta /
K`` and FedAsync in ``alpha * discount``, so a single stale reply makes a small step. ``nothing``: the server
merges nothing. A client may be asked again before its reply is merged, and may then be in a merge twice. An
algorithm for which that or a stale reply would be wrong says none of these, even if its base class does:
where a reply is a change of what the server has moved since, belongs to what the server remembers of one
cohort, or goes with a mirrored field.

In a hook, ``await client.fit(...)``, ``.predict(...)`` and ``.call(...)`` take the time of that side's
device. An algorithm charges by ``call`` what grows with replies times samples times classes, or is made for
each client. The mean of a cohort's models of one architecture, as in FedAvg, is free.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeAlias, cast

from typing_extensions import TypeVar

from fedsim.algorithms.common.model_check import unlike, unlike_tree
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import Fault
from fedsim.frozen import made_fast
from fedsim.models import Architecture
from fedsim.params import Model, Tree
from fedsim.plugins import Plugin
from fedsim.task import Task
from fedsim.wire import Message, ModelUpdate

S = TypeVar("S", default=Any)
"""Type of the server's state."""
P = TypeVar("P", default=Any)
"""Type of a client's state."""
C = TypeVar("C", bound=Config)

D = TypeVar("D", default=Any)
"""Type of an exchange's message to a client; None where no frame goes down."""
U = TypeVar("U", default=Any)
"""Type of an exchange's reply; None where no frame goes up."""

Instruct: TypeAlias = Callable[[ServerContext, S, Sequence[int]], Awaitable[tuple[S, Mapping[int, D]]]]
Local: TypeAlias = Callable[[ClientContext, P, D], Awaitable[tuple[P, U]]]

Discounted = Literal["shares", "steps", "nothing"]
When = Literal["opening", "round", "closing"]
Who = Literal["cohort", "all", "answered"]


@made_fast
@dataclass(frozen=True, slots=True, eq=False)
class Reply(Generic[U]):
    """A client's reply to a dispatch.

    Attributes:
        client: The client.
        dispatch: The number of the dispatch.
        exchange: The name of the exchange.
        version: The server's version (merges of rounds' exchanges) at the dispatch.
        staleness: Merges since then; 0 in a synchronous round.
        discount: Weight for its staleness, above 0; 1 in a synchronous round.
        message: The reply itself.
    """

    client: int
    dispatch: int
    exchange: str
    version: int
    staleness: int
    discount: float
    message: U


Replies: TypeAlias = Sequence[Reply[U]]
Merge: TypeAlias = Callable[[ServerContext, S, Replies[U]], Awaitable[S]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[S, P, D, U]):
    """One message to clients, their work, and the merge of their replies.

    Attributes:
        name: Its name, in generators, frames and tables.
        instruct: Makes the message for each client. Without it, clients are asked without a frame.
        local: What a client does. Without it, a client does nothing and sends no frame.
        merge: Merges the replies. Without it, the server's state stays.
        when: ``opening``, once before round 1; ``round``; ``closing``, once after the last round.
        who: The round's ``cohort``; ``all`` clients; or those who ``answered`` the previous exchange, the
            cohort if there is none. Before the first round and after the last, the cohort is all clients.
        reply: Kind of the reply; another kind is rejected. None: clients send no frame.
        changes: Fields of the reply that are changes of models, and no models, which codecs have to know.
        varying: Fields of the reply that hold now one model of the server's and now another.
    """

    name: str = field(kw_only=False)
    instruct: Instruct[S, D] | None = None
    local: Local[P, D, U] | None = None
    merge: Merge[S, U] | None = None
    when: When = "round"
    who: Who = "cohort"
    reply: type[U] | None = None
    changes: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()


Exchanges: TypeAlias = tuple[Exchange[S, P, Any, Any], ...]


def mirrored() -> Any:
    """Declare a field of a client's state that mirrors something at the server (specification 3.4).

    Its new value counts once the server has merged the reply that went with it; otherwise the field returns
    to its value before the dispatch. All other fields are kept in either case.
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
        on: Where it is measured, unless its name is ``personal`` or ``global``: on the client's ``own`` test
            samples, or on the ``global`` test set.
        weight: On the global test set, its weight in the mean over the distinct models of its name.
    """

    model: Model
    on: Literal["own", "global"] = "own"
    weight: float = 1.0


Predictors: TypeAlias = Mapping[str, Predictor]


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of a run, in which an algorithm may be unable to work.

    Attributes:
        task: What is learned.
        clients: The clients' architectures by label, in the order of the fleet.
        server: The server's architecture.
        num_public: Samples in the public set.
        public_labelled: Whether these have labels of the task.
        public_at_clients: Whether clients hold them from the start, or only the server does.
        architectures: All of the run, by label.
        training: How clients train by default.
        num_rounds: Rounds of the run; ``MAX_ROUNDS`` where only a budget ends it.
        cohort_size: Replies wanted in a round.
        pacing: Name of the pacing.
        merge_size: Replies that a merge waits for under an asynchronous pacing; None: those of a cohort.
        carries: Whether a merge may include replies to dispatches of earlier rounds.
        work_varies: Whether a workload may give clients less work than ``training`` says.
    """

    task: Task
    clients: Mapping[str, Architecture]
    server: Architecture
    num_public: int
    public_labelled: bool
    public_at_clients: bool = True
    architectures: Mapping[str, Architecture] = field(default_factory=dict)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    num_rounds: int = 1
    cohort_size: int = 1
    pacing: str = "synchronous"
    merge_size: int | None = None
    carries: bool = False
    work_varies: bool = False


Kind = Literal["reference", "one global model", "distillation", "personal models"]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts for comparing algorithms, in ``fedsim list algorithms`` and in ALGORITHMS.md.

    Payloads are formulas in bytes: S is a model of the client's architecture (4 for each parameter and
    running statistic, 8 for each counter), d its parameters, N the classes, p the public samples of a round,
    n the client's training samples.

    Attributes:
        kind: ``reference``: a point of comparison. ``one global model``: clients train it, the server merges
            models. ``distillation``: predictions travel, or the server learns from them. ``personal models``:
            clients end with models of their own.
        down: What a client is sent in a round.
        up: What a client sends.
        client: What a client keeps from one turn to the next.
        server: What the server holds.
        own_models: Whether clients end with models of their own under another kind.
    """

    kind: Kind
    down: str
    up: str
    client: str = "nothing"
    server: str = "nothing"
    own_models: bool = False

    @property
    def personal(self) -> bool:
        """Whether clients end with models of their own."""
        return self.own_models or self.kind == "personal models"


class Algorithm(Plugin[C], ABC, Generic[C, S, P]):
    """Base of all algorithms; see the module's docstring.

    Attributes:
        about: Facts for comparison; None for an algorithm that is not listed.
        messages: Its own kinds of message, beside the common ones.
        mixed_architectures: Whether clients may have different architectures.
        server_model: Whether the server has a model that starts with the values of ``server.model``, which
            need not be an architecture of clients; checks and ``run.json`` then name it.
        needs_public: Whether there must be a public set.
        needs_classes: Whether the task must be a classification.
        work_is_given: Why a workload cannot change the clients' work; None if they train as ``training``
            says.
        discounted: What the discount of a stale reply acts on: ``shares`` of a mean, ``steps`` of its own or
            ``nothing``. Then it can be paced asynchronously, with one exchange a round, for the cohort. None:
            it cannot.
        new_replies_only: Why replies to earlier rounds are refused; None if they are not.
        own_aggregation: Why its server can combine replies in its own way alone; None if ``aggregation``
            decides (:func:`fedsim.algorithms.common.model_rounds.combined`).
        no_edges: Why edge aggregators cannot average its replies for the server; None if what its server
            merges is a mean of models by ``config.weighting``, and it sends the same model to all.
    """

    about: ClassVar[About | None] = None
    messages: ClassVar[tuple[type[Message], ...]] = ()
    mixed_architectures: ClassVar[bool] = False
    server_model: ClassVar[bool] = False
    needs_public: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    work_is_given: ClassVar[str | None] = None
    discounted: ClassVar[Discounted | None] = None
    new_replies_only: ClassVar[str | None] = None
    own_aggregation: ClassVar[str | None] = "its server takes no mean of all models that came"
    no_edges: ClassVar[str | None] = "its server takes no mean of models that it has sent to all alike"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take hooks of a subclass's own for others than those replaced, unless the subclass says so."""
        super().__init_subclass__(**kwargs)
        for name, hooks in (("own_aggregation", ("merge",)), ("no_edges", ("merge", "send"))):
            if getattr(cls, name) is None and name not in vars(cls):
                for hook in hooks:
                    if hook in vars(cls):
                        why = f"it has its own {hook} (set {name} = None if that calls the replaced one)"
                        setattr(cls, name, why)

    @property
    @abstractmethod
    def exchanges(self) -> Exchanges[S, P]:
        """The exchanges, in the order in which they happen."""

    @abstractmethod
    def start(self, server: ServerContext) -> S:
        """Return the server's state before anything has happened."""

    def join(self, client: ClientContext) -> P:
        """Return the first state of a client; pure, since the observer calls it as well.

        None if clients keep nothing, and then for every client.
        """
        return cast(P, None)

    async def models_of(self, observer: ClientContext, server_state: S, client_state: P) -> Predictors:
        """Return the models by which a client's accuracy is measured; by default its own, as ``personal``.

        ``personal`` is measured on the client's own test samples; ``global`` on the global test set, and on
        the client's own if there is no ``personal``. Models under other names, such as a personal one before
        it is fine-tuned, are reported as well: on the client's own samples, where a client without one counts
        with its other model, so that all means are over the same clients; or on the global test set
        (:class:`Predictor`). Work done through ``observer`` takes no virtual time.
        """
        return {"personal": Predictor(await self.own_model(observer, client_state, None))}

    async def own_model(self, client: ClientContext, state: P, message: Any) -> Model:
        """Return the client's model, from its state and from what :meth:`send_last` sent it.

        For additions to any algorithm, such as fine-tuning. By default the state is the model, or has one
        called ``model``.
        """
        return state if isinstance(state, Model) else cast(Any, state).model

    async def send_last(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Send what clients need after the last round for :meth:`own_model`; by default no frame."""
        return state, dict.fromkeys(cohort)

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Return why a reply cannot be merged, or None.

        Frames of another kind, values that are not finite and a ``num_samples`` that the client cannot have
        are rejected before. By default a model must be of its client's architecture, and each further tree
        that counts, such as a control variate, like its parameters, or None if the kind allows that.
        """
        message = reply.message
        if not isinstance(message, ModelUpdate):
            return None
        wanted = server.initial_model(server.architecture_of(reply.client))
        if (fault := unlike(message.model, wanted)) is not None:
            return fault
        for name in message.PLAN.trees:
            tree: Tree | None = getattr(message, name)
            if tree is None or tree is message.params:
                continue
            fault = unlike_tree(tree, wanted.params, wanted.architecture)
            if fault is not None:
                return f"{name}: {fault}"
        return None

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Yield the reasons why the algorithm cannot work in a setting.

        A fault names the path of the value to change in a scenario, such as ``algorithm.params.mu``.
        ``mixed_architectures``, ``needs_public`` and ``discounted`` are checked before; ``needs_classes`` and
        ``new_replies_only`` here.
        """
        if self.needs_classes and setting.task.kind != "classification":
            yield Fault(
                "algorithm",
                f"it learns from probabilities of classes, and the task is a {setting.task.kind}",
                "take a data set with classes, or an algorithm that exchanges models alone, such as 'fedavg' "
                "or 'ktpfl_w'",
            )
        if self.new_replies_only and setting.carries and setting.merge_size is None:
            yield Fault("participation.pacing.params.late", self.new_replies_only, "write 'drop'")


def broadcast(cohort: Sequence[int], message: D) -> dict[int, D]:
    """Return the same message for everyone; its arrays are encoded once."""
    return dict.fromkeys(cohort, message)
