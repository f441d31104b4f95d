"""Features of clients' samples in messages, from which the server's upper layers learn, as in FedGKT.

n: samples, N: classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch.nn.functional as F  # noqa: N812 - the name that everyone knows
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from torch import Tensor

from fedsim import toml
from fedsim.algorithms.base import Setting
from fedsim.algorithms.common.distillation import kl_divergence
from fedsim.engine.losses import MODEL, TEACHER, TRAIN, Batches, Extras, Models, label_loss
from fedsim.errors import Fault
from fedsim.models import Architecture
from fedsim.wire import Message, counted, message


def _between(cut: int) -> int:
    if cut == 0:
        raise ValueError(
            "no layer is below a cut at 0, so the samples would leave the clients: write 1 or more"
        )
    return cut


Cut = Annotated[int, Field(ge=-1000, le=1000), AfterValidator(_between)]
"""How many layers are below a cut; as in slices, -1 means all but the head."""


@message("feature_maps")
class FeatureMaps(Message):
    """A client's samples as its lower layers see them.

    Attributes:
        sample_ids: Numbers of the samples among the client's own, int64 ``[n]``.
        features: What its lower layers give, float32 ``[n, ...]``.
        logits: What its whole model gives, float32 ``[n, N]``.
        labels: int64 ``[n]``.
    """

    sample_ids: NDArray[np.int64]
    features: NDArray[np.float32] = counted()
    logits: NDArray[np.float32] = counted()
    labels: NDArray[np.int64]

    @property
    def num_samples(self) -> int:
        """How many samples; a reply about more than its client holds is rejected."""
        return len(self.labels)


@message("server_logits")
class ServerLogits(Message):
    """What the server's layers say of a client's samples.

    Attributes:
        sample_ids: Numbers of the samples among the client's own, int64 ``[n]``.
        values: Logits, float32 ``[n, N]``.
    """

    sample_ids: NDArray[np.int64]
    values: NDArray[np.float32] = counted()


@dataclass(frozen=True, slots=True)
class Transfer:
    """The loss ``hard CE + soft temperature^2 KL(teacher || student)``, with logits as extra ``teacher``."""

    hard: float
    soft: float
    temperature: float

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss."""
        batch = batches[TRAIN]
        logits = models[MODEL](batch.x)
        teacher = F.softmax(extras[TEACHER] / self.temperature, dim=1)
        divergence = kl_divergence(teacher, F.log_softmax(logits / self.temperature, dim=1))
        return self.hard * label_loss(logits, batch.labels) + self.soft * self.temperature**2 * divergence


def unusable(maps: FeatureMaps, shape: tuple[int, ...], num_outputs: int) -> str | None:
    """Return why features cannot be learned from, or None.

    Args:
        maps: What a client sends.
        shape: Of the features of one sample.
        num_outputs: N.
    """
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
    faults = [_cut_fault(one, cut) or _bare_fault(one, cut) for one in setting.clients.values()]
    faults.append(_cut_fault(setting.server, server_cut))
    if any(faults):
        yield from filter(None, faults)
        return
    wanted = setting.server.above(server_cut).task.input_shape
    for label, one in setting.clients.items():
        if (shape := one.below(cut).output_shape) != wanted:
            problem = f"its features are of shape {shape}, and the server's layers take {wanted}"
            yield Fault(
                toml.path("models", label), problem, "cut at other places, or make the layers as wide"
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
