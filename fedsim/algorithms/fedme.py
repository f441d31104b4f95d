"""FedMe: clients exchange models of any architecture, teach them and learn from them, and may keep them.

The server holds every client's model. In a round it groups the cohort's models by their predictions on
unlabelled samples, and sends each client the *exchanged* model of another client of its group. The client
trains its own and the exchanged model together by deep mutual learning, chooses the better one, and returns
both (*learn*). The server averages all copies of each client's model, and sends each client the mean of the
model that it chose, architecture included (*settle*; specification 5.E.9).

Before round 1 clients send the label of their architecture; the server knows its start values. After the last
round they fine-tune their models, as in section 5.1.3 of the paper. Decisions: models are not uploaded again
in each round (D-004-01); both models learn at once, the other's predictions taken as given (D-004-02); they
are compared on validation samples (D-004-03); draws are independent and never give a client its own model
(D-004-05); clusters are of probabilities (D-004-13). With few clients in a round models are exchanged within
the cohort, or with any stored model if a client is alone; absent clients keep their own (D-004-14). A model
with outputs that are not finite is in no cluster and is sent to nobody. With one cluster the server asks for
no outputs; a client whose own model an exchanged one spoils trains alone. Clients are eligible by the memory
of their group's architecture alone.

Matsuda, Sasaki, Xiao, Onizuka: FedMe: Federated Learning via Model Exchange, SDM 2022 (arXiv 2110.07868).
Zhang, Xiang, Hospedales, Lu: Deep Mutual Learning, CVPR 2018 (arXiv 1706.00384).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor

from fedsim.algorithms.base import About, Algorithm, Exchange, Exchanges, Replies, Reply, Setting
from fedsim.algorithms.common.distillation import kl_of_logits, softmax
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig, validation_loss
from fedsim.algorithms.common.finite_outputs import logits_of_finite
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.model_check import unlike
from fedsim.algorithms.common.model_rounds import broadcasts
from fedsim.algorithms.common.prediction_clusters import clustered
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import AsTuple
from fedsim.data import Split
from fedsim.engine.losses import TRAIN, Batches, Extras, Models, label_loss, serves_many
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.params import Array, Model, Tree, count, mean_model
from fedsim.ranges import MAX_ROUNDS, Clients, Few, PositiveEpochs
from fedsim.rng import Key
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, counted, message

Instant = Annotated[float, Field(gt=0, le=1e9)]  # a share of all rounds below 1, else a round


class FedMeConfig(OwnModelConfig, FineTuningConfig):
    """FedMe's own parameters."""

    mt: bool = True
    """Model tuning: a client may go on with the exchanged model in place of its own."""
    dml: bool = True
    """Deep mutual learning: both models learn from each other, not from the labels alone."""
    mc: bool = True
    """Model clustering: exchange among models that predict alike, not among all."""
    clusters: Annotated[tuple[Clients, ...], AsTuple, Few] = (1, 2, 3, 4)
    """Numbers of clusters, one after the other (the paper's)."""
    raise_at: Annotated[tuple[Instant, ...], AsTuple, Field(validate_default=True)] = (0.5, 0.75, 0.9)
    """When the next number begins, one instant less than there are numbers: below 1 a share of all rounds,
    from 1 on a round (the paper: 150, 225, 275 of 300; 250, 375, 450 of 500; 50, 75, 90 of 100)."""
    tune_on: Literal["validation", "train"] = "validation"
    """Samples on which the two models are compared; the paper's text means those trained on."""
    candidates: Annotated[tuple[str, ...], AsTuple] = ()
    """Labels of architectures that each client tries on its own samples before the first round, to begin with
    the best, untrained; without any it begins with its own. The paper tries four."""
    candidate_epochs: PositiveEpochs = 1
    """Passes over the client's own samples for each candidate (not given in the paper)."""
    start_trained: bool = False
    """Begin with the best candidate as it was trained, and send that model; in the paper it begins anew."""
    literal_upload: bool = False
    """Let clients send their models at the start of every round, as in line 4 of the paper's algorithm; the
    server has just sent them."""

    @field_validator("raise_at", mode="after")
    @classmethod
    def _in_step(cls, raise_at: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        clusters = info.data.get("clusters")
        if clusters is not None and len(raise_at) != len(clusters) - 1:
            raise ValueError(
                f"{len(raise_at)} instants for the numbers of clusters {clusters}: give one for each number "
                "but the first"
            )
        if any(at >= 1 and not at.is_integer() for at in raise_at):
            raise ValueError(f"{raise_at}: from 1 on an instant is a round, so give a whole number")
        if len({at >= 1 for at in raise_at}) > 1 or any(at >= after for at, after in pairwise(raise_at)):
            raise ValueError(f"{raise_at}: give ascending shares of all rounds, or ascending rounds")
        return raise_at

    @field_validator("candidates", mode="after")
    @classmethod
    def _different(cls, candidates: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(candidates)) < len(candidates):
            raise ValueError(f"{candidates}: name each candidate once")
        return candidates

    @field_validator("start_trained", mode="after")
    @classmethod
    def _of_candidates(cls, start_trained: bool, info: ValidationInfo) -> bool:
        if start_trained and info.data.get("candidates") == ():
            raise ValueError("nothing is trained before the first round: name candidates, or leave it out")
        return start_trained


NOBODY = -1  # owner of the exchanged model where there is none


# Names of a client's own model and of the other in a job of two.
PERSONAL, EXCHANGED = "personal", "exchanged"


@dataclass(frozen=True, slots=True)
class MutualLearning:
    """Both losses: ``CE + KL(other || own)`` (FedMe's equations 3 and 4)."""

    imitate: bool = True  # whether models learn from each other; else each from the labels alone

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
        """Return the loss."""
        batch = batches[TRAIN]
        own, other = models[PERSONAL](batch.x), models[EXCHANGED](batch.x)
        losses = {PERSONAL: label_loss(own, batch.labels), EXCHANGED: label_loss(other, batch.labels)}
        if self.imitate:
            losses[PERSONAL] = losses[PERSONAL] + kl_of_logits(other, own)
            losses[EXCHANGED] = losses[EXCHANGED] + kl_of_logits(own, other)
        return losses


@message("fedme_enrolment")
class Enrolment(Message):
    """With which architecture a client begins; the server knows its start values."""

    architecture: str


@message("fedme_exchanged")
class ExchangedModel(ModelBroadcast):
    """A client's model on its way to another."""

    owner: int  # the client whose model it is


@message("fedme_pair")
class ModelPair(Message):
    """Both models of a client after training, in one frame, and which of them it chose."""

    personal_architecture: str  # label of the client's own model's architecture
    personal_params: Tree = counted()  # its trainable parameters
    personal_buffers: Tree  # its running statistics and counters
    exchanged_architecture: str  # label of the exchanged model's architecture; empty without one
    exchanged_params: Tree = counted()  # its trainable parameters
    exchanged_buffers: Tree  # its running statistics and counters
    owner: int  # whose model the exchanged one is; -1 without one
    chosen: int  # the client itself, or owner where the exchanged model serves it better (a_i)

    @classmethod
    def of(cls, personal: Model, exchanged: Model | None, owner: int, chosen: int) -> ModelPair:
        """Return the message that carries one model or two."""
        other = Model("", {}) if exchanged is None else exchanged
        return cls(
            personal.architecture,
            personal.params,
            personal.buffers,
            other.architecture,
            other.params,
            other.buffers,
            owner,
            chosen,
        )

    @property
    def personal(self) -> Model:
        """The client's own model."""
        return Model(self.personal_architecture, self.personal_params, self.personal_buffers)

    @property
    def exchanged(self) -> Model | None:
        """The other one, if there was any."""
        if self.owner == NOBODY:
            return None
        return Model(self.exchanged_architecture, self.exchanged_params, self.exchanged_buffers)


# A client's model as it comes back from several clients: whose it is, and of which architecture.
Copied = tuple[int, str]


def means_of_copies(models: Sequence[tuple[int, Model]]) -> dict[Copied, Model]:
    """Return the plain mean of each client's copies, per architecture (equations 8 and 9)."""
    groups: dict[Copied, list[Model]] = {}
    for owner, model in models:
        groups.setdefault((owner, model.architecture), []).append(model)
    return {of: mean_model(copies, [1 / len(copies)] * len(copies)) for of, copies in groups.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A client's model as the server knows it."""

    model: Model
    outputs: Array | None = None  # its probabilities on the public samples, [p, N], once computed


def draw(key: Key, client: int, groups: Mapping[int, int], stored: Sequence[int]) -> int | None:
    """Return whose model a client gets: of its group, else of the cohort, else any stored; or None."""
    cohort = [other for other in groups if other != client]
    alike = [other for other in cohort if client in groups and groups[other] == groups[client]]
    choice = alike or cohort or [other for other in stored if other != client]
    return choice[key.child(client).numpy().integers(len(choice))] if choice else None


async def outputs_of(
    server: ServerContext, stored: Mapping[int, Stored], clients: Sequence[int]
) -> tuple[Mapping[int, Stored], dict[int, Array]]:
    """Return the stored models with their outputs, without those whose outputs are not finite."""
    new: dict[int, tuple[int, Model]] = {}  # by identity: several clients may have one model
    for client in clients:
        if stored[client].outputs is None:
            new.setdefault(id(stored[client].model), (client, stored[client].model))
    logits = await logits_of_finite(server, list(new.values()))
    predicted = {of: softmax(logits[place]) for place, of in enumerate(new) if place in logits}
    after, outputs = dict(stored), dict[int, Array]()
    for client in clients:
        entry = after.pop(client)
        known = predicted.get(id(entry.model)) if entry.outputs is None else entry.outputs
        if known is not None:
            after[client], outputs[client] = Stored(entry.model, known), known
    return after, outputs


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    # By client, its last known model.
    stored: Mapping[int, Stored] = field(default_factory=dict)
    # By client, the mean of the model that it chose, during *settle*.
    offers: Mapping[int, Model] = field(default_factory=dict)
    # By client, owner and architecture of the last exchanged model, to check its reply; None for no model.
    given: Mapping[int, Copied | None] = field(default_factory=dict)


class FedMe(Algorithm[FedMeConfig, ServerState, Model]):
    """Personalised models by exchange; a client's state is its own model."""

    messages = (Enrolment, ExchangedModel, ModelPair)
    mixed_architectures = True
    needs_public = True
    needs_classes = True

    @property
    def exchanges(self) -> Exchanges[ServerState, Model]:
        """Enrol once; learn and settle in every round."""
        config = self.config
        upload: Exchange[Any, Model, None, Any]
        upload = Exchange("upload", local=self.local_upload, merge=self.merge_models, reply=ModelUpdate)
        enrol: Exchange[ServerState, Model, None, Any] = Exchange(
            "enrol",
            local=self.local_enrol,
            merge=self.merge_models,
            when="opening",
            who="all",
            reply=ModelUpdate if config.start_trained else Enrolment,
        )
        choose = Exchange("enrol", local=self.local_choose, when="opening", who="all")
        learn = Exchange(
            "learn",
            instruct=self.instruct_learn,
            local=self.local_learn,
            merge=self.merge_learn,
            who="answered" if config.literal_upload else "cohort",
            reply=ModelPair,
            varying=("exchanged_params",),
        )
        settle = Exchange(
            "settle",
            instruct=self.instruct_settle,
            local=self.local_settle,
            merge=self.merge_settle,
            who="answered",
        )
        literal = (choose, upload) if config.candidates else (upload,)
        return (*(literal if config.literal_upload else (enrol,)), learn, settle)

    def num_clusters(self, round: int, num_rounds: int) -> int:  # noqa: A002
        """Return K^t, the number of clusters in a round."""
        if not self.config.mc:
            return 1
        # A share of the rounds need not be a number of rounds exactly.
        rounds = [at if at >= 1 else at * num_rounds - 1e-9 for at in self.config.raise_at]
        return self.config.clusters[sum(round >= at for at in rounds)]

    def start(self, server: ServerContext) -> ServerState:
        """Nothing is known yet."""
        return ServerState()

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values of the client's architecture."""
        return initial_own_model(client, self.config)

    async def local_choose(self, client: ClientContext, state: Model, message: None) -> tuple[Model, None]:
        """Take the architecture that is best on the client's own samples, if there are candidates."""
        best, least = state, None
        for label in self.config.candidates:
            start, epochs = initial_own_model(client, self.config, label), self.config.candidate_epochs
            model = (await client.fit(start, epochs=epochs, name=f"candidate {label}")).model
            loss = await validation_loss(client, model)
            if least is None or loss < least:  # of equals the first
                best, least = model if self.config.start_trained else start, loss
        if self.config.candidates:
            client.note("architecture chosen", architecture=best.architecture)
        return best, None

    async def local_enrol(
        self, client: ClientContext, state: Model, message: None
    ) -> tuple[Model, Enrolment | ModelUpdate]:
        """Choose an architecture, and say which; send the model too if it has been trained."""
        state, _ = await self.local_choose(client, state, None)
        if self.config.start_trained:
            return await self.local_upload(client, state, None)
        return state, Enrolment(state.architecture)

    async def local_upload(
        self, client: ClientContext, state: Model, message: None
    ) -> tuple[Model, ModelUpdate]:
        """Send the client's own model (line 4 of the paper's algorithm)."""
        return state, ModelUpdate.of(state, num_samples=client.num_samples())

    async def merge_models(
        self, server: ServerContext, state: ServerState, replies: Replies[Any]
    ) -> ServerState:
        """Store the models that came, or the start values of the architectures that were named."""
        stored = dict(state.stored)
        for reply in replies:
            message = reply.message
            if isinstance(message, ModelUpdate):
                model = message.model
            else:
                model = initial_own_model(server, self.config, message.architecture, client=reply.client)
            stored[reply.client] = Stored(model)
        return replace(state, stored=stored)

    async def instruct_learn(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ExchangedModel | None]]:
        """Group the cohort's models, and send each client one of its group that is not its own."""
        stored = state.stored
        present = [client for client in cohort if client in stored]
        groups = dict.fromkeys(present, 0)
        wanted = self.num_clusters(server.round, server.num_rounds)
        if wanted > 1 and present:
            stored, outputs = await outputs_of(server, stored, present)
            groups = {}
            if outputs:
                clusters = await clustered(server, list(outputs.values()), wanted)
                groups = dict(zip(outputs, clusters.labels.tolist(), strict=True))
        key, everyone = server.key.child("exchange"), sorted(stored)
        made: dict[int, ExchangedModel] = {}
        messages: dict[int, ExchangedModel | None] = dict.fromkeys(cohort)
        given: dict[int, Copied | None] = dict.fromkeys(cohort)
        for client in cohort:
            if (owner := draw(key, client, groups, everyone)) is not None:
                model = stored[owner].model
                message = ExchangedModel(model.architecture, model.params, model.buffers, owner)
                messages[client] = made.setdefault(owner, message)
                given[client] = owner, model.architecture
        return replace(state, stored=stored, given={**state.given, **given}), messages

    async def local_learn(
        self, client: ClientContext, state: Model, message: ExchangedModel | None
    ) -> tuple[Model, ModelPair]:
        """Train both models together, choose one, and send both (equations 3 to 7)."""
        if message is None:
            return _alone(client, (await client.fit(state)).model)
        fitted = await client.fit(
            {PERSONAL: state, EXCHANGED: message.model},
            step=Descent(loss=MutualLearning(imitate=self.config.dml)),
        )
        personal, exchanged = fitted.models[PERSONAL], fitted.models[EXCHANGED]
        if not (personal.is_finite() and exchanged.is_finite()):
            # A model that learns from outputs that overflow diverges too, and the reply would be rejected.
            client.warn("exchanged model diverged", owner=message.owner, instead="the client's own alone")
            if not personal.is_finite():
                personal = (await client.fit(state, name="alone")).model
            return _alone(client, personal)
        chosen = client.client
        if self.config.mt:
            split: Split = "train" if self.config.tune_on == "train" else "val"
            lent = await validation_loss(client, exchanged, split)
            if lent < await validation_loss(client, personal, split):
                chosen = message.owner
        return personal, ModelPair.of(personal, exchanged, message.owner, chosen)

    async def merge_learn(
        self, server: ServerContext, state: ServerState, replies: Replies[ModelPair]
    ) -> ServerState:
        """Take the mean of the copies of each client's model, and note which mean each client chose."""
        pairs: dict[int, ModelPair] = {reply.client: reply.message for reply in replies}
        own = [(client, pair.personal) for client, pair in pairs.items()]
        others = [(pair.owner, pair.exchanged) for pair in pairs.values() if pair.exchanged is not None]
        copies = [*own, *others]
        flops = float(max(1, 2 * sum(count(model.params) for _, model in copies)))
        means = await server.call(means_of_copies, copies, flops=flops)
        offers = {}
        for client, pair in pairs.items():
            is_own = pair.chosen == client
            label = pair.personal_architecture if is_own else pair.exchanged_architecture
            offers[client] = means[pair.chosen, label]
        # Until a client confirms what it is offered, it has what it sent.
        stored = {**state.stored, **{client: Stored(model) for client, model in own}}
        return replace(state, stored=stored, offers=offers)

    async def instruct_settle(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ModelBroadcast]]:
        """Send each client the mean of the model that it chose."""
        return state, broadcasts({client: state.offers[client] for client in cohort})

    async def local_settle(
        self, client: ClientContext, state: Model, message: ModelBroadcast
    ) -> tuple[Model, None]:
        """Replace the client's own model by the one received, architecture included."""
        return message.model, None

    async def merge_settle(
        self, server: ServerContext, state: ServerState, replies: Replies[None]
    ) -> ServerState:
        """Store the models whose receipt was confirmed; late confirmations concern offers that are gone."""
        settled = {
            reply.client: Stored(state.offers[reply.client]) for reply in replies if not reply.staleness
        }
        return replace(state, stored={**state.stored, **settled}, offers={})

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse architectures that the run does not have, and exchanges that cannot have been."""
        if isinstance(reply.message, Enrolment):
            return unknown_label(server, reply.message.architecture)
        if isinstance(reply.message, ModelUpdate):
            return unknown(server, reply.message.model)
        pair: ModelPair = reply.message
        if fault := unknown(server, pair.personal) or unknown(server, pair.exchanged):
            return fault
        # A client that trained alone, because a frame was lost or a model diverged, names NOBODY.
        came = pair.owner, pair.exchanged_architecture
        if pair.owner != NOBODY and came != state.given.get(reply.client):
            return f"an exchanged model of client {came[0]}, architecture {came[1]!r}, which it was not given"
        choices = {reply.client, pair.owner} if self.config.mt else {reply.client}
        if pair.chosen not in choices - {NOBODY}:
            return f"choice {pair.chosen}, which is none of the models to choose from"
        return None

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse candidates that the run does not have, shares of no number of rounds, no classes."""
        yield from super().misfits(setting)
        if setting.num_rounds == MAX_ROUNDS and self.config.raise_at and self.config.raise_at[0] < 1:
            problem = f"{list(self.config.raise_at)} are shares of all rounds, whose number nobody knows"
            yield Fault(
                "algorithm.params.raise_at", problem, "write run.rounds, or the numbers of rounds here"
            )
        absent = [label for label in self.config.candidates if label not in setting.architectures]
        if absent:
            problem = f"no model of the run is labelled {' or '.join(map(repr, absent))}"
            mend = f"name some of {', '.join(setting.architectures)}"
            yield Fault("algorithm.params.candidates", problem, mend)


class FineTunedFedMe(FineTuning[FedMeConfig, ServerState], FedMe):
    """The same, and fine-tuning at the end, as in section 5.1.3 of the paper."""

    about = About(
        kind="personal models",
        down="S of its own and of the exchanged model's architecture",
        up="S of both",
        client="its model",
        server="every client's model",
    )


def unknown_label(server: ServerContext, label: str) -> str | None:
    """Say that the run has no architecture of a label; None if it has one."""
    try:
        server.initial_model(label)
    except KeyError:
        return f"architecture {label!r}, which the run does not have"
    return None


def unknown(server: ServerContext, model: Model | None) -> str | None:
    """Say why a model is of no architecture of the run; None if it is of one, or there is no model."""
    if model is None:
        return None
    label = model.architecture
    return unknown_label(server, label) or unlike(model, server.initial_model(label))


def _alone(client: ClientContext, model: Model) -> tuple[Model, ModelPair]:
    """Return the state and the reply of a client that has no other's model to give back."""
    return model, ModelPair.of(model, None, NOBODY, client.client)


PLUGIN = FineTunedFedMe
