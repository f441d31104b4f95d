"""Linear regression with hidden groups: the clients of a group have similar true weights.

Letters: D features, G groups, K clients. True weights are drawn in three steps, each around the one before::

    shared  ~ uniform(-prior_range, prior_range)     [D], one for all
    group   ~ normal(shared, between)                [D], one for each group
    client  ~ normal(group, within)                  [D], one for each client of group (client mod G)
    x       ~ uniform(-input_range, input_range)     [D]
    y       = x . client + normal(0, noise)

This is the toy problem of figure 1 of PerFed-CKT: a uniform prior, normal true weights whose variance is the
heterogeneity, and data sets of equal size. The paper's numbers are not available, so the defaults are
fedsim's own. As in the paper, two of three clients are alike: with 3 clients and 2 groups, clients 0 and 2
are in the same group.
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

MAX_VALUE = 1e6
"""Largest range and deviation: the square of a product of two is still far below float32's largest number."""


class SyntheticRegressionConfig(Config):
    """Settings of the regression."""

    groups: Clients = 2
    """Hidden groups; client k is in group k mod groups."""
    num_features: Annotated[int, Field(ge=1, le=10**5)] = 10
    """Scalars of a sample."""
    samples_per_client: PositiveSamples = 60
    """Samples of each client, before any are held out."""
    prior_range: float = Field(default=1.0, ge=0, le=MAX_VALUE)
    """Each of the shared true weights is uniform from minus this to this."""
    between: float = Field(default=1.0, ge=0, le=MAX_VALUE)
    """Standard deviation of a group's true weights around the shared ones: how different groups are."""
    within: float = Field(default=0.1, ge=0, le=MAX_VALUE)
    """Standard deviation of a client's true weights around its group's: how different members are."""
    input_range: float = Field(default=1.0, gt=0, le=MAX_VALUE)
    """Each feature of a sample is uniform from minus this to this."""
    noise: float = Field(default=0.1, ge=0, le=MAX_VALUE)
    """Standard deviation of the noise in a target."""


class SyntheticRegression(DatasetPlugin[SyntheticRegressionConfig]):
    """Equally many samples for each client, client after client; users are the clients of the run."""

    def load(self, context: LoadContext) -> Dataset:
        """Draw the samples; there is no test part."""
        config, num_clients = self.config, context.num_clients
        each, generator = config.samples_per_client, context.key.child("samples").numpy()
        shape = (num_clients, each, config.num_features)
        room(shape, np.float64, "samples_per_client or num_features")  # fails before anything is drawn
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
    """Return the true weights of each client, (K, D)."""
    features = config.num_features
    shared = key.child("shared").numpy().uniform(-config.prior_range, config.prior_range, features)
    shape = (min(config.groups, num_clients), features)  # further groups have no members
    groups = key.child("groups").numpy().normal(shared, config.between, shape)
    members = groups[np.arange(num_clients) % config.groups]
    return key.child("clients").numpy().normal(members, config.within)


PLUGIN = SyntheticRegression
