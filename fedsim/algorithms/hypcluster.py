"""HypCluster: several global models, of which each client takes the one that suits it.

In a round clients are sent all models, train the one with the least loss on their own samples, and send it
back. The server averages the models of each cluster as FedAvg does; the clusters are nothing but these
choices, so a client may change to another in every round (specification 5.D.8). The models begin with random
values, or as in fedjax with models that clients have trained and that differ by clients' losses
(:mod:`fedsim.algorithms.common.kmeans_start`). If fine-tuning is wanted, every client trains its model on its
own samples after the last round, as in FedMe's tables.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated Learning, 2020
(arXiv 2002.10619), algorithm 1.
"""

from __future__ import annotations

from fedsim.algorithms.base import About, Replies
from fedsim.algorithms.common.fine_tuning import FineTuning, OptionalFineTuningConfig
from fedsim.algorithms.common.kmeans_start import KMeansStart, KMeansStartConfig
from fedsim.algorithms.common.model_clusters import ClusterUpdate, Models, members
from fedsim.algorithms.common.model_rounds import Weighting, mean_of_models
from fedsim.algorithms.contexts import ServerContext


class HypClusterConfig(KMeansStartConfig, OptionalFineTuningConfig):
    """HypCluster's own parameters; FedMe's tables have two clusters."""

    weighting: Weighting = "samples"
    """What a model weighs in the mean of its cluster: its client's samples, or the same for all."""


class HypCluster(KMeansStart[HypClusterConfig]):
    """Hypothesis-based clustering; the server's state are the models."""

    Config = HypClusterConfig
    about = About(kind="personal models", down="q S", up="S + 4", server="q models")
    discounted = "shares"

    async def merge(self, server: ServerContext, state: Models, replies: Replies[ClusterUpdate]) -> Models:
        """Average the models of each cluster; one without members keeps its model."""
        groups = members(server, state, replies)
        return tuple(
            mean_of_models(group, self.config.weighting) if group else former
            for group, former in zip(groups, state, strict=True)
        )


class FineTunedHypCluster(FineTuning[HypClusterConfig, Models], HypCluster):
    """The same, and fine-tuning at the end."""

    about = HypCluster.about


PLUGIN = FineTunedHypCluster
