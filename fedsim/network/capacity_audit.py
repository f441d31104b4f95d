"""Checks of a solver under ``--verify``: no link carries more than its capacity, no flow more than its bits.

The solver states the rate of each flow. Between two changes of rates, the rates on a link must not exceed its
capacity, nor the bits that cross what the capacity lets pass; and a flow must end with the bits that its
rates have left.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from sys import float_info

from fedsim.errors import InvariantError
from fedsim.network.max_min_star import FAR_BITS, noise_s

RELATIVE = 1e-9
"""Relative tolerance of sums."""
ROUNDING_S = 1e-9
"""Tolerance of instants, which are whole nanoseconds."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link's name, its capacity, the bits that it lets pass in a span, and the flows that cross it."""

    name: str
    capacity_bps: float
    bits: float
    flows: Sequence[Hashable]


@dataclass(slots=True)
class _Account:
    """A flow's bits, its remaining bits, and tolerances for the rounding of instants and of sums."""

    size_bits: float
    left_bits: float
    instant_bits: float
    sum_bits: float


class LoadCheck:
    """The accounts of one solver's flows."""

    def __init__(self) -> None:
        self._accounts: dict[Hashable, _Account] = {}
        self._clock_bits = 0.0

    def begin(self, flow: Hashable, bits: float) -> None:
        """Note that a flow starts now."""
        if not self._accounts:
            self._clock_bits = 0.0
        self._accounts[flow] = _Account(bits, bits, 0.0, self._rounding_bits())

    def _rounding_bits(self) -> float:
        """Return the rounding error, bits, of a clock of work that all flows share (``max_min_star.py``).

        It is that of a flow that was always the fastest since the link was idle.
        """
        return 4 * float_info.epsilon * min(self._clock_bits, FAR_BITS)

    def span(
        self, from_s: float, to_s: float, rates_bps: Mapping[Hashable, float], links: Sequence[Link]
    ) -> None:
        """Note that time passes without a change of rates; ``rates_bps`` has every flow."""
        lasted_s = to_s - from_s
        off_s = ROUNDING_S + noise_s(to_s)
        if len(rates_bps) != len(self._accounts):
            num_moved = len(rates_bps)
            raise InvariantError(f"{len(self._accounts)} flows are under way, the solver moves {num_moved}")
        self._clock_bits += lasted_s * max(rates_bps.values(), default=0.0)
        rounding_bits = self._rounding_bits()
        moved_bits: dict[Hashable, float] = {}
        for flow, rate_bps in rates_bps.items():
            account = self._accounts[flow]
            moved_bits[flow] = min(account.left_bits, rate_bps * lasted_s)
            account.left_bits -= moved_bits[flow]
            account.instant_bits = max(account.instant_bits, rate_bps * off_s)
            account.sum_bits += rounding_bits
        for link in links:
            rate_bps = sum(rates_bps[flow] for flow in link.flows)
            bits = sum(moved_bits[flow] for flow in link.flows)
            if not rate_bps <= link.capacity_bps * (1 + RELATIVE):
                raise InvariantError(
                    f"{link.name} carries {rate_bps!r} bit/s at {from_s!r} s, "
                    f"its capacity is {link.capacity_bps!r}"
                )
            if not bits <= link.bits * (1 + RELATIVE) + link.capacity_bps * off_s:
                raise InvariantError(
                    f"{link.name} carried {bits!r} bits from {from_s!r} to {to_s!r} s, "
                    f"and can carry {link.bits!r}"
                )

    def compare(self, flow: Hashable, bits: float, noise_bits: float = 0.0) -> None:
        """Compare a flow's remaining bits with the solver's, with an additional tolerance."""
        account = self._accounts[flow]
        slack_bits = RELATIVE * account.size_bits + account.sum_bits + max(account.instant_bits, noise_bits)
        if not abs(account.left_bits - bits) <= slack_bits:
            raise InvariantError(
                f"a flow of {account.size_bits!r} bits has {bits!r} to go, by its rates {account.left_bits!r}"
            )

    def end(self, flow: Hashable, bits: float = 0.0, noise_bits: float = 0.0) -> None:
        """Note that a flow is over, with these remaining bits."""
        self.compare(flow, bits, noise_bits)
        del self._accounts[flow]
