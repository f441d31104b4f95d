"""FedGKT: clients train small models, the server a large one on the features that they send.

A client trains a small model, from labels and from the server's logits on its samples. Then it sends the
features of its samples (the outputs of its lower layers), its logits and its labels, so labels leave the
client. The server trains the layers of its own model above the cut on these, from labels and from the
clients' logits. When it asks a client again, it sends its logits on that client's last features
(specification 5.C.5). A client's lower layers under the server's upper ones are measured.

The original has all clients in every round. Otherwise, as in appendix B of Fed-ET, the server trains on the
features of those who replied. A client without logits from the server learns from labels alone. Unlike in the
authors' code, logits are matched to samples by number, so the samples may be shuffled. The server's optimiser
goes on from round to round, whatever `training.keep_optimiser` is.

He, Annavaram, Avestimehr: Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge, NeurIPS
2020 (arXiv 2007.14513), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from torch import Tensor

from fedsim import toml_writer
from fedsim.algorithms.base import About, Predictor, Predictors, Replies, Reply, Setting
from fedsim.algorithms.common.distillation import kl_divergence
from fedsim.algorithms.common.finite_outputs import unless_diverged
from fedsim.algorithms.common.training_rounds import OwnModelRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.jobs import InlineSamples, Stream, per_sample
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.losses import MODEL, TEACHER, TRAIN, Batches, Extras, Models, label_loss, serves_many
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.models import Architecture, composed
from fedsim.params import Model, Tree
from fedsim.ranges import Coefficient, LearningRate, PositiveEpochs, Temperature
from fedsim.wire import Message, counted, message

# The server's passes up to a round, as in the authors' code; later two.
SERVER_EPOCHS = ((20, 20), (30, 15), (40, 10), (100, 5), (150, 3))


def _between(cut: int) -> int:
    if cut == 0:
        raise ValueError(
            "no layer is below a cut at 0, so the samples would leave the clients: write 1 or more"
        )
    return cut


# How many layers are below a cut; as in slices, -1 means all but the head.
Cut = Annotated[int, Field(ge=-1000, le=1000), AfterValidator(_between)]


@message("feature_maps")
class FeatureMaps(Message):
    """A client's samples as its lower layers see them."""

    sample_ids: NDArray[np.int64]  # numbers of the samples among the client's own, int64 [n]
    features: NDArray[np.float32] = counted()  # what its lower layers give, float32 [n, ...]
    logits: NDArray[np.float32] = counted()  # what its whole model gives, float32 [n, N]
    labels: NDArray[np.int64]  # int64 [n]

    @property
    def num_samples(self) -> int:
        """How many samples; a reply about more than its client holds is rejected."""
        return len(self.labels)


@message("server_logits")
class ServerLogits(Message):
    """What the server's layers say of a client's samples."""

    sample_ids: NDArray[np.int64]  # numbers of the samples among the client's own, int64 [n]
    values: NDArray[np.float32] = counted()  # logits, float32 [n, N]


@dataclass(frozen=True, slots=True)
class Transfer:
    """The loss ``hard CE + soft temperature^2 KL(teacher || student)``, with logits as extra ``teacher``."""

    hard: float
    soft: float
    temperature: float

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        batch = batches[TRAIN]
        logits = models[MODEL](batch.x)
        teacher = F.softmax(extras[TEACHER] / self.temperature, dim=-1)
        divergence = kl_divergence(teacher, F.log_softmax(logits / self.temperature, dim=-1))
        return self.hard * label_loss(logits, batch.labels) + self.soft * self.temperature**2 * divergence


def unusable(maps: FeatureMaps, shape: tuple[int, ...], num_outputs: int) -> str | None:
    """Return why features cannot be learned from, or None; ``shape`` is that of one sample's features."""
    n, labels = len(maps.labels), maps.labels
    if not n or labels.shape != (n,) or labels.min() < 0 or labels.max() >= num_outputs:
        return f"labels that are not {n} classes"
    if maps.features.shape != (n, *shape) or maps.logits.shape != (n, num_outputs):
        return f"features of shape {maps.features.shape} and logits of shape {maps.logits.shape}"
    if not np.array_equal(np.sort(maps.sample_ids, axis=None), np.arange(n)):
        return f"samples that are not those from 0 to {n - 1}"
    return None


def cut_faults(setting: Setting, cut: int, server_cut: int) -> Iterator[Fault]:
    """Yield models that cannot be cut, cuts that send samples, and features that the server does not take."""
    faults = [_cut_fault(net, cut) or _bare_fault(net, cut) for net in setting.clients.values()]
    faults.append(_cut_fault(setting.server, server_cut))
    if any(faults):
        yield from filter(None, faults)
        return
    wanted = setting.server.above(server_cut).task.input_shape
    for label, net in setting.clients.items():
        if (shape := net.below(cut).output_shape) != wanted:
            problem = f"its features are of shape {shape}, and the server's layers take {wanted}"
            yield Fault(
                toml_writer.path("models", label), problem, "cut at other places, or make the layers as wide"
            )


def _cut_fault(architecture: Architecture, cut: int) -> Fault | None:
    """Return why an architecture cannot be cut with layers on both sides."""
    if (fault := architecture.cut_fault(cut)) is not None:
        return fault
    num_layers = len(architecture.layers)
    if abs(cut) < num_layers:
        return None
    problem = f"model {architecture.label!r} has {num_layers} layers, and none is left beyond a cut at {cut}"
    return Fault("algorithm.params.cut", problem, f"cut it at 1 to {num_layers - 1}")


def _bare_fault(architecture: Architecture, cut: int) -> Fault | None:
    """Return why what is below a cut would let samples leave a client as they are: it has no parameters."""
    if architecture.below(cut).num_params:
        return None
    last = len(architecture.layers) - 1
    places = (place for place in range(1, last + 1) if architecture.cut_fault(place) is None)
    least = next((place for place in places if architecture.below(place).num_params), None)
    problem = f"model {architecture.label!r} has no parameters below a cut at {cut}"
    mend = "take a model with hidden layers" if least is None else f"cut it at {least} to {last}"
    return Fault("algorithm.params.cut", f"{problem}, so the samples would leave the clients", mend)


class FedGKTConfig(Config):
    """FedGKT's own parameters."""

    cut: Cut = 2
    """Layers of a client's model whose outputs it sends; -1 means all but the head (the authors: those before
    the first residual block, 1 in `resnet8`). They have parameters, so that no sample is sent as it is."""
    server_cut: Cut | None = None
    """Layers of the server's model in whose place those of a client stand; as many as `cut` by default."""
    temperature: Temperature = 3.0
    """What logits are divided by; the divergence is multiplied by its square (the authors' code: 3)."""
    alpha: Coefficient = 1.0
    """Factor of the divergence at clients, and of the labels' loss at the server (the authors' code: 1); with
    0 clients are those of Local, bit for bit."""
    server_kd: bool = True
    """Let the server learn from the clients' logits too, as in the paper; by default the authors' code does
    not."""
    server_epochs: PositiveEpochs | None = None
    """The server's passes over the features of a round; by default 20 up to round 20, 15 up to 30, 10 up to
    40, 5 up to 100, 3 up to 150, then 2 (the authors' code)."""
    server_lr: LearningRate | None = None
    """The server's learning rate; that of the training by default."""

    @property
    def cut_at_server(self) -> int:
        """Layers of the server's model in whose place those of a client stand."""
        return self.cut if self.server_cut is None else self.server_cut


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    upper: Model  # its layers above the cut
    maps: Mapping[int, FeatureMaps] = field(default_factory=dict)  # by client, what came from it last
    optimisers: Mapping[str, Tree] = field(default_factory=dict)  # what its optimiser goes on from


class FedGKT(OwnModelRounds[FedGKTConfig, ServerState, Model]):
    """Group knowledge transfer; a client's state is its small model."""

    about = About(
        kind="distillation",
        down="4nN + 8n",
        up="4n(f + N) + 16n, f numbers of a feature map",
        client="a small model",
        server="upper layers of a large model and their optimiser, the last features of every client",
        own_models=True,
    )
    messages = (FeatureMaps, ServerLogits)
    reply = FeatureMaps
    mixed_architectures = True
    server_model = True
    needs_classes = True

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the layers above the cut."""
        upper = server.architectures[server.architecture].above(self.config.cut_at_server)
        return ServerState(upper.part_of(server.initial_model()))

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ServerLogits | None]]:
        """Send each client the server's logits on its last features, if there are any."""
        sent: dict[int, ServerLogits | None] = dict.fromkeys(cohort)
        for client in cohort:
            if (maps := state.maps.get(client)) is not None:
                logits = await server.predict(state.upper, InlineSamples(maps.features))
                sent[client] = ServerLogits(maps.sample_ids, logits)
        return state, sent

    async def train(
        self, client: ClientContext, state: Model, message: ServerLogits | None
    ) -> tuple[Model, FeatureMaps]:
        """Train the small model, and send what it makes of the client's samples."""
        step, extras = Descent(), {}
        # A client that told the server of other samples than its own gets no row for each of its own.
        if message is not None and self.config.alpha and len(message.values) == client.num_samples():
            teacher = np.empty_like(message.values)
            teacher[message.sample_ids] = message.values
            step = Descent(loss=Transfer(1.0, self.config.alpha, self.config.temperature))
            extras = {TEACHER: per_sample(teacher, TRAIN)}
        model = (await client.fit(state, step=step, extras=extras)).model
        whole, own = client.architectures[client.architecture], client.own("train")
        features = await client.predict(whole.below(self.config.cut).part_of(model), own)
        logits = await client.predict(whole.above(self.config.cut).part_of(model), InlineSamples(features))
        return model, FeatureMaps(np.arange(len(features)), features, logits, client.labels(own))

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[FeatureMaps]
    ) -> ServerState:
        """Train the upper layers on all features that came."""
        config, came = self.config, [reply.message for reply in replies]
        features, labels = (
            np.concatenate([getattr(maps, name) for maps in came]) for name in ("features", "labels")
        )
        step, extras = Descent(), {}
        if config.server_kd:
            step = Descent(loss=Transfer(config.alpha, 1.0, config.temperature))
            extras = {TEACHER: per_sample(np.concatenate([maps.logits for maps in came]), TRAIN)}
        usual = next((passes for last, passes in SERVER_EPOCHS if server.round <= last), 2)
        keeping = Keeping(state.optimisers)
        fitted = await server.fit(
            state.upper,
            step=step,
            streams={TRAIN: Stream(InlineSamples(features, labels), server.training.batch_size)},
            extras=extras,
            optimiser=server.training.make_optimiser(config.server_lr),
            epochs=config.server_epochs or usual,
            keeping=keeping,
        )
        maps = {**state.maps, **{reply.client: reply.message for reply in replies}}
        return ServerState(unless_diverged(server, fitted.model, state.upper), maps, keeping.held)

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse features of another shape, and labels and numbers of samples that cannot be."""
        shape = server.architectures[state.upper.architecture].task.input_shape
        return unusable(reply.message, shape, server.task.num_outputs)

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse cuts that cannot be or send samples, and features that the server's layers do not take."""
        yield from super().misfits(setting)
        yield from cut_faults(setting, self.config.cut, self.config.cut_at_server)

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: Model
    ) -> Predictors:
        """Return the client's lower layers under the server's upper ones; globally if it ever replied."""
        lower = observer.architectures[observer.architecture].below(self.config.cut).part_of(client_state)
        both = Predictor(composed(lower, server_state.upper))
        return {"personal": both, **({"global": both} if observer.client in server_state.maps else {})}


PLUGIN = FedGKT
