"""Local: every client trains alone, and nothing travels.

The reference point of every personalised method (specification 5.A.1): what a client reaches from its own
samples. "Local Training" in table 1 of PerFed-CKT (arXiv 2109.08119), "Local Data Only" in table 4 of FedMe.
"""

from __future__ import annotations

from fedsim.algorithms.base import About, Algorithm, Exchange, Exchanges, Who
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Model


class LocalConfig(OwnModelConfig):
    """Local's own parameters."""

    follow_selection: bool = False
    """Train only in rounds in which the client is selected, which is equal work beside other methods;
    asynchronous pacings take nothing else."""


class Local(Algorithm[LocalConfig, None, Model]):
    """Training without federation; a client's state is its own model."""

    about = About(kind="reference", down="0", up="0", client="its model", own_models=True)

    mixed_architectures = True
    discounted = "nothing"

    @property
    def exchanges(self) -> Exchanges[None, Model]:
        """One, in which no frame travels."""
        who: Who = "cohort" if self.config.follow_selection else "all"
        return (Exchange("train", local=self.train, who=who),)

    def start(self, server: ServerContext) -> None:
        """The server knows nothing."""

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values of the client's architecture."""
        return initial_own_model(client, self.config)

    async def train(self, client: ClientContext, state: Model, message: None) -> tuple[Model, None]:
        """Train the client's own model on its own samples."""
        return (await client.fit(state)).model, None


PLUGIN = Local
