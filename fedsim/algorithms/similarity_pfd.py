"""Sim-pFD and TopK-pFD: co-distillation whose weights follow from how alike clients predict.

As KT-pFL (``common/codistillation.py``), with nothing learned: a teacher's weight for a student follows from
the cosine between their soft predictions on the round's public samples, over the cohort. In the homogeneous
setting the paper's introduction means cosines between parameters: that is ``ktpfl_w`` with ``mixing =
"similarity"`` or ``"topk"``, since there parameters travel.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from fedsim.algorithms.base import About
from fedsim.algorithms.common import similarity
from fedsim.algorithms.common.codistillation import Codistillation, CodistillationConfig, ServerState
from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array
from fedsim.ranges import Clients

NEIGHBOURS = 5


async def similarities(server: ServerContext, state: ServerState) -> Array:
    """Return the cosines of all senders' predictions, ``[m, m]``."""
    flops = similarity.cosines_flops(*state.values.shape)
    compared = similarity.cosines_of_predictions
    cosines: Array = await server.call(compared, state.values, state.given, flops=flops)
    return cosines


class SimPFDConfig(CodistillationConfig):
    """Sim-pFD's own parameters."""

    norm: Literal["minmax", "sum"] = "minmax"
    """How cosines become weights: less the smallest of the row, then scaled to sum to one (the public code),
    so that the least similar client weighs nothing; or scaled alone, which is nearly uniform."""


class SimPFD(Codistillation[SimPFDConfig, ServerState]):
    """Sim-pFD: co-distillation in which clients learn from those who predict alike.

    Specification 5.E.3, D-000-13; the normalisation is the public code's.

    A baseline of Zhang et al.: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS
    2021 (arXiv 2111.02862).
    """

    about = About(
        kind="distillation",
        down="4pN + 8p",
        up="4pN",
        client="its model",
        server="the teachers of a round",
        own_models=True,
    )

    async def weights(self, server: ServerContext, state: ServerState) -> Array:
        """Return weights from cosines of predictions."""
        near = await similarities(server, state)
        return similarity.by_range(near) if self.config.norm == "minmax" else similarity.by_sum(near)


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
    """TopK-pFD: co-distillation in which a client learns from the few who predict most alike.

    Equal weights for a student's nearest neighbours by cosine of soft predictions, itself included, and none
    for the others; neighbours of equal similarity come by lower number (specification 5.E.4).

    A baseline of Zhang et al.: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS
    2021 (arXiv 2111.02862), footnote 3; D-000-14: five neighbours, where the public code takes half of the
    clients.
    """

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
        near = await similarities(server, state)
        count = (len(near) + 1) // 2 if self.config.half else self.config.neighbours
        return similarity.by_rank(near, count)


PLUGINS = {"sim_pfd": SimPFD, "topk_pfd": TopKPFD}
