"""Partitions whose shares follow Dirichlet laws."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, require_samples, scaled
from fedsim.errors import DataError
from fedsim.ranges import Concentration, Samples
from fedsim.shares import apportion

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
    """Shares of each class drawn from a Dirichlet law over the clients: skewed labels and skewed sizes.

    For each class, shares q ~ Dir(alpha * 1_K) are drawn and the class is cut accordingly; everything is
    drawn again until every client has ``min_size`` samples. This is the form that PerFed-CKT and Fed-ET use:
    a smaller alpha gives more label skew and more size imbalance. With ``cap``, a client that already holds
    n/K samples gets nothing of later classes (the variant of FedMA and FedDF).

    With ``every_class`` a class's shares are drawn until every client has a sample of it. Over 10 clients,
    with alpha = 0.9, this is data setup 2 (DS-2) of PersFL.
    """

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


class DirichletClientConfig(Config):
    """Settings of the client-wise Dirichlet partition."""

    alpha: Concentration = 0.5
    """Concentration: near 0 every client has a single class, large values give all the same mixture."""


class DirichletClient(ClassPartition[DirichletClientConfig]):
    """Labels of each client drawn from a Dirichlet law around the overall one: skewed labels, equal sizes.

    Each client's label distribution is q ~ Dir(alpha * prior), where prior is the share of each class in the
    data set (Hsu, Qi and Brown 2019). All clients have equally many samples. A class that runs out is left
    out of the distributions of the remaining clients. Clients get their samples in an order drawn from the
    key, so that low numbers have no advantage.
    """

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts with equal sums; the first clients get one more if samples do not divide evenly."""
        total, left, present = int(totals.sum()), totals, np.flatnonzero(totals)
        # NumPy refuses a concentration of zero, to which a tiny alpha times a rare class may round.
        concentration = np.maximum(self.config.alpha * totals[present] / total, 1e-300)
        wishes = np.zeros((num_clients, len(totals)))
        wishes[:, present] = generator.dirichlet(concentration, num_clients)
        sizes = apportion(total, np.ones(num_clients))
        counts = np.zeros(wishes.shape, np.int64)
        for client in generator.permutation(num_clients):
            counts[client] = _serve(wishes[client], int(sizes[client]), left, generator)
            left = left - counts[client]
        return counts


def _serve(wish: NDArray[np.float64], size: int, left: Counts, generator: np.random.Generator) -> Counts:
    """Return counts (N,) of sum ``size``, at most ``left``, drawn from ``wish``, then from what is left."""
    counts = np.zeros_like(left)
    while (missing := size - int(counts.sum())) > 0:
        room = left - counts
        open_wish = np.where(room > 0, wish, 0.0)
        if not open_wish.sum() > 0:
            open_wish = room.astype(np.float64)
        drawn = generator.multinomial(missing, open_wish / open_wish.sum())
        # Each pass either fills the client or exhausts a class, so there are at most N + 1 passes.
        counts += np.minimum(drawn, room)
    return counts


TWO_LEVEL_MAX_DRAWS = 200
"""How often everything is drawn before a request counts as impossible."""

ITERATIONS = 20
"""How often rows and columns are scaled."""

_LEAST = 1e-9
"""Smallest preference of a client for a class, so that every class can be given out."""


class DirichletTwoLevelConfig(Config):
    """Settings of the two-level Dirichlet partition."""

    alpha_label: Concentration = 0.5
    """Concentration of each client's labels: 0.1 is strong skew, 100 is nearly even."""
    alpha_size: Concentration = 10.0
    """Concentration of the sizes: 1 is strong imbalance, 1000 is nearly even."""
    min_size: Samples = 1
    """Fewest samples that a client may end up with; everything is redrawn until no client has fewer."""


class DirichletTwoLevel(ClassPartition[DirichletTwoLevelConfig]):
    """Sizes drawn from one Dirichlet law, labels from another: FedMe's partition of CIFAR-10.

    Sizes are n * Dir(alpha_size * 1_K), and each client's preferences among the classes Dir(alpha_label *
    1_N). The rows of the preferences are scaled to the sizes and their columns to the classes' totals, twenty
    times in turn. Each class is then cut into whole numbers by largest remainders, so all samples are given
    out.

    In the paper's example of 49,000 samples over 20 clients the sizes have a standard deviation of 1,025.
    That of the law with the paper's alpha_size = 10 is 753, and about one draw in forty is as uneven as the
    example.
    """

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out all samples."""
        config = self.config
        require_samples(int(totals.sum()), num_clients, config.min_size)

        def draw() -> Counts:
            sizes = totals.sum() * generator.dirichlet(np.full(num_clients, config.alpha_size))
            wishes = generator.dirichlet(np.full(len(totals), config.alpha_label), num_clients)
            wishes = scaled(np.maximum(wishes, _LEAST), np.maximum(sizes, _LEAST), totals, ITERATIONS)
            counts = np.zeros(wishes.shape, np.int64)
            for j in np.flatnonzero(totals):
                counts[:, j] = apportion(int(totals[j]), wishes[:, j])
            return counts

        return self.redrawn(draw, TWO_LEVEL_MAX_DRAWS, config.min_size, "alpha_size")


PLUGINS = {
    "dirichlet_class": DirichletClass,
    "dirichlet_client": DirichletClient,
    "dirichlet_two_level": DirichletTwoLevel,
}
