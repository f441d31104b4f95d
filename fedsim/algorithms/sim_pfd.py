"""Sim-pFD: co-distillation in which clients learn from those who predict alike.

As KT-pFL (``common/codistillation.py``), with nothing learned: a teacher's weight for a student
follows from the cosine between their soft predictions on the round's public samples, over the cohort
(specification 5.E.3, D-000-13). In the homogeneous setting the paper's introduction means cosines between
parameters: that is ``ktpfl_w`` with ``mixing = "similarity"``, since there parameters travel.

A baseline of Zhang et al.: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021
(arXiv 2111.02862); the normalisation is the public code's.
"""

from __future__ import annotations

from typing import Literal

from fedsim.algorithms.base import About
from fedsim.algorithms.common.codistillation import Codistillation, CodistillationConfig, ServerState
from fedsim.algorithms.common.similarity import by_range, by_sum, cosines_flops, cosines_of_predictions
from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array


class SimPFDConfig(CodistillationConfig):
    """Sim-pFD's own parameters."""

    norm: Literal["minmax", "sum"] = "minmax"
    """How cosines become weights: less the smallest of the row, then scaled to sum to one (the public code),
    so that the least similar client weighs nothing; or scaled alone, which is nearly uniform."""


class SimPFD(Codistillation[SimPFDConfig, ServerState]):
    """Co-distillation weighted by similarity."""

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
        flops = cosines_flops(*state.values.shape)
        similarities = await server.call(cosines_of_predictions, state.values, state.given, flops=flops)
        return by_range(similarities) if self.config.norm == "minmax" else by_sum(similarities)


PLUGIN = SimPFD
