"""pFedDF: FedDF, after which every client makes the prototype of its architecture its own.

The rounds are FedDF's. Then all clients get the last prototype of their architecture and train it on their
own samples; that frame is counted like any other (specification 5.C.2). Footnote 2 of KT-pFL (arXiv
2111.02862), which does not say for how long: the rule is that of specification 5.A.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.algorithms.base import About
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig
from fedsim.algorithms.feddf import FedDF, FedDFConfig
from fedsim.params import Model


class PFedDFConfig(FedDFConfig, FineTuningConfig):
    """FedDF's own parameters, and how long to fine-tune."""


class PFedDF(FineTuning[PFedDFConfig, Mapping[str, Model]], FedDF):
    """Ensemble distillation, then fine-tuning."""

    about = About(
        kind="distillation",
        down="S, and once more after the last round",
        up="S",
        client="its fine-tuned model",
        server="one model of each architecture",
        own_models=True,
    )

    config: PFedDFConfig


PLUGIN = PFedDF
