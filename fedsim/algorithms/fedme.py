"""FedMe: clients exchange models of any architecture, teach them and learn from them, and may keep them.

The server holds every client's model. In a round it groups the cohort's models by what they predict on
unlabelled samples and sends each client one of its group, the *exchanged* model of another client. The client
trains its own and the exchanged model together by deep mutual learning, says which of the two serves it
better, and returns both (*learn*). The server takes the mean of all that has come back of each client's
model, and sends each client the one that it chose, architecture included (*settle*; specification 5.E.9).

Before the first round clients say with which architecture they begin; the server knows its start values.
After the last round they fine-tune their models, as in section 5.1.3 of the paper. Decisions: models are not
uploaded again in each round (D-004-01); both models of a client learn at once, the other's predictions taken
as given (D-004-02); they are compared on validation samples (D-004-03); draws are independent and never give
a client its own model (D-004-05); clusters are made of probabilities (D-004-13). With few clients in a round
(D-004-14) models are exchanged within the cohort, where a client is alone with any model stored; absent
clients keep their own. A model whose outputs on the unlabelled samples are not finite is in no cluster and
goes to nobody; where the server has not asked it, because there is one cluster, whoever gets it trains alone
when it spoils the client's own. Who can take part is decided by the memory that the architecture of its group
takes: not by that of two models at once, nor of those that it may be sent.

Matsuda, Sasaki, Xiao, Onizuka: FedMe: Federated Learning via Model Exchange, SDM 2022 (arXiv 2110.07868).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from fedsim.algorithms.base import (
    About,
    Algorithm,
    Exchange,
    Exchanges,
    Predictor,
    Predictors,
    Replies,
    Reply,
    Setting,
)
from fedsim.algorithms.common.fedme_exchange import (
    NOBODY,
    Copied,
    Enrolment,
    ExchangedModel,
    ModelPair,
    Stored,
    draw,
    grouped,
    means_of_copies,
)
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig, validation_loss
from fedsim.algorithms.common.model_check import unknown, unknown_label
from fedsim.algorithms.common.model_rounds import broadcasts
from fedsim.algorithms.common.mutual_learning import EXCHANGED, PERSONAL, MutualLearning
from fedsim.algorithms.common.own_start import OwnStartConfig, own_start
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import AsTuple
from fedsim.data import Split
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.params import Model, count
from fedsim.ranges import MAX_ROUNDS, Clients, Few, PositiveEpochs
from fedsim.wire import ModelBroadcast, ModelUpdate

Instant = Annotated[float, Field(gt=0, le=1e9)]
"""A share of all rounds below 1, else a round."""


class FedMeConfig(OwnStartConfig, FineTuningConfig):
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
        if len({at >= 1 for at in raise_at}) > 1 or any(one >= other for one, other in pairwise(raise_at)):
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


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds.

    Attributes:
        stored: By client, the model that it has, as far as the server knows; those that have sent any.
        offers: By client, the mean of what it chose, on its way in *settle*.
        given: By client, whose model it was given last to learn from, and of which architecture, None for no
            model: what its reply is checked against, which may come rounds later.
    """

    stored: Mapping[int, Stored] = field(default_factory=dict)
    offers: Mapping[int, Model] = field(default_factory=dict)
    given: Mapping[int, Copied | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client holds.

    Attributes:
        model: Its own model.
    """

    model: Model


class FedMe(Algorithm[FedMeConfig, ServerState, ClientState]):
    """Personalised models by exchange."""

    Config = FedMeConfig
    messages = (Enrolment, ExchangedModel, ModelPair)
    mixed_architectures = True
    needs_public = True
    needs_classes = True

    @property
    def exchanges(self) -> Exchanges[ServerState, ClientState]:
        """Enrol once; learn and settle in every round."""
        config = self.config
        upload: Exchange[Any, ClientState, None, Any]
        upload = Exchange("upload", local=self.local_upload, merge=self.merge_models, reply=ModelUpdate)
        enrol: Exchange[ServerState, ClientState, None, Any] = Exchange(
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

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(own_start(client, self.config))

    async def local_choose(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, None]:
        """Take the architecture that is best on the client's own samples, if there are candidates."""
        best, least = state.model, None
        for label in self.config.candidates:
            start, epochs = own_start(client, self.config, label), self.config.candidate_epochs
            model = (await client.fit(start, epochs=epochs, name=f"candidate {label}")).model
            loss = await validation_loss(client, model)
            if least is None or loss < least:  # of equals the first
                best, least = model if self.config.start_trained else start, loss
        return ClientState(best), None

    async def local_enrol(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, Enrolment | ModelUpdate]:
        """Choose an architecture, and say which; send the model too if it has been trained."""
        state, _ = await self.local_choose(client, state, None)
        if self.config.start_trained:
            return await self.local_upload(client, state, None)
        return state, Enrolment(state.model.architecture)

    async def local_upload(
        self, client: ClientContext, state: ClientState, message: None
    ) -> tuple[ClientState, ModelUpdate]:
        """Send the client's own model (line 4 of the paper's algorithm)."""
        return state, ModelUpdate.of(state.model, num_samples=client.num_samples())

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
                model = own_start(server, self.config, message.architecture, client=reply.client)
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
            stored, groups = await grouped(server, stored, present, wanted)
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
        self, client: ClientContext, state: ClientState, message: ExchangedModel | None
    ) -> tuple[ClientState, ModelPair]:
        """Train both models together, choose one, and send both (equations 3 to 7)."""
        if message is None:
            return _alone(client, (await client.fit(state.model)).model)
        fitted = await client.fit(
            {PERSONAL: state.model, EXCHANGED: message.model},
            step=Descent(loss=MutualLearning(imitate=self.config.dml)),
        )
        personal, exchanged = fitted.models[PERSONAL], fitted.models[EXCHANGED]
        if not (personal.is_finite() and exchanged.is_finite()):
            # A model that learns from outputs that overflow diverges too, and the reply would be rejected.
            client.warn("exchanged model diverged", owner=message.owner, instead="the client's own alone")
            if not personal.is_finite():
                personal = (await client.fit(state.model, name="alone")).model
            return _alone(client, personal)
        chosen = client.client
        if self.config.mt:
            split: Split = "train" if self.config.tune_on == "train" else "val"
            lent = await validation_loss(client, exchanged, split)
            if lent < await validation_loss(client, personal, split):
                chosen = message.owner
        return ClientState(personal), ModelPair.of(personal, exchanged, message.owner, chosen)

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
        self, client: ClientContext, state: ClientState, message: ModelBroadcast
    ) -> tuple[ClientState, None]:
        """Replace the client's own model by the one received, architecture included."""
        return ClientState(message.model), None

    async def merge_settle(
        self, server: ServerContext, state: ServerState, replies: Replies[None]
    ) -> ServerState:
        """Store the models whose receipt was confirmed; other clients keep what they sent.

        A confirmation carried over from an earlier round concerns that round's offer, which is gone: what
        such a client has is seen from its next upload.
        """
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
        # Who has trained alone, because a frame was lost or what it was given has diverged, names nobody.
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

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: ClientState
    ) -> Predictors:
        """Return the client's own model."""
        return {"personal": Predictor(client_state.model)}


class FineTunedFedMe(FineTuning[FedMeConfig, ServerState], FedMe):
    """The same, and fine-tuning at the end, as in section 5.1.3 of the paper."""

    about = About(
        kind="personal models",
        down="S of its own and of the exchanged model's architecture",
        up="S of both",
        client="its model",
        server="every client's model",
    )


def _alone(client: ClientContext, model: Model) -> tuple[ClientState, ModelPair]:
    """Return the state and the reply of a client that has no other's model to give back."""
    return ClientState(model), ModelPair.of(model, None, NOBODY, client.client)


PLUGIN = FineTunedFedMe
