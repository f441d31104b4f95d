"""The energy of a run: what each device drew in each phase of its dispatches.

It is a function of the run's finished phases and frames, and of what devices draw
(:mod:`fedsim.fleet.power`): no event depends on it, and any finished run has it
(:func:`fedsim.report.run_energy.run_energy`). Each client's energy is the integral of its power:

- *compute* while a dispatch computes;
- *receive* and *transmit* while one downloads or uploads, and for each Mbit of its frames, with what
  protocols add, when they are put on the link;
- *tail* from the end of a transfer to the next one, or until the tail or the run ends; it belongs to the
  transfer before it;
- *idle* while a dispatch waits and no other of the client is at work.

Transfers of a client that overlap count once, for the one that began first; so does waiting. What stands
still while its client is away costs nothing. Nor does a client that is gone from a dispatch for good, since
it has dropped out, crashed or run empty: the tail of its radio and the waiting of the dispatch end then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.fleet import Fleet
from fedsim.fleet.power import POWERS, EnergyConfig
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_phases import COMPUTE, DOWNLOAD, UPLOAD, WAITING
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.run import RunResult
from fedsim.units import format_quantity

PARTS = ("compute_j", "receive_j", "transmit_j", "tail_j", "idle_j")
"""Columns of energy."""

MODEL = "an estimate: the power of each phase, a constant of the device, times how long the phase lasted"

_POWER_OF = {"compute": "compute_power", "receive": "receive_power", "transmit": "transmit_power"}
_POWER_OF |= {"tail": "tail_power", "idle": "idle_power"}
_BITS_OF = {"receive": "receive_per_mbit_s", "transmit": "transmit_per_mbit_s"}


@dataclass(frozen=True, slots=True, eq=False)
class Energy:
    """The energy of a run.

    Attributes:
        config: What it costs.
        joules: For each of :data:`PARTS`, that of each dispatch, J, ``[dispatches]``.
        ended_s: When the run ended.
    """

    config: EnergyConfig
    joules: Columns
    ended_s: float

    def sums(self, groups: Array, num_groups: int) -> dict[str, Array]:
        """Return the energy of each group of dispatches by part, J, given the group of each dispatch."""
        return {
            name: np.bincount(groups, joules, minlength=num_groups) for name, joules in self.joules.items()
        }

    def summary(self) -> dict[str, float | None]:
        """Return the totals: by part, of all clients, of the server, J, and the CO2 of all, g."""
        parts = {name: float(joules.sum()) for name, joules in self.joules.items()}
        clients_j, server_j = sum(parts.values()), self.config.server_power_w * self.ended_s
        costs = {"clients_j": clients_j, "server_j": server_j, "total_j": clients_j + server_j}
        return {**parts, **costs, "carbon_g": self.carbon_g(costs["total_j"])}

    def carbon_g(self, joules: Any) -> Any:
        """Return the CO2 of energy, g; None where it is not known."""
        intensity = self.config.carbon_intensity
        return None if intensity is None else joules / 3.6e6 * intensity

    def by_round(self, of_dispatch: Array, ended_at_s: Array) -> dict[str, Array]:
        """Return the columns of ``rounds``, given the row of each dispatch and the end of each row.

        The server's energy is that from one end to the next; what comes after the last end is the last row's.
        """
        columns = self.sums(of_dispatch, len(ended_at_s))
        passed_s = np.diff([*ended_at_s[:-1], self.ended_s], prepend=0.0)
        columns["server_j"] = self.config.server_power_w * passed_s
        if self.config.carbon_intensity is not None:
            columns["carbon_g"] = self.carbon_g(sum(columns.values()))
        return columns


def energy_of(parts: Parts, result: RunResult) -> Energy | None:
    """Return the energy of a run that has been done; None where it is not wanted."""
    if parts.energy is None:
        return None
    ended_ns = round(result.simulated_s * 1e9)
    return estimated(parts.fleet, parts.energy, result.dispatches, result.ledger.columns(), ended_ns)


def estimated(
    fleet: Fleet, config: EnergyConfig, dispatches: DispatchTable, frames: Columns, ended_ns: int
) -> Energy:
    """Return the energy of a run.

    Args:
        fleet: The devices.
        config: What energy costs.
        dispatches: The run's dispatches, with their spans.
        frames: The columns of ``messages``.
        ended_ns: When the run ended.
    """
    client = dispatches.client()
    drawn = {name: fleet.values(name)[client] for name in POWERS}
    tail_ns = np.rint(drawn["radio_tail"] * 1e9).astype(np.int64)
    gone_ns = np.full(len(client), ended_ns)
    gone_ns[list(dispatches.gone_ns)] = list(dispatches.gone_ns.values())
    times_ns = powered_ns(dispatches.spans, client, tail_ns, gone_ns, ended_ns)
    joules = {f"{part}_j": drawn[_POWER_OF[part]] * (ns / 1e9) for part, ns in times_ns.items()}
    row = dispatches.rows_of(frames["client"], frames["dispatch"])
    mbit = (frames["bytes"] + frames["overhead"]) * 8 / 1e6
    for part, quantity in _BITS_OF.items():
        its = frames["up"] == (part == "transmit")
        joules[f"{part}_j"] += drawn[quantity] * np.bincount(row[its], mbit[its], minlength=len(client))
    return Energy(config, joules, ended_ns / 1e9)


def powered_ns(
    spans: Array, client: Array, tail_ns: Array, gone_ns: Array, ended_ns: int
) -> Mapping[str, Array]:
    """Return how long each dispatch draws each power, ns, int64 ``[dispatches]`` by part.

    Args:
        spans: Those of :class:`fedsim.runtime.records.dispatch_phases.PhaseLog`.
        client: The client of each dispatch.
        tail_ns: How long the tail of its radio is.
        gone_ns: When the client was gone from it for good; the end of the run if it never was.
        ended_ns: When the run ended.
    """
    row, phase, began_ns, until_ns = spans[:, :4].T
    of = client[row]

    def total(rows: Array, lasted_ns: Array) -> Array:
        sums = np.zeros(len(client), np.int64)
        np.add.at(sums, rows, lasted_ns)
        return sums

    computes = phase == COMPUTE
    result = {"compute": total(row[computes], (until_ns - began_ns)[computes])}
    transfers = _Ordered(of, began_ns, until_ns, (phase == DOWNLOAD) | (phase == UPLOAD))
    own_ns, rows = transfers.until_ns - transfers.since_ns, row[transfers.place]
    for part, its in (("receive", DOWNLOAD), ("transmit", UPLOAD)):
        mine = phase[transfers.place] == its
        result[part] = total(rows[mine], own_ns[mine])
    ends, next_ns, its_row = transfers.gaps(ended_ns)
    before = row[its_row]
    is_gone = gone_ns < ended_ns
    off_ns = _next_ns(client[is_gone], gone_ns[is_gone], client[before], ends, ended_ns)
    result["tail"] = total(before, np.minimum(tail_ns[before], np.minimum(next_ns, off_ns) - ends))
    work = _Ordered(of, began_ns, until_ns, (phase >= DOWNLOAD) & (phase <= COMPUTE))
    waits = _Ordered(of, began_ns, np.minimum(until_ns, np.maximum(gone_ns[row], began_ns)), phase == WAITING)
    alone_ns = (waits.until_ns - waits.since_ns) - work.covered_ns(waits.of, waits.since_ns, waits.until_ns)
    result["idle"] = total(row[waits.place], alone_ns)
    return result


def _next_ns(of: Array, at_ns: Array, clients: Array, since_ns: Array, otherwise_ns: int) -> Array:
    """Return the first of some instants of each client that is not before another one."""
    instants = np.unique(np.concatenate([at_ns, since_ns]))
    base, order = len(instants), np.lexsort((at_ns, of))
    of, at_ns = np.append(of[order], -1), np.append(at_ns[order], otherwise_ns)
    keys = of[:-1] * base + np.searchsorted(instants, at_ns[:-1])
    place = np.searchsorted(keys, clients * base + np.searchsorted(instants, since_ns))
    return np.where(of[place] == clients, at_ns[place], otherwise_ns)


class _Ordered:
    """Some spans in the order of clients and of their begins, each without what spans before it cover.

    Attributes:
        place: The place of each among all spans, ``[n]``.
        of: Its client.
        since_ns: Where what it adds begins: at the end of all before it, or at its own begin.
        until_ns: Where that ends; not before ``since_ns``.
    """

    def __init__(self, of: Array, began_ns: Array, until_ns: Array, which: Array) -> None:
        place = np.flatnonzero(which)
        self.place = place = place[np.lexsort((place, began_ns[place], of[place]))]
        self.of = of[place]
        began_ns, until_ns = began_ns[place], until_ns[place]
        # Instants become ranks, so that client and instant are one number whose running maximum begins
        # anew with each client.
        instants, ranks = np.unique(until_ns, return_inverse=True)
        base = len(instants)
        reach = np.maximum.accumulate(self.of * base + ranks)
        self._reach_ns = instants[reach % base] if base else until_ns
        self._is_first = np.diff(self.of, prepend=-1) != 0
        before_ns = np.where(self._is_first, 0, np.roll(self._reach_ns, 1))
        self.since_ns = np.maximum(began_ns, before_ns)
        self.until_ns = np.maximum(until_ns, self.since_ns)
        self._began_ns = began_ns
        reaches = until_ns == self._reach_ns
        self._last = np.maximum.accumulate(np.where(reaches, np.arange(len(place)), 0))

    def gaps(self, ended_ns: int) -> tuple[Array, Array, Array]:
        """Return the times of no span after one: begin, end, and the place of the span that ended last."""
        is_last = np.append(self._is_first[1:], True)[: len(self.of)]
        next_ns = np.where(is_last, ended_ns, np.roll(self._began_ns, -1))
        there = next_ns > self._reach_ns
        return self._reach_ns[there], next_ns[there], self.place[self._last[there]]

    def covered_ns(self, of: Array, since_ns: Array, until_ns: Array) -> Array:
        """Return how much of other times, each of a client, the spans cover."""
        instants = np.unique(np.concatenate([self.since_ns, since_ns, until_ns]))
        base, lasted_ns = len(instants), self.until_ns - self.since_ns
        keys = self.of * base + np.searchsorted(instants, self.since_ns)
        before_ns = np.concatenate([[0], np.cumsum(lasted_ns)])

        def covered_until(at_ns: Array) -> Array:
            """Return what is covered before an instant of a client, that of clients before it included."""
            place = np.searchsorted(keys, of * base + np.searchsorted(instants, at_ns), "right") - 1
            there = np.maximum(place, 0)
            if not len(self.of):
                return np.zeros(len(at_ns), np.int64)
            is_own = (place >= 0) & (self.of[there] == of)
            passed_ns = np.where(is_own, np.minimum(lasted_ns[there], at_ns - self.since_ns[there]), 0)
            return np.where(is_own, before_ns[there] + passed_ns, before_ns[place + 1])

        covered: Array = covered_until(until_ns) - covered_until(since_ns)
        return covered


def constants(fleet: Fleet, config: EnergyConfig) -> dict[str, Any]:
    """Return what energy was computed with, for ``run.json``: the powers of each group that are not zero."""
    groups = {}
    for group in fleet.groups:
        columns = {name: np.atleast_1d(group.columns[name]).astype(float) for name in POWERS}
        groups[group.label] = {
            name: " to ".join(
                dict.fromkeys(format_quantity(end, POWERS[name].spread.dimension or "power") for end in ends)
            )
            for name, values in columns.items()
            if (ends := (values.min(), values.max()))[1] > 0
        }
    return {"model": MODEL, **config.model_dump(mode="json", exclude_none=True), "groups": groups}
