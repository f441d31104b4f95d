"""One user for each client: the natural partition of a data set that says who made each sample.

K users are drawn from those with at least ``min_samples`` samples; the samples of other users are not used.
It needs no classes, so it works for regressions too.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Indices
from fedsim.data.partitions.base import PartitionPlugin, Pool, require_samples
from fedsim.errors import DataError
from fedsim.ranges import PositiveSamples
from fedsim.rng import Key


class ByUserConfig(Config):
    """Settings of the partition by user."""

    min_samples: PositiveSamples = 1
    """Users with fewer samples than this, not counting those that are held out, are left out."""


class ByUser(PartitionPlugin[ByUserConfig]):
    """One user for each client."""

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Give each client all samples of one user."""
        if pool.users is None:
            raise DataError(
                "by_user gives each client the samples of one user, but this data set does not say who made "
                "which sample: use one that does (such as writers), give users where there is such a "
                "setting (such as files), or use another partition"
            )
        require_samples(len(pool), num_clients)
        users, sizes = np.unique(pool.users, return_counts=True)
        eligible = users[sizes >= self.config.min_samples]
        if len(eligible) < num_clients:
            each = "a sample" if self.config.min_samples == 1 else f"{self.config.min_samples} samples"
            raise DataError(
                f"{len(eligible)} of {len(users)} users have at least {each}, but there are {num_clients} "
                "clients: use fewer clients, a data set with more users (in writers, raise num_writers) or "
                "smaller held-out sets" + (", or lower min_samples" if self.config.min_samples > 1 else "")
            )
        samples = np.split(np.argsort(pool.users, kind="stable"), np.cumsum(sizes)[:-1])
        # In the order of their numbers, so that with as many clients as users client k is user k.
        chosen = np.sort(key.numpy().permutation(eligible)[:num_clients])
        return [samples[at] for at in np.searchsorted(users, chosen)]


PLUGIN = ByUser
