"""Cells: networks, each shared by some clients on their way to the server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import Fault
from fedsim.network.capacity_trace import Capacity
from fedsim.network.cell_settings import CellConfig
from fedsim.network.link_traces import LinkTraces
from fedsim.quoting import nearest, quoted
from fedsim.rng import Key
from fedsim.shares import apportion

NO_CELL = -1
"""In place of a cell's number."""

_SHARES_OFF = 1e-9  # by which shares of one may miss it, as they are summed

Rate = float | Capacity
"""A constant, bit/s, infinite without a limit; or a trace."""


def mean_bps(rate: Rate) -> float:
    """Return the mean of a capacity, bit/s."""
    return rate.mean_bps if isinstance(rate, Capacity) else rate


@dataclass(frozen=True, slots=True, eq=False)
class SharedLinks:
    """One direction of the cells that are limited in it.

    Attributes:
        of: The number of each client's cell, int32 ``[K]``; -1 for none.
        rates: The capacity of each cell.
        names: The name of each cell.
    """

    of: NDArray[np.int32]
    rates: Sequence[Rate]
    names: Sequence[str]

    def cell_of(self, address: int) -> int:
        """Return the number of a client's cell; -1 for none, and for an edge."""
        return NO_CELL if address < 0 else self.of.item(address)

    def mean_bps(self, client: int) -> float:
        """Return the mean capacity that a client shares, bit/s."""
        cell = self.of.item(client)
        return inf if cell == NO_CELL else mean_bps(self.rates[cell])


def is_traced(shared: SharedLinks | None) -> bool:
    """Whether any link follows a trace."""
    return shared is not None and any(isinstance(rate, Capacity) for rate in shared.rates)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a fleet.

    Attributes:
        names: The name of each.
        of: The number of each client's cell, int32 ``[K]``; -1 for none.
        up: Capacities towards the server.
        down: Capacities towards clients.
        latency_s: The one-way latency of each, s, ``[cells]``.
    """

    names: Sequence[str]
    of: NDArray[np.int32]
    up: Sequence[Rate]
    down: Sequence[Rate]
    latency_s: Sequence[float]

    @classmethod
    def draw(cls, configs: Sequence[CellConfig], of: NDArray[np.int32], key: Key) -> Cells:
        """Return cells with these members; which trace a cell follows is drawn."""

        def rates(way: str) -> list[Rate]:
            found = list[Rate]()
            for number, config in enumerate(configs):
                if (trace := config.link_traces.get(way)) is not None:
                    found.append(LinkTraces.draw(trace, 1, key.child(way, number)).of(0))
                else:
                    rate_bps: float | None = getattr(config, way)
                    found.append(inf if rate_bps is None else rate_bps)
            return found

        names, latencies_s = [one.name for one in configs], [one.latency for one in configs]
        return cls(names, of, rates("up"), rates("down"), latencies_s)

    def shared(self, *, up: bool, apart: Collection[int] = ()) -> SharedLinks | None:
        """Return the links of one direction; None where it has no limit. A cell without one is none in it.

        Cells that are ``apart`` are none in either: what their clients share is no part of the way.
        """
        rates = self.up if up else self.down
        is_none = [rate == inf or cell in apart for cell, rate in enumerate(rates)]
        numbers = np.array([*(NO_CELL if none else cell for cell, none in enumerate(is_none)), NO_CELL])
        of = numbers.astype(np.int32)[self.of]
        return SharedLinks(of, rates, self.names) if (of != NO_CELL).any() else None

    def latencies_s(self) -> NDArray[np.float64]:
        """Return the latency that its cell adds to each client's, s, ``[K]``."""
        return np.array([*self.latency_s, 0.0])[self.of]

    @property
    def is_traced(self) -> bool:
        """Whether the capacity of any follows a trace."""
        return any(is_traced(self.shared(up=up)) for up in (False, True))

    def without_traces(self) -> Cells:
        """Return cells that are constant at the mean of their traces."""
        return replace(self, up=[*map(mean_bps, self.up)], down=[*map(mean_bps, self.down)])

    def labels(self) -> NDArray[np.object_]:
        """Return the name of each client's cell, ``[K]``; None for none."""
        return np.array([*self.names, None], object)[self.of]


class Population(Protocol):
    """The clients of a fleet, by group and label."""

    @property
    def names(self) -> Sequence[str]:
        """The groups and labels that there are."""

    def __len__(self) -> int: ...

    def clients_of(self, groups: Collection[str], /) -> NDArray[np.bool_] | None:
        """Return which clients are of some groups or labels, ``[K]``; None for all."""


def members(
    configs: Sequence[CellConfig], fleet: Population, key: Key
) -> tuple[NDArray[np.int32], list[Fault]]:
    """Return the number of each client's cell, int32 ``[K]``, and what is wrong with the cells."""
    of, faults = np.full(len(fleet), NO_CELL, np.int32), list(_misnamed(configs, fleet.names))
    alike: dict[frozenset[str], list[int]] = {}
    for number, config in enumerate(configs):
        alike.setdefault(frozenset(config.groups), []).append(number)
    for groups, numbers in alike.items():
        mask = fleet.clients_of(groups)
        pool = np.arange(len(fleet)) if mask is None else np.flatnonzero(mask)
        shares = np.array([configs[number].share for number in numbers])
        share = float(shares.sum())
        if share > 1 + _SHARES_OFF:
            problem = f"shares of cells of the same clients add up to {share:g}, and a client is in one cell"
            faults.append(Fault(f"cell.{numbers[-1]}.share", problem, "write shares of 1 or less together"))
            continue
        if (taken := pool[of[pool] != NO_CELL]).size:
            other = quoted(configs[of.item(taken[0])].name)
            problem = f"client {taken[0]} is in cell {other} already, and a client is in one cell"
            mend = "name groups whose clients are in no other cell, or the same groups with shares"
            faults.append(Fault(f"cell.{numbers[0]}.groups", problem, mend))
            continue
        counts = apportion(len(pool), np.array([*shares, max(0.0, 1 - share)]))[:-1]
        if counts[0] < len(pool):
            pool = key.child("members", *sorted(groups)).numpy().permutation(pool)
        for number, its in zip(numbers, np.split(pool, np.cumsum(counts))[:-1], strict=True):
            of[its] = number
            if not len(its) and set(groups) <= set(fleet.names):
                problem = f"it has no client: its share of {len(pool)} clients comes to none"
                faults.append(Fault(f"cell.{number}.share", problem, "write a larger share"))
    return of, faults


def _misnamed(configs: Sequence[CellConfig], names: Sequence[str]) -> Iterator[Fault]:
    cells = set[str]()
    for number, config in enumerate(configs):
        if config.name in cells:
            problem = f"two cells are called {quoted(config.name)}"
            yield Fault(f"cell.{number}.name", problem, "give each its own name")
        cells.add(config.name)
        for name in config.groups:
            if name not in names:
                problem = f"no client is of a group or label {quoted(name)}"
                yield Fault(f"cell.{number}.groups", problem, nearest(name, names))
