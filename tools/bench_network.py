"""The fluid network: the time of a flow's event, and agreement with queueing theory.

1. An event of a flow (it begins, or it ends) with 100,000 others under way, against one ``await sleep`` with
   as many tasks asleep; and with these flows in 1,000 cells, of which some are full, against those without.
2. Mean sojourn of 200,000 flows against M/M/1 processor sharing, and against M/M/4, where equal caps make
   four servers of the link.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from bench_harness import Bench, main
from bench_loop import tasks_s

from fedsim import clock
from fedsim.clock import call_after, now_s
from fedsim.network import Links, Parcel
from fedsim.network.cells import SharedLinks
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.params import Array
from fedsim.rng import Key

MAX_RATIO, MAX_CELLS_RATIO, MAX_ERROR = 3.0, 3.0, 0.02
KEY = Key.root(0).child("bench_network")
MM1_S = 1 / (1.0 - 0.7)
"""Mean sojourn in M/M/1 processor sharing, 0.7 arrivals for 1 service a second."""
MM4_S = 1.3572
"""Mean sojourn in M/M/4, 2.8 arrivals for 4 x 1 services a second (Erlang's formula)."""


def listener(arrived: Callable[[Parcel], object]) -> Any:
    """Return what calls a function when its parcel has arrived; these networks lose nothing."""
    return SimpleNamespace(left=lambda: None, arrived=arrived)


def star(num_clients: int, server_bps: float, client_bps: float | Array, latency_s: float = 0.0) -> Links:
    """Return links that are the same in both directions."""
    clients = np.broadcast_to(np.asarray(client_bps, dtype=float), num_clients)
    return Links(clients, clients, np.full(num_clients, latency_s), server_bps, server_bps, 0.0)


def flow_event_s(concurrent: int, events: int, num_cells: int = 0) -> float:
    """Return the processor time of a flow's event while as many flows begin as end; most are capped.

    Cells have as many clients each, and together as much capacity as the server.
    """
    generator = KEY.child("cost").numpy()
    caps_bps = 20e6 * generator.lognormal(0.0, 0.8, concurrent)
    sizes = generator.exponential(1e7, 4096).astype(int).tolist()

    server_bps = 0.6 * float(caps_bps.sum())
    links = star(concurrent, server_bps, caps_bps, 0.01)
    if num_cells:
        of = (np.arange(concurrent) % num_cells).astype(np.int32)
        names = [str(number) for number in range(num_cells)]
        links = replace(links, shared_down=SharedLinks(of, [server_bps / num_cells] * num_cells, names))

    async def run_flows() -> float:
        carrier = FLUID(FLUID.Config()).carrier(links)
        done = asyncio.get_running_loop().create_future()
        ended = 0

        def again(parcel: Parcel) -> None:
            nonlocal ended
            ended += 1
            if 2 * ended == events:
                done.set_result(None)
            carrier.carry(Parcel(-1, parcel.receiver, sizes[ended % 4096], None), mine)

        mine = listener(again)
        for client in range(concurrent):
            carrier.carry(Parcel(-1, client, sizes[client % 4096], None), mine)
        await clock.sleep_for(0.1)
        ended = 0
        started = time.process_time()
        await done
        return (time.process_time() - started) / events

    return clock.run(run_flows())


def sleep_event_s(num_tasks: int, sleeps: int) -> float:
    """Return the processor time of one ``await asyncio.sleep`` among tasks that do the same."""
    return tasks_s(asyncio.sleep, num_tasks, sleeps) / num_tasks / sleeps


def mean_sojourn_s(links: Links, num_flows: int, arrivals_hz: float, key: Key) -> float:
    """Return the mean time of a flow: Poisson arrivals, exponential sizes of 1 Gbit, one flow a client."""
    generator = key.numpy()
    gaps_s = generator.exponential(1 / arrivals_hz, num_flows)
    sizes = (generator.exponential(1e9 / 8, num_flows)).round().astype(int)
    sojourns_s: list[float] = []

    async def run_flows() -> None:
        carrier = FLUID(FLUID.Config()).carrier(links)
        done = asyncio.get_running_loop().create_future()

        def start(index: int) -> None:
            carrier.carry(Parcel(-1, index, int(sizes[index]), now_s()), listener(end))
            if index + 1 < num_flows:
                call_after(float(gaps_s[index + 1]), start, index + 1)

        def end(parcel: Parcel) -> None:
            sojourns_s.append(now_s() - parcel.payload)
            if len(sojourns_s) == num_flows:
                done.set_result(None)

        start(0)
        await done

    clock.run(run_flows())
    return float(np.mean(sojourns_s))


def measure(bench: Bench) -> None:
    """Measure time and agreement."""
    times = bench.in_turns(
        {
            "flow among 100,000": lambda: flow_event_s(100_000, 100_000),
            "sleep among 100,000": lambda: sleep_event_s(100_000, 3),
            "flow among 100,000 in cells": lambda: flow_event_s(100_000, 100_000, 1_000),
            "flow among 1,000": lambda: flow_event_s(1_000, 100_000),
            "sleep among 1,000": lambda: sleep_event_s(1_000, 100),
        }
    )
    for name, times_s in times.items():
        bench.show(name, [1e6 * each for each in times_s], "us/event")
    for among, limit in (("among 100,000", MAX_RATIO), ("among 1,000", None)):
        flows_s, sleeps_s = times[f"flow {among}"], times[f"sleep {among}"]
        bench.ratio(f"flow / sleep {among}", flows_s, sleeps_s, at_most=limit)
    cells_s, flows_s = times["flow among 100,000 in cells"], times["flow among 100,000"]
    bench.ratio("in 1,000 cells / without", cells_s, flows_s, at_most=MAX_CELLS_RATIO)

    flows = bench.options.flows
    queues = (
        ("M/M/1 processor sharing", star(flows, 1e9, 1e9), 0.7, MM1_S),
        ("M/M/4", star(flows, 4e9, 1e9), 2.8, MM4_S),
    )
    for name, links, arrivals_hz, theory_s in queues:
        error = mean_sojourn_s(links, flows, arrivals_hz, KEY.child(name)) / theory_s - 1
        bench.show(f"{name}: error of the mean sojourn", abs(error), "", at_most=MAX_ERROR)


if __name__ == "__main__":
    main(__doc__, measure, flows={"type": int, "default": 200_000, "help": "of each queueing run"})
