"""What a client holds between two dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsim.params import Tree


@dataclass(frozen=True, slots=True)
class Held:
    """A client's state between two dispatches.

    Attributes:
        dispatch: The dispatch that it came from.
        merged: The state if that reply was merged.
        otherwise: The state if it was not.
        optimisers: What the client's optimisers hold in either case, by the keys of
            :class:`fedsim.engine.kept_optimisers.Keeping`.
        residuals: What codecs have left out if that reply was merged, by exchange and field.
        residuals_before: What they had left out before, which stands if it was not.
        since_ns: Since when, ns.
    """

    dispatch: int
    merged: Any
    otherwise: Any
    optimisers: Mapping[str, Tree] = field(default_factory=dict)
    residuals: Mapping[str, Tree] = field(default_factory=dict)
    residuals_before: Mapping[str, Tree] = field(default_factory=dict)
    since_ns: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether it makes no difference if that reply was merged."""
        has_residuals = bool(self.residuals or self.residuals_before)
        return self.merged is self.otherwise and (
            not has_residuals or self.residuals is self.residuals_before
        )

    def settled_residuals(self, newest_merged: int) -> Mapping[str, Tree]:
        """Return what codecs have left out, likewise."""
        return self.residuals if newest_merged >= self.dispatch else self.residuals_before

    def settled(self, newest_merged: int) -> Any:
        """Return the state, knowing the newest dispatch of this client whose reply was merged."""
        return self.merged if newest_merged >= self.dispatch else self.otherwise
