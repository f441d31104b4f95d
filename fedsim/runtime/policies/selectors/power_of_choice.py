"""Power of choice: of clients drawn by data size, those with the largest loss train.

The server draws d candidates, each in proportion to its training samples, and chooses the m of them whose
loss is the largest; ties are broken at random (section 4 of the paper).

- pow-d: it asks the candidates for the loss of the global model before each round. That is a dispatch of its
  own: the model down, a forward pass over the client's training samples, a small frame up.
- cpow-d: the pass is over a few samples (``samples``).
- rpow-d: nobody is asked (``losses = "last"``). What a client told with its last reply stands for its loss,
  and those who have told nothing come first. In the paper that is the mean over its local steps; here it is
  measured as above, before the training, so that it means the same in every algorithm.

Under an asynchronous pacing the question comes before each selection, and the server merges nothing
meanwhile.

Cho, Wang, Joshi: Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies, 2020 (arXiv 2010.01243).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from fedsim.algorithms.base import Setting
from fedsim.config import Config
from fedsim.errors import Fault
from fedsim.params import Array
from fedsim.ranges import Clients, PositiveSamples
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact, LossMeasure, Selector
from fedsim.units import PositiveSeconds


class PowerOfChoiceConfig(Config):
    """Settings of power of choice."""

    candidates: Clients | None = None
    """Candidates, d: at least as many as train; twice as many if left out."""
    losses: Literal["asked", "last"] = "asked"
    """Ask the candidates for their loss, or take what each client told with its last reply."""
    samples: PositiveSamples | None = None
    """Samples over which a client measures its loss, drawn anew each time; all if left out."""
    answer_within: PositiveSeconds | None = None
    """How long the server waits for answers: who has not answered is left out; as long as
    `participation.client_timeout` if left out."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.losses == "last" and self.answer_within is not None:
            raise ValueError("answer_within is for losses = 'asked': with 'last' nobody is asked")
        return self


class PowerOfChoice(Selector[PowerOfChoiceConfig]):
    """The largest losses of a draw by data size."""

    @property
    def wants(self) -> tuple[Fact, ...]:
        """Losses alone."""
        return ("losses",)

    @property
    def measure(self) -> LossMeasure:
        """The mean over the client's samples, F_k(w)."""
        return LossMeasure("mean", self.config.samples)

    @property
    def asks(self) -> bool:
        """Whether candidates are asked."""
        return self.config.losses == "asked"

    @property
    def answer_within_s(self) -> float | None:
        """How long the server waits for them, s."""
        return self.config.answer_within

    def asked(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Draw the candidates, in proportion to their samples."""
        wanted = max(self.config.candidates or 2 * count, count)
        return candidates.sample_by_size(wanted, key.child("candidates"))

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Take those with the largest loss; one that has no loss to tell comes last, one not known first."""
        clients, losses = candidates.clients, candidates.known("losses")
        if not self.asks:
            drawn = np.searchsorted(clients, self.asked(candidates, count, key))
            clients, losses = clients[drawn], losses[drawn]
        losses = np.where(np.isnan(losses), -np.inf if self.asks else np.inf, losses)
        order = np.lexsort((key.child("ties").numpy().random(len(clients)), -losses))
        return clients[order[:count]]

    def misfits(self, setting: Setting) -> Iterator[Fault]:
        """Refuse fewer candidates than train; under an asynchronous pacing that is one or a few at a time."""
        wanted = self.config.candidates
        if wanted is not None and setting.merge_size is None and wanted < setting.cohort_size:
            yield Fault(
                "participation.selector.params.candidates",
                f"{wanted} candidates, of whom {setting.cohort_size} are to train",
                f"write {setting.cohort_size} or more, or ask fewer clients in a round",
            )


PLUGIN = PowerOfChoice
