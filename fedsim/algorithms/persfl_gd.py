"""PersFL-GD: PersFL with the cross-entropy to the teacher's predictions in place of the KL divergence.

Generalised distillation (Lopez-Paz et al.), the variant of section 5.5 and table 6 of the PersFL paper
(arXiv 2105.15191; specification 5.E.7). The two losses differ by the teacher's entropy, which no student
changes, so with PersFL's default direction both have the same gradients and the same models, up to rounding
(D-002-03).
"""

from __future__ import annotations

from fedsim.algorithms.base import About
from fedsim.algorithms.persfl import Distilling, DistillingConfig, Imitating


class PersFLGD(Distilling[DistillingConfig]):
    """Distillation by cross-entropy to soft labels."""

    about = About(
        kind="personal models",
        down="S, and once more after the last round",
        up="S",
        client="its best teacher, then its student",
        server="the global model",
    )

    def loss(self, weight: float, temperature: float) -> Imitating:
        """Return the loss."""
        return Imitating(weight, temperature, "cross_entropy")


PLUGIN = PersFLGD
