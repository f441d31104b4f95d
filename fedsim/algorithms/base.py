"""The contract of an algorithm.

An algorithm says *what* goes down, what a client does with it and how replies are merged. It knows no time
and no transport; *when* to merge is the pacing's business. It is a sequence of exchanges. An
:class:`Exchange` names up to three hooks, async methods of the algorithm::

    instruct(server, state, cohort) -> (state, {client: message or None})  at the server
    local(client, state, message)   -> (state, reply or None)              at each client
    merge(server, state, replies)   -> state                               at the server

State is a frozen record; a hook returns a new one and changes none of its arguments. ``None`` for a message
means that no frame travels. The server merges only when somebody has replied (specification 3.5, E2), with
the replies sorted by client, finite and vetted. All numbers in the server's state are finite, with None for
what is not known: a merge that returns NaN or an infinity, or raises an ``ArithmeticError``, is refused.

A pacing may merge replies to dispatches from before other merges. How much such a stale reply counts is for
the pacing to say: its ``discount``, above 0. What that acts on is for the algorithm to say
(``discounted``): on ``shares`` of a mean (:func:`fedsim.algorithms.common.model_rounds.shares`), where only
their ratios count, so that the discount of a single reply vanishes; or on ``steps``, which the algorithm
multiplies by it, as in FedBuff's ``sum of discount * delta / K`` and FedAsync's ``alpha * discount``, so that
a single stale reply makes a small step; or on ``nothing``, where the server merges nothing. A client may be
asked again before its reply is merged, and may then be in a merge twice. Where that or a stale reply would be
wrong, an algorithm says none of these, also one whose base class says it: where a reply is a change of what
the server has moved since, belongs to what the server remembers of one cohort, or goes with a mirrored field.

In a hook, ``await client.fit(...)``, ``.predict(...)`` and ``.call(...)`` take the time of that side's
device. An algorithm charges what grows with replies times samples times classes, or is made for each client,
by ``call``; the one mean of a cohort's models of an architecture, as in FedAvg, is free.
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
        discount: How much it counts for its staleness, above 0; 1 in a synchronous round.
        message: What came back.
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
        name: Its name; generators, frames and tables carry it.
        instruct: Makes the message for each client. Left out, all whom the exchange concerns are asked
            without a frame.
        local: What a client does. Left out, a client does nothing, and no frame goes up.
        merge: Merges the replies. Left out, the server's state stays.
        when: ``opening``, once before round 1; ``round``; ``closing``, once after the last round.
        who: The round's ``cohort``, ``all`` clients, or those who ``answered`` the exchange before; where
            there is none before it, the cohort. Before the first round and after the last there is no cohort,
            and all clients stand for it.
        reply: What comes back; a reply of another kind is rejected. None: no frame goes up.
    """

    name: str = field(kw_only=False)
    instruct: Instruct[S, D] | None = None
    local: Local[P, D, U] | None = None
    merge: Merge[S, U] | None = None
    when: When = "round"
    who: Who = "cohort"
    reply: type[U] | None = None


Exchanges: TypeAlias = tuple[Exchange[S, P, Any, Any], ...]


def mirrored() -> Any:
    """Declare a field of a client's state that mirrors something at the server (specification 3.4).

    Its new value counts only once the server has merged the reply that went with it; otherwise the field goes
    back to its value before the dispatch. All other fields are kept, whatever becomes of the reply.
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


Predictors: TypeAlias = Mapping[str, Predictor]


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds an algorithm, for it to say whether it can work there.

    Attributes:
        task: What is learned.
        clients: The clients' architectures by label, in the order of the fleet.
        server: The server's architecture.
        num_public: Samples in the public set.
        public_labelled: Whether these have labels of the task.
        public_at_clients: Whether clients hold them from the start, or only the server does.
        architectures: All of the run, by label, those that nobody starts with too.
        training: How clients train unless the algorithm says otherwise.
        num_rounds: Rounds of the run; ``MAX_ROUNDS`` where only a budget ends it.
        cohort_size: Replies wanted in a round.
        pacing: Name of the pacing.
        merge_size: Replies that a merge waits for under an asynchronous pacing; None where it takes those of
            a cohort.
        carries: Whether a merge may meet replies to dispatches of earlier rounds.
        work_varies: Whether a workload may give clients less work than ``training`` says, perhaps in
            mini-batches.
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
    """What a reader compares algorithms by, in ``fedsim list algorithms`` and in ALGORITHMS.md.

    Payloads are formulas in bytes: S is a model of the client's architecture (4 for each parameter and
    running statistic, 8 for each counter), d its parameters, N the classes, p the public samples of a round,
    n the client's training samples.

    Attributes:
        kind: ``reference``: a point to compare with. ``one global model``: clients train it, the server
            merges models. ``distillation``: predictions travel, or the server learns from them. ``personal
            models``: clients end with models of their own, by weights.
        down: What a client is sent in a round.
        up: What it sends.
        client: What it remembers from one turn to the next.
        server: What the server holds.
        own_models: Whether clients end with models of their own where the kind does not say so.
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
        about: What a reader compares it by; None for one that is not listed.
        messages: Kinds of message of its own, beside the common ones.
        mixed_architectures: Whether clients may have different architectures.
        server_model: Whether the server has a model that starts with the values of ``server.model``, which
            need not be an architecture of clients; checks and ``run.json`` then name it.
        needs_public: Whether there must be a public set.
        needs_classes: Whether the task must be a classification, since predictions travel as probabilities.
        work_is_given: Why clients do no work that a workload could change; None where they train as
            ``training`` says.
        discounted: What the discount of a stale reply acts on, ``shares`` of a mean, ``steps`` of its own or
            ``nothing``, where it can be paced asynchronously, with one exchange a round, for the cohort;
            None: it cannot.
        new_replies_only: What a reply to an earlier round would do wrong, where such are refused.
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

    @property
    @abstractmethod
    def exchanges(self) -> Exchanges[S, P]:
        """The exchanges, in the order in which they happen."""

    @abstractmethod
    def start(self, server: ServerContext) -> S:
        """Return the server's state before anything has happened."""

    def join(self, client: ClientContext) -> P:
        """Return the state of a client that was never asked; pure, since the observer asks as well.

        None where clients remember nothing, and then for every client.
        """
        return cast(P, None)

    @abstractmethod
    async def models_of(self, observer: ClientContext, server_state: S, client_state: P) -> Predictors:
        """Return what stands for a client when accuracy is measured.

        ``personal`` is measured on the client's own test samples; ``global`` on the global test set as well,
        and on the client's own where there is no ``personal``. Models under other names are reported beside:
        such as a personal one before it is fine-tuned, on the client's own samples, where a client without
        one counts with what stands for it, so that all means are over the same clients; or on the global
        test set (:class:`Predictor`). Work done through ``observer`` takes no virtual time.
        """

    async def own_model(self, client: ClientContext, state: P, message: Any) -> Model:
        """Return the model that a client goes on with, from its state and from what the server sent it.

        For what is built upon any algorithm, such as fine-tuning, which asks after :meth:`send_last`. By
        default the client holds it whole: its state is a model, or has one called ``model``.
        """
        return state if isinstance(state, Model) else cast(Any, state).model

    async def send_last(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Send what clients need after the last round for :meth:`own_model`; by default no frame."""
        return state, dict.fromkeys(cohort)

    def vet(self, server: ServerContext, state: S, reply: Reply) -> str | None:
        """Return why a reply cannot be merged, or None.

        Only frames of the exchange's kind with finite values come here; where they have a field
        ``num_samples``, it is from 1 to as many training samples as the client holds. By default a model has
        to be of its client's architecture, and each further tree that counts, such as a control variate, has
        to be like its parameters, or None where the kind allows that.
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
        """Yield each thing for which the algorithm cannot work in a setting.

        A fault names the path of the value to change in a scenario, such as ``algorithm.params.mu``.
        ``mixed_architectures``, ``needs_public`` and ``discounted`` have been checked before; here are
        ``needs_classes`` and ``new_replies_only``.
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
