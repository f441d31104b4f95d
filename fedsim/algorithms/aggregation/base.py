"""Aggregation: how a server combines the models, or changes of models, that clients send for a merge.

Under ``mean`` an algorithm takes its own mean. Any other rule makes one update of all replies of a merge, and
the algorithm takes the mean of that alone (:func:`fedsim.algorithms.common.model_rounds.combined`). So a rule
serves every algorithm that averages models. A rule takes no virtual time, like the mean.

Letters for shapes: m replies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.errors import RunError
from fedsim.params import Array, Tree, freeze, weighted_mean
from fedsim.plugins import C, Plugin, name_of
from fedsim.wire import ModelUpdate

U = TypeVar("U", bound=ModelUpdate)

Warn: TypeAlias = Callable[..., object]
"""Notes an event in the run's log, with values by keyword."""


class Aggregation(Plugin[C]):
    """How the replies of a merge are combined; this one leaves them to the algorithm.

    Attributes:
        is_robust: Whether it replaces the algorithm's mean, and with it the weights of the replies.
    """

    is_robust = False

    def combined(self, updates: Sequence[U], start: Tree | None, warn: Warn) -> U | None:
        """Return one update that stands for all; None if the algorithm takes its own mean.

        Args:
            updates: Models of one architecture, or changes of them; at least one.
            start: Parameters of the model that the server has now; None for changes.
            warn: For the run's log.
        """
        return None

    def fault(self, num_replies: int) -> str:
        """Return why it cannot combine a number of replies; empty if it can."""
        return ""


class RobustRule(Aggregation[C], ABC):
    """Combines the parameters of all replies into one update; all replies count alike.

    The trees of an update that count as parameters are one vector, such as a model and a control variate.
    """

    is_robust = True

    @abstractmethod
    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return the combination of parameters.

        Args:
            vectors: Those of each reply, m trees of one form.
            origin: The server's model now: a tree of this form; zeros for changes.
            warn: For the run's log.
        """

    def combine_buffers(self, buffers: Sequence[Tree]) -> Tree:
        """Return the combination of running statistics and counters; by default their mean."""
        return weighted_mean(buffers, [1 / len(buffers)] * len(buffers))

    def combined(self, updates: Sequence[U], start: Tree | None, warn: Warn) -> U:
        """Return one update that stands for all."""
        first = updates[0]
        fields = first.PLAN.trees
        for field in first.PLAN.counted:
            if field not in fields or any(getattr(update, field) is None for update in updates):
                raise RunError(
                    f"{name_of(self)!r} combines trees of parameters, and field {field!r} of a "
                    f"{first.KIND!r} message is not a tree in every reply: write aggregation = 'mean'"
                )
        vectors = [_joined({field: getattr(update, field) for field in fields}) for update in updates]
        origin = {name: np.zeros_like(array) for name, array in vectors[0].items()}
        if start is not None:
            origin |= _joined({"params": start})
        vector = self.combine(vectors, origin, warn)
        changes: dict[str, Any] = {
            field: freeze({name: vector[f"{field}/{name}"] for name in getattr(first, field)})
            for field in fields
        }
        return replace(first, **changes, buffers=self.combine_buffers([one.buffers for one in updates]))


def _joined(trees: dict[str, Tree]) -> dict[str, Array]:
    """Return the arrays of several trees as one tree."""
    return {f"{field}/{name}": array for field, tree in trees.items() for name, array in tree.items()}


class AttackersConfig(Config):
    """How many attackers a rule withstands."""

    f: Annotated[int, Field(ge=0, le=10**6)] = 1
    """Attackers among the replies of a merge, fewer than half of them."""


class WithstandsAttackers(RobustRule[AttackersConfig]):
    """Base of rules that are told how many attackers there are."""

    def num_attackers(self, num_replies: int, warn: Warn) -> int:
        """Return f, or the most that a number of replies allows."""
        if fault := self.fault(num_replies):
            warn("too few replies", aggregation=name_of(self), problem=fault)
        return self.most_attackers(num_replies)

    def most_attackers(self, num_replies: int) -> int:
        """Return the same without a line in the log."""
        return min(self.config.f, (num_replies - 1) // 2)

    def fault(self, num_replies: int) -> str:
        """Refuse half of the replies or more."""
        if 2 * self.config.f < num_replies:
            return ""
        return f"f = {self.config.f} attackers are not fewer than half of {num_replies} replies"
