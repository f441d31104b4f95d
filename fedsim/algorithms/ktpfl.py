"""KT-pFL (MNFL): clients teach each other by soft predictions, and the server learns who helps whom.

The round is that of ``common/codistillation.py``: clients train and send soft predictions on public samples;
each gets its own teacher, the mean of all predictions with its row of the coefficient matrix c as weights,
and learns from it. Meanwhile the server takes a step of c, which starts at 1/K, down the divergence of
teachers from students plus ``rho ||c - 1/K||^2``, on the same predictions (D-000-06). Only the block of c of
the clients that replied moves. If no client confirms its distillation, c stays as it was.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS
2021 (arXiv 2111.02862); specification 5.E.1, with D-000-03 (``c[student, teacher]``), D-000-04 (implicit step
and projection), D-000-05 (temperature) and D-000-17 (weights of the gradient).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.algorithms.base import About, Exchanges, Replies
from fedsim.algorithms.common.codistillation import Codistillation, CodistillationConfig, ServerState
from fedsim.algorithms.common.ktpfl_coefficients import CoefficientConfig, learned, learned_flops, restricted
from fedsim.algorithms.common.public_predictions import predictions
from fedsim.algorithms.common.share_and_distil import ClientState
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Array
from fedsim.ranges import BatchSize
from fedsim.wire import LogitsDown, LogitsUp, message

WORK = "c"  # name of the server's work while clients distil


@message("sized_logits_up")
class SizedLogitsUp(LogitsUp):
    """Predictions on public samples and the client's size, for ``c_weighting = "data"``."""

    num_samples: int = 0  # training samples of the client


class KTpFLConfig(CodistillationConfig, CoefficientConfig):
    """KT-pFL's own parameters."""

    c_batch_size: BatchSize = 256
    """Public samples in a mini-batch of the step of c (the paper's public batch: 256)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State(ServerState):
    """What the server holds."""

    c: Array  # weight of each teacher for each student, float64 [K, K]
    num_samples: Array  # training samples of each client, float64 [K]; 0 where it has not said
    learning: int = 0  # the round in which c was moved last, or is being moved; 0 before


class KTpFL(Codistillation[KTpFLConfig, State]):
    """Co-distillation with learned weights."""

    about = About(
        kind="distillation",
        down="4pN + 8p",
        up="4pN",
        client="its model",
        server="the coefficient matrix",
        own_models=True,
    )

    messages = (SizedLogitsUp,)

    @property
    def exchanges(self) -> Exchanges[State, ClientState]:
        """Share, then distil with those who replied."""
        share, distil = super().exchanges
        reply = SizedLogitsUp if self.config.c_weighting == "data" else LogitsUp
        return replace(share, reply=reply), replace(distil, merge=self.merge_distil)

    def start(self, server: ServerContext) -> State:
        """Begin with equal weights."""
        count = server.num_clients
        return State(c=np.full((count, count), 1 / count), num_samples=np.zeros(count))

    def reply(self, client: ClientContext, values: Array, positions: Array) -> LogitsUp:
        """Return the message with soft predictions, and with the client's size if it counts."""
        if self.config.c_weighting == "unit":
            return super().reply(client, values, positions)
        temperature, size = self.config.temperature, client.num_samples()
        return predictions(values, positions, "probs", temperature, SizedLogitsUp, num_samples=size)

    async def merge_share(self, server: ServerContext, state: State, replies: Replies[Any]) -> State:
        """Store the predictions, and the clients' sizes if they count."""
        state = await super().merge_share(server, state, replies)
        if self.config.c_weighting == "unit":
            return state
        num_samples = state.num_samples.copy()
        for reply in replies:
            num_samples[reply.client] = reply.message.num_samples
        return replace(state, num_samples=num_samples)

    async def weights(self, server: ServerContext, state: State) -> Array:
        """Return the rows of c among the senders, scaled to sum to one."""
        return restricted(_block(state))

    async def instruct_distil(
        self, server: ServerContext, state: State, cohort: Sequence[int]
    ) -> tuple[State, Mapping[int, LogitsDown]]:
        """Send each client its teacher, and begin the step of c in the background."""
        state, messages = await super().instruct_distil(server, state, cohort)
        moved = server.call(
            learned,
            _block(state),
            state.values,
            state.given,
            self._factors(state),
            1 / server.num_clients,
            self.config.c_batch_size,
            self.config,
            flops=learned_flops(*state.values.shape),
        )
        server.background(WORK, moved)
        return replace(state, learning=server.round), messages

    async def merge_distil(self, server: ServerContext, state: State, replies: Replies[None]) -> State:
        """Put the block of c that was learned into c."""
        if state.learning != server.round:
            return state  # late replies of a round whose work is gone
        c = state.c.copy()
        c[np.ix_(state.senders, state.senders)] = await server.collect(WORK)
        return replace(state, c=c)

    def _factors(self, state: State) -> Array:
        """Return each sender's weight in the gradient, ``[m]``."""
        if self.config.c_weighting == "unit":
            return np.ones(len(state.senders))
        shares: Array = state.num_samples[state.senders] / max(state.num_samples.sum(), 1)
        return shares


def _block(state: State) -> Array:
    block: Array = state.c[np.ix_(state.senders, state.senders)]
    return block


PLUGIN = KTpFL
