"""When parcels arrive that flow over the server's link without getting in each other's way.

Where the links of all clients that transfer at one time fit into the server's, each parcel flows at the rate
of its client's link from its first bit to its last one. Then all arrivals are computed by arrays, with the
arithmetic of :class:`fedsim.network.max_min_star.MaxMinStar`, to the nanosecond.
"""

from __future__ import annotations

import numpy as np

from fedsim.network.base import Arrivals
from fedsim.network.cells import NO_CELL, SharedLinks, mean_bps
from fedsim.network.max_min_star import noise_s
from fedsim.params import Array

_NEAR_NS = 1_000
"""Nearer to each other, rounding might decide which of two instants is the earlier one."""

_FAR_NS = 10**15
"""Float seconds from an origin are good to a nanosecond up to here."""

_FITTING = 1 - 1e-9
"""Share of the server's link into which sums of rates fit, however they are rounded."""


def fit_into_cells(clients: Array, links_bps: Array, shared: SharedLinks) -> bool:
    """Whether each cell has room for the links of all these clients at one time."""
    cells = shared.of[clients]
    its = cells != NO_CELL
    loads_bps = np.bincount(cells[its], links_bps[its], len(shared.rates))
    return all(
        load_bps <= mean_bps(rate) * _FITTING for load_bps, rate in zip(loads_bps, shared.rates, strict=True)
    )


def uncontended_arrivals(
    begins_ns: Array, num_bytes: Array, links_bps: Array, capacity_bps: float
) -> Arrivals | None:
    """Return when parcels arrive; None where they may share the link, or where rounding decides.

    Args:
        begins_ns: When each parcel begins to flow, int64 ``[n]``, at least one.
        num_bytes: Its length, int64 ``[n]``.
        links_bps: The rate of its client's link, float64 ``[n]``.
        capacity_bps: The rate of the server's link.
    """
    fitting_bps = capacity_bps * _FITTING
    if not (links_bps.min() > 0 and links_bps.max() < fitting_bps and num_bytes.min() > 0):
        return None
    order = np.argsort(begins_ns, kind="stable")
    begins_ns, rates_bps = begins_ns[order], links_bps[order]
    flow_s = 8.0 * num_bytes[order] / rates_bps
    about_ns = begins_ns + np.minimum(flow_s * 1e9, 2.0 * _FAR_NS).astype(np.int64)
    idle_ns = begins_ns[1:] - np.maximum.accumulate(about_ns)[:-1]
    if about_ns.max() - begins_ns[0] > _FAR_NS or (np.abs(idle_ns) < _NEAR_NS).any():
        return None
    # The solver counts seconds from the instant at which the link was idle last.
    is_first = np.concatenate([[True], idle_ns > 0])
    origins_ns = begins_ns[is_first][np.cumsum(is_first) - 1]
    ends_s = (begins_ns - origins_ns) / 1e9 + flow_s
    ends_ns = origins_ns + np.ceil((ends_s - noise_s(ends_s)) * 1e9).astype(np.int64)
    by_end = np.lexsort((order, ends_ns))
    at_ns, origins_ns, ends_s = ends_ns[by_end], origins_ns[by_end], ends_s[by_end]
    if rates_bps.sum() > fitting_bps:
        # What flows when each begins: all that have begun by then, without those that have ended before.
        gone_bps = np.concatenate([[0.0], rates_bps[by_end].cumsum()])
        begun_bps = rates_bps.cumsum()[begins_ns.searchsorted(begins_ns, "right") - 1]
        if (begun_bps - gone_bps[at_ns.searchsorted(begins_ns)]).max() > fitting_bps:
            return None
    is_later = np.concatenate([[True], at_ns[1:] > at_ns[:-1]])
    first = np.maximum.accumulate(np.where(is_later, np.arange(len(at_ns)), 0))
    # A flow ends at the first end, its own or another's, that is not before it but for rounding.
    before_ns = np.where(first > 0, at_ns[first - 1], -1)
    now_s, before_s = (at_ns - origins_ns) / 1e9, (before_ns - origins_ns) / 1e9
    if (ends_s > now_s + noise_s(now_s)).any() or (ends_s <= before_s + noise_s(before_s)).any():
        return None
    return Arrivals(at_ns, order[by_end], np.arange(len(at_ns)) - first)
