"""Trees that travel beside a model, such as control variates, are vetted like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange, Exchanges, Replies
from fedsim.algorithms.common.tree_arithmetic import combination
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.params import Model, Tree
from fedsim.wire import ModelBroadcast, ModelUpdate, counted, message


@message("controlled_update")
class ControlledUpdate(ModelUpdate):
    """A model and a control variate (as in SCAFFOLD), or none."""

    control: Tree | None = counted()


class Controlled(FedAvg):
    """FedAvg whose clients send a tree beside; client 1 sends another."""

    messages = (ControlledUpdate,)

    def __init__(self, sent: Callable[[Tree], Tree | None]) -> None:
        super().__init__(FedAvgConfig())
        self._sent = sent

    @property
    def exchanges(self) -> Exchanges[Model, Any]:
        return (
            Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=ControlledUpdate),
        )

    async def train(self, client: ClientContext, state: Any, message: ModelBroadcast) -> Any:
        params = message.params
        control = self._sent(params) if client.client == 1 else params
        model, num_samples = message.model, client.num_samples()
        return state, ControlledUpdate(model.architecture, params, model.buffers, num_samples, control)

    async def merge(self, server: ServerContext, state: Model, replies: Replies[Any]) -> Model:
        controls = [one for reply in replies if (one := reply.message.control) is not None]
        combination(controls, [1.0] * len(controls))
        return await super().merge(server, state, replies)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (lambda tree: {"x": np.zeros(3, np.float32)}, "control: other names than architecture 'mlp' has"),
        (lambda tree: {}, "control: other names than architecture 'mlp' has"),
        (
            lambda tree: {**tree, "head.bias": np.zeros(3, np.float32)},
            "control: head.bias: float32(3,), not float32(10,)",
        ),
        (
            lambda tree: {**tree, "head.bias": np.zeros(10, np.float64)},
            "control: head.bias: float64(10,), not float32(10,)",
        ),
    ],
)
def test_a_tree_unlike_the_parameters_is_rejected(sent: Any, reason: str, world: Any) -> None:
    result = world.run(Controlled(sent))
    assert result.rejections == {reason: 3}
    assert result.by_client["merged"].tolist() == [3, 0, 3, 3]


@pytest.mark.parametrize("sent", [lambda tree: tree, lambda tree: None])
def test_a_tree_like_them_or_none_is_merged(sent: Any, world: Any) -> None:
    assert not world.run(Controlled(sent)).rejections
