"""Shares of each class drawn from a Dirichlet law over the clients: skewed labels and skewed sizes.

For each class, shares q ~ Dir(alpha * 1_K) are drawn and the class is cut accordingly; everything is drawn
again until every client has ``min_size`` samples. This is the form that PerFed-CKT and Fed-ET use: a smaller
alpha gives more label skew and more size imbalance. With ``cap``, a client that already holds n/K samples
gets nothing of later classes (the variant of FedMA and FedDF).

With ``every_class`` a class's shares are drawn until every client has a sample of it. Over 10 clients, with
alpha = 0.9, this is data setup 2 (DS-2) of PersFL.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, require_samples
from fedsim.errors import DataError
from fedsim.ranges import Concentration, Samples

MAX_DRAWS = 2000
"""How often everything is drawn before a request counts as impossible."""


class DirichletClassConfig(Config):
    """Settings of the class-wise Dirichlet partition."""

    alpha: Concentration = 0.5
    """Concentration: 0.1 is strong skew, 100 is nearly even."""
    min_size: Samples = 10
    """Fewest samples that a client may end up with."""
    cap: bool = False
    """Whether a client that holds its even share of all samples gets nothing of the classes that follow."""
    every_class: bool = False
    """Whether every client gets at least one sample of each class that there is."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.cap and self.every_class:
            raise ValueError(
                "cap gives no further classes to clients that hold enough, but every_class gives each class "
                "to every client: choose one of the two"
            )
        return self


class DirichletClass(ClassPartition[DirichletClassConfig]):
    """Class-wise Dirichlet shares, redrawn until every client has ``min_size`` samples."""

    Config = DirichletClassConfig

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out all samples."""
        config = self.config
        require_samples(int(totals.sum()), num_clients, config.min_size)

        def draw() -> Counts:
            if config.every_class:
                return self._to_everybody(totals, num_clients, generator).T
            shares = generator.dirichlet(np.full(num_clients, config.alpha), len(totals))
            return (_capped(shares, totals) if config.cap else _counts(shares, totals)).T

        return self.redrawn(draw, MAX_DRAWS, config.min_size, "alpha")

    def _to_everybody(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts (N, K) that are zero only in the rows of classes without samples.

        Classes are independent, so each class is redrawn on its own. The result has the same distribution as
        redrawing everything, with far fewer draws.
        """
        counts = np.zeros((len(totals), num_clients), np.int64)
        missing = np.flatnonzero(totals)
        for _ in range(MAX_DRAWS):
            shares = generator.dirichlet(np.full(num_clients, self.config.alpha), len(missing))
            counts[missing] = _counts(shares, totals[missing])
            missing = missing[counts[missing].min(axis=1) == 0]
            if not len(missing):
                return counts
        rarest = int(missing[totals[missing].argmin()])
        raise DataError(
            f"none of {MAX_DRAWS} draws of dirichlet_class with alpha = {self.config.alpha:g} gave each of "
            f"{num_clients} clients one of the {totals[rarest]} samples of class {rarest}: "
            "raise alpha, use fewer clients or a larger data set, or leave out every_class"
        )


def _counts(shares: NDArray[np.float64], totals: Counts) -> Counts:
    """Return (N, K) counts: each class cut at the running sums of its shares (N, K)."""
    sums = np.cumsum(shares, axis=1)
    # Divided by the last sum, so that the sums end at exactly one and no sample is left over.
    ends = np.floor(sums / sums[:, -1:] * totals[:, None]).astype(np.int64)
    return np.diff(ends, axis=1, prepend=0)


def _capped(shares: NDArray[np.float64], totals: Counts) -> Counts:
    counts = np.zeros(shares.shape, np.int64)
    held = np.zeros(shares.shape[1], np.int64)
    for j, total in enumerate(totals):
        has_room = held * len(held) < totals.sum()
        # As long as samples are left, some client has room, but perhaps none with a positive share.
        open_shares = np.where(has_room, shares[j], 0.0)
        if total:
            if not open_shares.sum() > 0:
                open_shares = has_room.astype(np.float64)
            counts[j] = _counts(open_shares[None], totals[j : j + 1])[0]
            held += counts[j]
    return counts


PLUGIN = DirichletClass
