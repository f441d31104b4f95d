"""FedAvg and fine-tuning: after the last round every client makes the global model its own.

The rounds are FedAvg's. Then all clients, also those that were never selected, get the final global model
and train it on their own samples; that frame is counted like any other (specification 5.A.4). "FedAvg-Local
FT" in table 2 of KT-pFL (arXiv 2111.02862). Fine-tuned models are measured as the clients' own, the global
model beside them as ``untuned``. A client without training samples, or one that the last frame does not
reach, keeps the global model.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629).
"""

from __future__ import annotations

from fedsim.algorithms.base import About
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.params import Model


class FedAvgFTConfig(FedAvgConfig, FineTuningConfig):
    """FedAvg's own parameters, and how long to fine-tune."""


class FedAvgFT(FineTuning[FedAvgFTConfig, Model], FedAvg[FedAvgFTConfig]):
    """Federated averaging, then fine-tuning."""

    about = About(
        kind="personal models",
        down="S, and once more after the last round",
        up="S",
        client="its fine-tuned model",
        server="the global model",
    )


PLUGIN = FedAvgFT
