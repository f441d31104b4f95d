"""FedPer: the lower layers of a model are averaged, the upper ones stay with each client.

A client puts the base that it is sent below the head that it has kept, trains both, keeps the head and sends
the base back. The server averages bases (specification 5.D.13). Clients may have different heads, above bases
that are alike. BatchNorm within the base is averaged with it.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019
(arXiv 1912.00818), algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from fedsim import toml_writer
from fedsim.algorithms.base import About, Predictor, Predictors, Reply, Setting
from fedsim.algorithms.common.model_check import unlike
from fedsim.algorithms.contexts import ClientContext, Context, ServerContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.errors import Fault
from fedsim.models import Architecture, with_part
from fedsim.params import Model
from fedsim.wire import ModelBroadcast, ModelUpdate


class FedPerConfig(FedAvgConfig):
    """FedPer's own parameters."""

    personal_layers: Annotated[int, Field(ge=0, le=1000)] = 1
    """Layers that stay with each client, counted from the head down, where a block counts as a layer; by
    default the head alone (the paper tries 1 to 4). 0 is FedAvg, and all layers are Local."""


class FedPer(FedAvg[FedPerConfig]):
    """FedAvg of the lower layers; the server's state is the base, a client's is its head."""

    about = About(
        kind="personal models", down="S of the base", up="S of the base", client="its head", server="the base"
    )

    mixed_architectures = True
    server_model = True

    def start(self, server: ServerContext) -> Model:
        """Begin with the start values of the server's base."""
        return self._base(server.architectures[server.architecture]).part_of(server.initial_model())

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values of the client's head."""
        whole = client.initial_model()
        return self._head(client.architectures[whole.architecture]).part_of(whole)

    async def train(
        self, client: ClientContext, state: Model, message: ModelBroadcast
    ) -> tuple[Model, ModelUpdate]:
        """Train the base that came and the client's head together; keep the head, send the base back."""
        trained = (await client.fit(await self.own_model(client, state, message))).model
        own = client.architectures[trained.architecture]
        base = self._base(own).part_of(trained)
        # By the name under which it came: the client's architecture may be another one with the same base.
        base = Model(message.architecture, base.params, base.buffers)
        return self._head(own).part_of(trained), ModelUpdate.of(base, num_samples=client.num_samples())

    async def own_model(self, client: ClientContext, state: Model, message: ModelBroadcast) -> Model:
        """Return the client's head on the base that came."""
        return _joined(client, message.model, state)

    def vet(self, server: ServerContext, state: Model, reply: Reply) -> str | None:
        """Reject anything but a base."""
        return unlike(reply.message.model, state)

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse nets that cannot be cut there, and clients whose bases differ from the server's."""
        yield from super().misfits(setting)
        own = {setting.server.label: setting.server, **setting.clients}
        if faults := [fault for net in own.values() if (fault := self._cut_fault(net)) is not None]:
            yield from faults
            return
        for label, net in own.items():
            if _form(self._base(net)) != _form(self._base(setting.server)):
                yield Fault(
                    toml_writer.path("models", label),
                    f"its layers below the {self.config.personal_layers} personal ones are not like those of "
                    f"the server's model {setting.server.label!r}, with which they are averaged",
                    "let them be alike, or set algorithm.params.personal_layers higher",
                )

    async def models_of(
        self, observer: ClientContext, server_state: Model, client_state: Model
    ) -> Predictors:
        """Return the client's head on the server's base."""
        return {"personal": Predictor(_joined(observer, server_state, client_state))}

    def _base(self, whole: Architecture) -> Architecture:
        return whole.below(self._cut(whole))

    def _head(self, whole: Architecture) -> Architecture:
        return whole.above(self._cut(whole))

    def _cut(self, whole: Architecture) -> int:
        return len(whole.layers) - self.config.personal_layers

    def _cut_fault(self, whole: Architecture) -> Fault | None:
        if self._cut(whole) >= 0:
            return whole.cut_fault(self._cut(whole))
        path, layers = "algorithm.params.personal_layers", ", ".join(whole.layers)
        problem = f"{self.config.personal_layers}, and the layers of model {whole.label!r} are {layers}"
        return Fault(path, problem, f"give at most {len(whole.layers)}")


def _joined(party: Context, base: Model, head: Model) -> Model:
    return with_part(party.initial_model(), base, head)


def _form(architecture: Architecture) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and shapes of an architecture's arrays."""
    net = architecture.structure
    return [(name, tuple(tensor.shape)) for name, tensor in (*net.named_parameters(), *net.named_buffers())]


PLUGIN = FedPer
