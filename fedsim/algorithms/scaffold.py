"""SCAFFOLD: controls at clients and server correct the drift of local steps.

A client's control c_k estimates the gradient of its own loss, the server's control c that of the mean loss.
Each local step goes along ``g - c_k + c``: in the mean the client's own gradient is replaced by the global
one, so many local steps do not drift towards the client's own optimum (specification 5.B.2).

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning, ICML 2020 (arXiv 1910.06378), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedsim.algorithms.base import About, Replies, Setting, mirrored
from fedsim.algorithms.common.model_rounds import ModelTraining, combined
from fedsim.algorithms.common.tree_arithmetic import combination, difference, zeros
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.engine.jobs import Extra
from fedsim.engine.losses import Extras, LiveModel
from fedsim.engine.steps import Descent
from fedsim.errors import Fault
from fedsim.params import Model, Tree, weighted_mean
from fedsim.ranges import LearningRate
from fedsim.wire import ModelBroadcast, ModelUpdate, counted, message


class ScaffoldConfig(Config):
    """SCAFFOLD's own parameters."""

    option: Literal["I", "II"] = "II"
    """What a client's control becomes: I, its gradient at the model that came, for another pass over its
    samples; II, the mean of the gradients that it met, from how far it went (II in the paper's runs)."""
    server_lr: LearningRate = 1.0
    """How far the server goes along the mean change, eta_g (the paper: 1)."""


@message("scaffold_model")
class ControlledModel(ModelBroadcast):
    """The global model and the server's control, c."""

    control: Tree = counted()  # a tree like the model's parameters


@message("scaffold_change")
class ControlledChange(ModelUpdate):
    """The change of the parameters ``y - w`` and of the control; the model's buffers."""

    control: Tree = counted()  # c_k+ - c_k, a tree like the model's parameters


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds."""

    model: Model  # the global model
    control: Tree  # the mean of the controls of all clients that can take part, c


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps."""

    # c_k: part of the server's control, so it changes only when that does.
    control: Tree = mirrored()  # noqa: RUF009 - a field, as dataclasses.field makes it


@dataclass(frozen=True, slots=True)
class DriftCorrection:
    """Adds ``c - c_k`` to the gradient."""

    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients."""
        shift = extras["shift"]
        return [gradient + shift[name] for gradient, name in zip(gradients, model.params, strict=True)]


class Scaffold(ModelTraining[ScaffoldConfig, ServerState]):
    """Stochastic controlled averaging."""

    about = About(
        kind="one global model",
        down="S + 4d",
        up="S + 4d",
        client="its control",
        server="the global model and a control",
    )

    messages = (ControlledModel, ControlledChange)
    reply = ControlledChange
    own_aggregation = None
    new_replies_only = "one that is merged rounds later changes a control that the client has taken back"

    @property
    def changes(self) -> tuple[str, ...]:
        """What clients send are changes."""
        return ("params", "control")

    def start(self, server: ServerContext) -> ServerState:
        """Begin with a control of zero."""
        model = server.initial_model()
        return ServerState(model, zeros(model.params))

    def join(self, client: ClientContext) -> ClientState:
        """Begin with a control of zero."""
        return ClientState(zeros(client.initial_model().params))

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ControlledModel]]:
        """Send w and c to every client."""
        model = state.model
        message = ControlledModel(model.architecture, model.params, model.buffers, state.control)
        return state, dict.fromkeys(cohort, message)

    async def send_last(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ModelBroadcast]]:
        """Send w alone to every client."""
        return state, dict.fromkeys(cohort, ModelBroadcast.of(state.model))

    async def train(  # type: ignore[override]  # what send() makes
        self, client: ClientContext, state: ClientState, message: ControlledModel
    ) -> tuple[ClientState, ControlledChange]:
        """Train along ``g - c_k + c`` to y; send ``y - w`` and ``c_k+ - c_k``."""
        start, own, shared = message.model, state.control, message.control
        shift = difference(shared, own)
        step = Descent(correct=DriftCorrection())
        fitted = await client.fit(start, step=step, extras={"shift": Extra(shift)})
        end, control, num_steps = fitted.model, own, fitted.num_steps
        if num_steps and self.config.option == "I":
            control = await client.gradient(start)
        elif total := client.training.total_rate(num_steps):  # 0 where no step has moved it
            rate = 1 / total
            control = combination([start.params, end.params, shift], [rate, -rate, -1.0])
        moved, learned = difference(end.params, start.params), difference(control, own)
        change = ControlledChange(end.architecture, moved, end.buffers, client.num_samples(), learned)
        return ClientState(control), change

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Replies[ControlledChange]
    ) -> ServerState:
        """``w <- w + server_lr / m * sum (y - w)``, ``c <- c + 1 / K * sum (c_k+ - c_k)``."""
        several = combined(server, replies)
        changes, m = [reply.message for reply in several], len(several)
        model, share = state.model, self.config.server_lr / m
        params = combination([model.params, *(change.params for change in changes)], [1.0, *[share] * m])
        buffers = weighted_mean([change.buffers for change in changes], [1 / m] * m)
        controls = [state.control, *(change.control for change in changes)]
        # Who cannot take part keeps a control of zero for ever, which would hold c too near to zero.
        learned = len(replies) / m / server.num_eligible
        control = combination(controls, [1.0, *[learned] * m])
        return ServerState(Model(model.architecture, params, buffers), control)

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse optimisers whose path is no sum of gradients, with option II."""
        yield from super().misfits(setting)
        training = setting.training
        mend = "leave it out, or let algorithm.params.option be 'I'"
        plain = {"optimiser": "sgd", "momentum": 0.0, "weight_decay": 0.0, "clip_norm": None}
        for name, usual in plain.items():
            value = getattr(training, name)
            if self.config.option == "II" and value != usual:
                problem = f"{value!r}: with option II the way that a client went must be a sum of gradients"
                yield Fault(f"training.{name}", problem, mend)


PLUGIN = Scaffold
