"""Oort: clients whose samples have much loss left and who reply soon, beside some that are new.

Clients tell the root of the mean square of their samples' losses with each reply. In round R the utility of
a client that has told one is (algorithm 1, lines 8 to 12)::

    U = |B| sqrt(mean of loss^2)                               its statistical utility
    (U, clipped and scaled, + sqrt(0.1 ln R / L)) * (T / t)^alpha    the last factor where t > T

with its samples B, the last round L in which it was merged, its last turnaround time t, and the preferred
duration T. Of m clients wanted, ``(1 - e) m`` are drawn in proportion to utility, among those with at least
``cut_off`` times the utility of the last who would be taken (lines 13 to 15). The others are drawn among
those who have told nothing, in proportion to speed where one is known (line 16). The share e of new clients
shrinks from round to round; where it comes to a part of a client, that is one with this probability, so that
selections of one or two explore too. The pacer (line 7) raises T where those drawn had less utility in the
last rounds than in as many before.

Where the paper is open this follows the authors' code: U is scaled to [0, 1], T is a quantile of the known
turnaround times, and the pacer looks once in ``pacer_step`` rounds at means over clients. Other than there,
the loss is that before the training, from a forward pass of its own. Over all samples that costs up to a
third of an epoch, and ``samples`` makes it cheaper.

Lai, Zhu, Madhyastha, Chowdhury: Oort: Efficient Federated Learning via Guided Participant Selection, OSDI
2021 (arXiv 2010.06081).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Self

import numpy as np
from pydantic import model_validator

from fedsim.config import Config
from fedsim.params import Array
from fedsim.ranges import Coefficient, PositiveSamples, PositiveShare, Rounds, Share
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact, LossMeasure, Selector

_LEAST = 1e-9
"""In place of a weight of 0, so that everyone can be drawn, and of a time of 0."""


class OortConfig(Config):
    """Settings of Oort; the defaults are those of the paper and, where it has none, of the authors' code."""

    exploration: Share = 0.9
    """Share of clients that are new, in the first round."""
    exploration_decay: PositiveShare = 0.98
    """Its factor from one round to the next."""
    least_exploration: Share = 0.2
    """It shrinks no further (FedScale: 0.3)."""
    cut_off: Share = 0.95
    """Share of the utility of the last who would be taken, from which on a client may be drawn."""
    clip: PositiveShare = 0.9
    """Quantile to which larger statistical utilities are clipped."""
    penalty: Coefficient = 2.0
    """Exponent alpha for clients that take longer than T; 0 prefers no speed."""
    duration: PositiveShare = 0.3
    """T at first: this quantile of the known turnaround times; 1: nobody is too slow (FedScale: 0.3)."""
    pacer_step: Rounds = 20
    """Rounds whose utility the pacer compares with that of as many before."""
    pacer_raise: Share = 0.05
    """By how much it raises the quantile."""
    blacklist_after: Rounds | None = None
    """A client that was asked so often is asked only where others are too few; left out, nobody is
    blacklisted."""
    samples: PositiveSamples | None = None
    """Samples over which a client measures its loss, drawn anew each time; all if left out."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.least_exploration > self.exploration:
            raise ValueError(
                f"least_exploration = {self.least_exploration:g} is more than exploration = "
                f"{self.exploration:g}, from which it shrinks: write a smaller one"
            )
        return self


@dataclass(frozen=True)
class Pacer:
    """What is remembered from one selection to the next."""

    quantile: float
    achieved: tuple[float, ...] = ()
    round: int = 0
    drawn: tuple[int, ...] = ()

    def begun(self, round: int, utility: Array, config: OortConfig) -> Pacer:  # noqa: A002
        """Return it when a round has begun; ``utility`` is that of all clients now, ``[K]``."""
        step, pacer = config.pacer_step, self
        while pacer.round < round:
            quantile, achieved = pacer.quantile, pacer.achieved
            if pacer.round:
                known = utility[list(pacer.drawn)]
                known = known[~np.isnan(known)]
                achieved = (*achieved, float(known.mean()) if len(known) else 0.0)[-2 * step :]
            is_time = len(achieved) == 2 * step and pacer.round % step == 0
            if is_time and sum(achieved[:step]) > sum(achieved[step:]):
                quantile = min(1.0, quantile + config.pacer_raise)
            pacer = Pacer(quantile, achieved, pacer.round + 1)
        return pacer


def utilities(
    statistical: Array,
    last: Array,
    took_s: Array,
    preferred_s: float,
    round: int,  # noqa: A002
    config: OortConfig,
) -> Array:
    """Return the utility of clients that have told a loss (algorithm 1, lines 8 to 12).

    ``last`` is the round in which each was merged last, ``took_s`` its last turnaround time or NaN.
    """
    clip = np.sort(statistical)[min(int(len(statistical) * config.clip), len(statistical) - 1)]
    least = 0.999 * statistical.min()
    scaled = (np.minimum(statistical, clip) - least) / max(statistical.max() - least, 1e-4)
    uncertain = np.sqrt(0.1 * log(round) / last)
    # T / t where t > T, else 1.
    system: Array = (preferred_s / np.fmax(took_s, preferred_s)) ** config.penalty
    utility: Array = (scaled + uncertain) * system
    return utility


class Oort(Selector[OortConfig]):
    """Exploits utility, and explores."""

    @property
    def wants(self) -> tuple[Fact, ...]:
        """What utility is made of, and who was asked too often."""
        asked: tuple[Fact, ...] = () if self.config.blacklist_after is None else ("times_asked",)
        return ("losses", "turnaround_s", "last_merged", *asked)

    @property
    def measure(self) -> LossMeasure:
        """The root of the mean square over samples."""
        return LossMeasure("root_mean_square", self.config.samples)

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Draw some by utility, and some that are new."""
        config, clients, losses = self.config, candidates.clients, candidates.known("losses")
        wanted = min(count, len(clients))
        passed_over = np.zeros(len(clients), np.bool_)
        if config.blacklist_after is not None:
            passed_over = candidates.known("times_asked") >= config.blacklist_after
        (explored,) = np.nonzero(~np.isnan(losses) & ~passed_over)
        (new,) = np.nonzero(np.isnan(losses) & ~passed_over)
        share = config.exploration * config.exploration_decay ** (candidates.round - 1)
        num_new = min(_rounded(max(share, config.least_exploration) * wanted, key), len(new))
        num_drawn = min(wanted - num_new, len(explored))
        num_new = min(wanted - num_drawn, len(new))

        drawn, pacer = explored[:0], self._pacer(candidates)
        times_s = candidates.facts("turnaround_s")
        known_s = times_s[~np.isnan(times_s)]
        took_s = times_s[clients]
        if num_drawn:
            preferred_s = float(np.quantile(known_s, pacer.quantile)) if len(known_s) else 1.0
            utility = utilities(
                candidates.sizes[explored] * losses[explored],
                np.maximum(candidates.known("last_merged")[explored], 1),
                took_s[explored],
                max(preferred_s, _LEAST),
                candidates.round,
                config,
            )
            admitted = utility >= config.cut_off * np.sort(utility)[-num_drawn]
            drawn = _draw(explored[admitted], utility[admitted], num_drawn, key.child("exploit"))
            candidates.memory["pacer"] = replace(pacer, drawn=(*pacer.drawn, *clients[drawn].tolist()))
        usual_s = float(np.median(known_s)) if len(known_s) else 1.0
        slowness_s = np.where(np.isnan(took_s), usual_s, took_s)[new]
        fresh = _draw(new, 1 / np.maximum(slowness_s, _LEAST), num_new, key.child("explore"))
        left = wanted - num_drawn - num_new
        (rest,) = np.nonzero(passed_over)
        others = _draw(rest, np.ones(len(rest)), left, key.child("blacklist"))
        chosen: Array = clients[np.concatenate([drawn, fresh, others])]
        return chosen

    def _pacer(self, candidates: Candidates) -> Pacer:
        """Return what is remembered, for the round at hand."""
        config = self.config
        before: Pacer = candidates.memory.get("pacer", Pacer(config.duration))
        losses = candidates.facts("losses")
        pacer = before.begun(candidates.round, candidates.sizes_of(np.arange(len(losses))) * losses, config)
        candidates.memory["pacer"] = pacer
        return pacer


def _rounded(number: float, key: Key) -> int:
    """Return a number rounded up or down, at random in proportion to what is nearer."""
    return int(number + 1 - key.child("part").uniform())


def _draw(places: Array, weights: Array, count: int, key: Key) -> Array:
    """Draw so many of some places without replacement, in proportion to weights."""
    if not count:
        return places[:0]
    weights = np.maximum(weights, _LEAST)
    shares = weights / weights.sum()
    drawn: Array = key.numpy().choice(places, size=count, replace=False, p=shares, shuffle=False)
    return drawn


PLUGIN = Oort
