"""IFCA: clients cluster themselves round by round, by which of several models has the least loss.

Clients are sent all models and choose one, as in HypCluster. With ``model_avg`` they train it, and the server
takes the plain mean of each cluster's models. With ``grad_avg`` they send one gradient of it, and the server
makes one step of each model. The models can share all layers but the head: then the shared layers are
averaged over all who reply, and come down once (specification 5.D.9).

A step of ``grad_avg`` divides the gradients of a cluster by the number of all who replied, as in the paper,
so a small cluster moves slowly. Where one cluster takes all, which the sizes in the log show, other start
models may separate them: with ``restart_rounds`` they are drawn again, as the authors do.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020 (arXiv
2006.04088), algorithm 1 and section 6 for shared layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import model_validator

from fedsim.algorithms.base import About, Replies, Setting, broadcast
from fedsim.algorithms.common.model_clusters import (
    ClusterUpdate,
    ModelClusters,
    ModelClustersConfig,
    Models,
    members,
)
from fedsim.algorithms.common.model_rounds import combined, mean_of_models
from fedsim.algorithms.common.model_set_message import ModelSet
from fedsim.algorithms.common.tree_arithmetic import combination
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.errors import Fault
from fedsim.models import with_part
from fedsim.params import Model, Tree
from fedsim.ranges import Clients, Epochs, LearningRate
from fedsim.wire import counted, message

HEAD = -1  # where models are cut that share their lower layers: below the head


class IFCAConfig(ModelClustersConfig):
    """IFCA's own parameters."""

    clusters: Clients = 4
    """Models of the server, q, each of which begins with values of its own (the paper's rotated MNIST: 4)."""
    option: Literal["model_avg", "grad_avg"] = "model_avg"
    """What clients send: a trained model, or one gradient, over all their samples or over `training.steps`
    mini-batches."""
    server_lr: LearningRate | None = None
    """Size of the server's step with `grad_avg`, gamma; `training.lr` by default (the paper: 0.1)."""
    shared_base: bool = False
    """Share all layers but the head."""
    restart_rounds: Epochs = 0
    """First rounds in which all models begin anew, with other values, if all who reply chose the same one."""

    @model_validator(mode="after")
    def _of_gradients(self) -> Self:
        if self.server_lr is not None and self.option == "model_avg":
            raise ValueError("server_lr belongs to option = 'grad_avg': leave it out")
        return self


@message("models_on_base")
class ModelsOnBase(ModelSet):
    """Several heads for a client, and the layers below that they share."""

    base: Tree = counted()  # trainable parameters of these layers
    base_buffers: Tree  # their running statistics and counters


class IFCA(ModelClusters[IFCAConfig]):
    """The iterative federated clustering algorithm; the server's state are the models."""

    about = About(
        kind="personal models",
        down="q S; with a shared base S of the base and q times S of the head",
        up="S + 4",
        server="q models",
    )
    messages = (*ModelClusters.messages, ModelsOnBase)
    discounted = "shares"
    own_aggregation = None

    @property
    def changes(self) -> tuple[str, ...]:
        """With gradients, what clients send are changes."""
        return ("params",) if self.config.option == "grad_avg" else ()

    def start(self, server: ServerContext) -> Models:
        """Begin with different models, all on the base of the first if it is shared."""
        models = super().start(server)
        if not self.config.shared_base:
            return models
        base = self._base(server, models[0])
        return tuple(with_part(model, base) for model in models)

    async def send(
        self, server: ServerContext, state: Models, cohort: Sequence[int]
    ) -> tuple[Models, Mapping[int, Any]]:
        """Send all models to every client, a shared base once."""
        if not self.config.shared_base:
            return await super().send(server, state, cohort)
        base = self._base(server, state[0])
        above = server.architectures[server.architecture].above(HEAD)
        heads = ModelSet.of({number: above.part_of(model) for number, model in enumerate(state)})
        sent = ModelsOnBase(heads.architecture, heads.params, heads.buffers, base.params, base.buffers)
        return state, broadcast(cohort, sent)

    def received(self, client: ClientContext, message: Any) -> Models:
        """Return the whole models that a message carries."""
        models = super().received(client, message)
        if not isinstance(message, ModelsOnBase):
            return models
        whole = client.initial_model()
        below = client.architectures[client.architecture].below(HEAD)
        base = Model(below.label, message.base, message.base_buffers)
        return tuple(with_part(whole, base, head) for head in models)

    async def trained(self, client: ClientContext, model: Model) -> Model:
        """Return the trained model, or its gradient in place of its parameters."""
        if self.config.option == "model_avg":
            return await super().trained(client, model)
        return replace(model, params=await client.gradient(model, steps=client.training.steps))

    async def merge(self, server: ServerContext, state: Models, replies: Replies[ClusterUpdate]) -> Models:
        """Take the plain mean of the models of each cluster, or one step along its gradients."""
        groups = members(server, state, replies)
        took_all = len(state) > 1 and len(replies) > 1 and max(map(len, groups)) == len(replies)
        if took_all and server.round <= self.config.restart_rounds:
            return self.start(server)
        merged = [
            self._moved(server, former, group, len(replies)) if group else former
            for group, former in zip(groups, state, strict=True)
        ]
        if not self.config.shared_base:
            return tuple(merged)
        bases = [replace(reply, message=self._base_of_update(server, reply.message)) for reply in replies]
        base = self._moved(server, self._base(server, state[0]), bases, len(replies))
        return tuple(with_part(model, base) for model in merged)

    def _base_of_update(self, server: ServerContext, update: ClusterUpdate) -> ClusterUpdate:
        base = self._base(server, update.model)
        return replace(update, architecture=base.architecture, params=base.params, buffers=base.buffers)

    def _moved(self, server: ServerContext, model: Model, group: Replies[Any], num_replies: int) -> Model:
        if self.config.option == "model_avg":
            return mean_of_models(combined(server, group, model), "uniform")
        rate = server.training.lr if self.config.server_lr is None else self.config.server_lr
        several = combined(server, group)
        gradients = [reply.message.params for reply in several]
        each = len(group) / len(several)  # of how many replies one stands for
        factors = [-rate * each / num_replies * reply.discount for reply in several]
        return replace(model, params=combination([model.params, *gradients], [1.0, *factors]))

    def _base(self, party: ComputeContext, model: Model) -> Model:
        return party.architectures[model.architecture].below(HEAD).part_of(model)

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse a net without a head, and settings that do not go with gradients."""
        yield from super().misfits(setting)
        if self.config.shared_base and (fault := setting.server.cut_fault(HEAD)) is not None:
            yield fault
        if self.config.option == "grad_avg":
            usual = type(setting.training).model_fields
            if setting.training.schedule:
                problem = "with option 'grad_avg' clients take no step whose learning rate could change"
                yield Fault("training.schedule", problem, "leave it out, or let option be 'model_avg'")
            for name in ("optimiser", "momentum", "weight_decay", "clip_norm", "epochs", "keep_optimiser"):
                value = getattr(setting.training, name)
                if value not in (usual[name].default, 1 if name == "epochs" else None):
                    problem = f"{value!r}: with option 'grad_avg' clients send a gradient and take no step"
                    yield Fault(f"training.{name}", problem, "leave it out, or let option be 'model_avg'")
        if self.config.restart_rounds and setting.merge_size is not None:
            problem = f"{setting.pacing!r} merges replies for models from before they began anew"
            yield Fault("algorithm.params.restart_rounds", problem, "write 0")
        if self.config.option == "grad_avg" and setting.merge_size is not None:
            problem = f"{setting.pacing!r} merges gradients at models that the server has left since"
            yield Fault("algorithm.params.option", problem, "write 'model_avg'")
        if self.config.option == "grad_avg" and setting.server.has_batch_norm:
            yield Fault(
                "algorithm.params.option",
                f"model {setting.server.label!r} has BatchNorm, whose statistics no gradient moves",
                "write 'model_avg', or take a model without BatchNorm",
            )


PLUGIN = IFCA
