"""A second opinion on what links carry: no link more than its capacity, and no flow more than it has.

The account is kept from the outside. A solver says how fast each flow moves, and between two changes of
rates this holds it to its word: the rates of a link's flows add up to no more than its capacity, the bits
that cross to no more than the capacity lets pass in that time, and a flow ends when all of its bits are
across, or is stopped with as many to go as its rates have left. Used under ``--verify`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from sys import float_info

from fedsim.errors import InvariantError
from fedsim.network.max_min_star import FAR_BITS, noise_s

RELATIVE = 1e-9
"""By how much sums may be off for rounding."""
ROUNDING_S = 1e-9
"""By how much instants may be off: they are whole nanoseconds."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a solver says of a flow until the next change: its rate, bit/s, and the links that it crosses."""

    flow: Hashable
    rate_bps: float
    route: Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class Room:
    """What a link has: its name, its capacity, bit/s, and the bits that it lets pass in the span at hand."""

    name: str
    capacity_bps: float
    bits: float


@dataclass(slots=True)
class _Account:
    """What is known of a flow: its bits, those that it has to go, and by how many the solver may be off.

    It may be off by what moves in the rounding of an instant, and by the rounding of each sum.
    """

    size_bits: float
    left_bits: float
    instant_bits: float
    sum_bits: float


class LoadCheck:
    """The account of one solver's flows, which are named by anything hashable, as links are."""

    def __init__(self) -> None:
        self._accounts: dict[Hashable, _Account] = {}
        self._clock_bits = 0.0

    def begin(self, flow: Hashable, bits: float) -> None:
        """Note that a flow starts now, with so many bits to go."""
        if not self._accounts:
            self._clock_bits = 0.0
        self._accounts[flow] = _Account(bits, bits, 0.0, self._rounding_bits())

    def _rounding_bits(self) -> float:
        """Return how far a few sums on a clock of work are off by rounding.

        A solver may count work on a clock that all flows share (``max_min_star.py``): what rounds then
        is not a flow's own bits, but those of a flow that was always the fastest since the link was idle.
        """
        return 4 * float_info.epsilon * min(self._clock_bits, FAR_BITS)

    def span(
        self, from_s: float, to_s: float, moves: Sequence[Move], room: Callable[[Hashable], Room]
    ) -> None:
        """Note that time passes without a change of rates.

        Args:
            from_s: Start of the span on the solver's clock, s.
            to_s: Its end.
            moves: Every flow that is under way.
            room: What each link has; asked for those that are crossed.

        Raises:
            InvariantError: A link carries more than its capacity, or flows are missing.
        """
        lasted_s = to_s - from_s
        off_s = ROUNDING_S + noise_s(to_s)
        if len(moves) != len(self._accounts):
            raise InvariantError(f"{len(self._accounts)} flows are under way, the solver moves {len(moves)}")
        self._clock_bits += lasted_s * max((move.rate_bps for move in moves), default=0.0)
        rounding_bits = self._rounding_bits()
        loads: dict[Hashable, list[float]] = {}
        for move in moves:
            account = self._accounts[move.flow]
            bits = min(account.left_bits, move.rate_bps * lasted_s)
            account.left_bits -= bits
            account.instant_bits = max(account.instant_bits, move.rate_bps * off_s)
            account.sum_bits += rounding_bits
            for link in move.route:
                load = loads.setdefault(link, [0.0, 0.0])
                load[0] += move.rate_bps
                load[1] += bits
        for link, (rate_bps, bits) in loads.items():
            has = room(link)
            if not rate_bps <= has.capacity_bps * (1 + RELATIVE):
                raise InvariantError(
                    f"{has.name} carries {rate_bps!r} bit/s at {from_s!r} s, "
                    f"its capacity is {has.capacity_bps!r}"
                )
            if not bits <= has.bits * (1 + RELATIVE) + has.capacity_bps * off_s:
                raise InvariantError(
                    f"{has.name} carried {bits!r} bits from {from_s!r} to {to_s!r} s, "
                    f"and can carry {has.bits!r}"
                )

    def compare(self, flow: Hashable, bits: float, noise_bits: float = 0.0) -> None:
        """Compare the bits that a flow has to go with what the solver says.

        Args:
            flow: The flow.
            bits: What the solver says.
            noise_bits: What the flow moves, at its rate from now on, in the rounding of this instant.

        Raises:
            InvariantError: They differ.
        """
        account = self._accounts[flow]
        slack_bits = RELATIVE * account.size_bits + account.sum_bits + max(account.instant_bits, noise_bits)
        if not abs(account.left_bits - bits) <= slack_bits:
            raise InvariantError(
                f"a flow of {account.size_bits!r} bits has {bits!r} to go, by its rates {account.left_bits!r}"
            )

    def end(self, flow: Hashable, bits: float = 0.0, noise_bits: float = 0.0) -> None:
        """Note that a flow is over, with so many bits to go: 0 where all of it is across.

        Raises:
            InvariantError: It has another number to go; see :meth:`compare`.
        """
        self.compare(flow, bits, noise_bits)
        del self._accounts[flow]
