"""Linear regression in hidden groups: clients of one group have similar truths, those of others do not.

Letters: D features, G groups, K clients. The truths are built in three steps, each around the one before::

    shared  ~ uniform(-prior_range, prior_range)     [D], one for all
    group   ~ normal(shared, between)                [D], one for each group
    client  ~ normal(group, within)                  [D], one for each client, who is in group (client mod G)
    x       ~ uniform(-input_range, input_range)     [D]
    y       = x . client + normal(0, noise)

This is the toy of figure 1 of PerFed-CKT: a uniform prior that says nothing, normal truths whose variance is
the heterogeneity, and equally large data sets. Its text has lost all of the paper's numbers, so the defaults
are fedsim's own, except three clients of whom two are alike: with 3 clients, 2 groups make clients 0 and 2
alike, and client 1 different.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext, room
from fedsim.ranges import Clients, PositiveSamples
from fedsim.rng import Key
from fedsim.task import Task

LARGEST = 1e6
"""Largest range and deviation: products of them are far inside float32, and so are squares of these."""


class SyntheticRegressionConfig(Config):
    """Settings of the regression."""

    groups: Clients = 2
    """Hidden groups; client k is in group k mod groups."""
    num_features: Annotated[int, Field(ge=1, le=10**5)] = 10
    """Scalars of a sample."""
    samples_per_client: PositiveSamples = 60
    """Samples that each client makes, before any are held out."""
    prior_range: float = Field(default=1.0, ge=0, le=LARGEST)
    """The truth that all share is uniform from minus this to this, in each feature."""
    between: float = Field(default=1.0, ge=0, le=LARGEST)
    """Standard deviation of a group's truth around the shared one: how different groups are."""
    within: float = Field(default=0.1, ge=0, le=LARGEST)
    """Standard deviation of a client's truth around its group's: how different members are."""
    input_range: float = Field(default=1.0, gt=0, le=LARGEST)
    """Samples are uniform from minus this to this, in each feature."""
    noise: float = Field(default=0.1, ge=0, le=LARGEST)
    """Standard deviation of what a target has beside the truth."""


class SyntheticRegression(DatasetPlugin[SyntheticRegressionConfig]):
    """As many samples of each client, client after client; users are the clients of the run."""

    Config = SyntheticRegressionConfig

    def load(self, context: LoadContext) -> Dataset:
        """Draw the samples; there is no test part."""
        config, num_clients = self.config, context.num_clients
        each, generator = config.samples_per_client, context.key.child("samples").numpy()
        shape = (num_clients, each, config.num_features)
        room(shape, np.float64, "samples_per_client or num_features")  # so that it is told at once
        x = generator.uniform(-config.input_range, config.input_range, shape)
        noise = generator.normal(0, config.noise, shape[:2])
        y = np.einsum("ksd,kd->ks", x, truths(config, num_clients, context.key)) + noise
        return Dataset(
            Task((config.num_features,), 1, "regression"),
            x.reshape(-1, config.num_features).astype(np.float32),
            y.reshape(-1).astype(np.float32),
            users=np.repeat(np.arange(num_clients), each),
        )


def truths(config: SyntheticRegressionConfig, num_clients: int, key: Key) -> NDArray[np.float64]:
    """Return the true weights of each client, (K, D).

    Args:
        config: The settings.
        num_clients: K.
        key: The key that the data set was loaded with.
    """
    features = config.num_features
    shared = key.child("shared").numpy().uniform(-config.prior_range, config.prior_range, features)
    shape = (min(config.groups, num_clients), features)  # others have no members
    groups = key.child("groups").numpy().normal(shared, config.between, shape)
    members = groups[np.arange(num_clients) % config.groups]
    return key.child("clients").numpy().normal(members, config.within)


PLUGIN = SyntheticRegression
