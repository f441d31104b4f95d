"""Delivery of the public set and its labels: once, before round 1, where the server alone holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from fedsim.algorithms.base import C, S, Setting, broadcast
from fedsim.algorithms.common import public_set_delivery
from fedsim.algorithms.common.public_predictions import compact
from fedsim.algorithms.common.public_set_delivery import PublicSetDelivery
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.errors import Fault
from fedsim.params import Array
from fedsim.wire import Message, PublicData, message


@message("labelled_data", data=True)
class LabelledData(PublicData):
    """The public set for clients that do not have it, and its labels, int64 ``[p]``."""

    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClientState(public_set_delivery.ClientState):
    """What a client keeps.

    Attributes:
        labels: Of the public samples that it was sent, int64 ``[p]``; None where none came.
    """

    labels: Array | None = None


P = TypeVar("P", bound=ClientState, default=Any)


class LabelledSetDelivery(PublicSetDelivery[C, S, P]):
    """Sends clients the public set and its labels first, if they do not hold it."""

    messages: ClassVar[tuple[type[Message], ...]] = (LabelledData,)

    async def instruct_hand_out(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Send everyone the samples and their labels, unless clients hold them."""
        if server.public_at_clients:
            return state, {}
        positions = self.public_positions(server)
        values, labels = compact(server.public_values(positions)), self.labels(server)
        return state, broadcast(cohort, LabelledData(positions, values, labels))

    async def local_hand_out(self, client: ClientContext, state: P, message: Any) -> tuple[P, None]:
        """Keep them as they came."""
        return replace(state, received=message.values, labels=message.labels), None

    def labels(self, party: ComputeContext) -> Array:
        """Return the labels of the public set, of a party that holds it, int64 ``[p]``."""
        return party.labels(party.public(self.public_positions(party), labelled=True))

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse a public set without labels."""
        yield from super().misfits(setting)
        if not setting.public_labelled:
            problem = "all learn from its labels, and samples of another data set have none of this task"
            yield Fault("data.public.source", problem, "leave it out")
