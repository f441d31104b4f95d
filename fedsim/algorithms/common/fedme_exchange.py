"""FedMe's messages and arithmetic: whose model is sent to whom, and the means of its copies.

A client's model comes back from several clients: from itself, and from those who had it as the exchanged
model. m: models, p: public samples, N: classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsim.algorithms.common.distillation import softmax
from fedsim.algorithms.common.finite_outputs import logits_of_finite
from fedsim.algorithms.common.prediction_clusters import clustered
from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array, Model, Tree, mean_model
from fedsim.rng import Key
from fedsim.wire import Message, ModelBroadcast, counted, message

NOBODY = -1
"""Owner of the exchanged model where there is none."""


@message("fedme_enrolment")
class Enrolment(Message):
    """With which architecture a client begins; the server knows its start values.

    Attributes:
        architecture: Its label.
    """

    architecture: str


@message("fedme_exchanged")
class ExchangedModel(ModelBroadcast):
    """A client's model on its way to another.

    Attributes:
        owner: Whose model it is.
    """

    owner: int


@message("fedme_pair")
class ModelPair(Message):
    """Both models of a client after training, and which of them it chose.

    Both travel in one frame, so the paper's case that one of the two uploads is lost cannot happen: either
    both arrive, or that client's copies are in no mean.

    Attributes:
        personal_architecture: Label of the client's own model's architecture.
        personal_params: Its trainable parameters.
        personal_buffers: Its running statistics and counters.
        exchanged_architecture: Label of the exchanged model's architecture; empty without one.
        exchanged_params: Its trainable parameters.
        exchanged_buffers: Its running statistics and counters.
        owner: Whose model the exchanged one is; -1 without one.
        chosen: The client itself, or ``owner`` where the exchanged model serves it better (a_i).
    """

    personal_architecture: str
    personal_params: Tree = counted()
    personal_buffers: Tree
    exchanged_architecture: str
    exchanged_params: Tree = counted()
    exchanged_buffers: Tree
    owner: int
    chosen: int

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


Copied = tuple[int, str]
"""A client's model as it comes back from several clients: whose it is, and of which architecture."""


def means_of_copies(models: Sequence[tuple[int, Model]]) -> dict[Copied, Model]:
    """Return the plain mean of all that came back of each client's model (equations 8 and 9).

    Args:
        models: Whose model each is, and the model as somebody trained it. Where copies differ in
            architecture, because a client never got what it had chosen, each architecture has its own mean.
    """
    groups: dict[Copied, list[Model]] = {}
    for owner, model in models:
        groups.setdefault((owner, model.architecture), []).append(model)
    return {of: mean_model(copies, [1 / len(copies)] * len(copies)) for of, copies in groups.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A client's model as the server knows it.

    Attributes:
        model: The model.
        outputs: Its probabilities on the public samples, float32 ``[p, N]``, once they were asked for.
    """

    model: Model
    outputs: Array | None = None


def draw(key: Key, client: int, groups: Mapping[int, int], stored: Sequence[int]) -> int | None:
    """Return whose model a client gets, or None where there is no other.

    Args:
        key: Names the draw, together with the client.
        client: For whom.
        groups: The group of each client of the cohort whose model is stored.
        stored: All clients whose model is stored, ascending.
    """
    cohort = [other for other in groups if other != client]
    alike = [other for other in cohort if client in groups and groups[other] == groups[client]]
    choice = alike or cohort or [other for other in stored if other != client]
    return choice[key.child(client).numpy().integers(len(choice))] if choice else None


async def outputs_of(
    server: ServerContext, stored: Mapping[int, Stored], clients: Sequence[int]
) -> tuple[Mapping[int, Stored], dict[int, Array]]:
    """Return the models stored with the outputs of some clients', and these by client, float32 ``[p, N]``.

    Each model without outputs predicts once; takes the server's time. Those whose outputs are not
    finite are no longer stored: they cannot be compared, and would spoil the model of whoever got one.
    """
    new: dict[int, tuple[int, Model]] = {}  # by identity: several clients may have one model
    for client in clients:
        if stored[client].outputs is None:
            new.setdefault(id(stored[client].model), (client, stored[client].model))
    logits = await logits_of_finite(server, list(new.values()))
    predicted = {of: softmax(logits[place]) for place, of in enumerate(new) if place in logits}
    after, outputs = dict(stored), dict[int, Array]()
    for client in clients:
        one = after.pop(client)
        known = predicted.get(id(one.model)) if one.outputs is None else one.outputs
        if known is not None:
            after[client], outputs[client] = Stored(one.model, known), known
    return after, outputs


async def grouped(
    server: ServerContext, stored: Mapping[int, Stored], clients: Sequence[int], num_clusters: int
) -> tuple[Mapping[int, Stored], dict[int, int]]:
    """Return the models stored, after :func:`outputs_of`, and the cluster of each client with outputs."""
    stored, outputs = await outputs_of(server, stored, clients)
    if not outputs:
        return stored, {}
    found = await clustered(server, list(outputs.values()), num_clusters)
    return stored, dict(zip(outputs, found.labels.tolist(), strict=True))
