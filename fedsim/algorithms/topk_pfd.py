"""TopK-pFD: co-distillation in which a client learns from the few who predict most alike.

As Sim-pFD, with equal weights for a student's nearest neighbours by cosine of soft predictions, itself
included, and none for the others; neighbours of equal similarity come by lower number (specification 5.E.4).

A baseline of Zhang et al.: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021
(arXiv 2111.02862), footnote 3; D-000-14: five neighbours, where the public code takes half of the clients.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from fedsim.algorithms.base import About
from fedsim.algorithms.common.codistillation import Codistillation, CodistillationConfig, ServerState
from fedsim.algorithms.common.similarity import by_rank, cosines_flops, cosines_of_predictions
from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array
from fedsim.ranges import Clients

NEIGHBOURS = 5


class TopKPFDConfig(CodistillationConfig):
    """TopK-pFD's own parameters."""

    neighbours: Clients = NEIGHBOURS
    """From how many a client learns, itself included (the paper: 5); from all that replied if those are
    fewer."""
    half: bool = False
    """From the more similar half of those that replied, rounded up, instead: the public code, whose
    threshold is the lower median."""

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.half and self.neighbours != NEIGHBOURS:
            raise ValueError(
                f"half = true and neighbours = {self.neighbours} both say from how many to learn: give one"
            )
        return self


class TopKPFD(Codistillation[TopKPFDConfig, ServerState]):
    """Co-distillation to the mean of nearest neighbours."""

    about = About(
        kind="distillation",
        down="4pN + 8p",
        up="4pN",
        client="its model",
        server="the teachers of a round",
        own_models=True,
    )

    async def weights(self, server: ServerContext, state: ServerState) -> Array:
        """Return equal weights for each client's neighbours."""
        flops = cosines_flops(*state.values.shape)
        similarities = await server.call(cosines_of_predictions, state.values, state.given, flops=flops)
        count = (len(similarities) + 1) // 2 if self.config.half else self.config.neighbours
        return by_rank(similarities, count)


PLUGIN = TopKPFD
