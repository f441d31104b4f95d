"""A message with several models of one architecture, for clients that choose among them or mix them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from fedsim.params import Model, Tree
from fedsim.wire import Message, counted, message


@message("model_set")
class ModelSet(Message):
    """Several models for a client."""

    architecture: str  # label of their architecture; empty without a model
    params: Mapping[str, Tree] = counted()  # by the name of each model, its trainable parameters
    buffers: Mapping[str, Tree]  # by the name of each model, its running statistics and counters

    def __post_init__(self) -> None:
        if self.params.keys() != self.buffers.keys():
            raise ValueError(f"parameters of {list(self.params)} and buffers of {list(self.buffers)}")

    @classmethod
    def of(cls, models: Mapping[int, Model]) -> Self:
        """Return the message that carries models by number; ValueError for several architectures."""
        labels = {model.architecture for model in models.values()}
        if len(labels) > 1:
            raise ValueError(f"a set of models has one architecture, not {', '.join(sorted(labels))}")
        return cls(
            "".join(labels),
            {str(number): model.params for number, model in models.items()},
            {str(number): model.buffers for number, model in models.items()},
        )

    @property
    def models(self) -> dict[int, Model]:
        """The models by number."""
        return {
            int(name): Model(self.architecture, params, self.buffers[name])
            for name, params in self.params.items()
        }
