"""Measure the fluid network: what a flow costs, and whether it agrees with queueing theory.

1. An event of a flow (it begins, or it ends) with 100,000 others under way, in CPU time against one
   ``await sleep`` with as many tasks asleep. Limit: 3 times. Shown too: both among 1,000.
2. Mean sojourn of 200,000 flows against M/M/1 processor sharing, and against M/M/m where equal caps make m
   servers of the link. Limit: 2 %.
3. 1,000 clients fetch 10 MB and send them back over a server's link of 1 Gbit/s; a round closes at the first
   769. Limit: with shared links it takes at least twice as long as with naive ones.

With ``--check`` the exit status is 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from fedsim import clock
from fedsim.clock import call_after, now_s
from fedsim.network import Carrier, Links, Parcel
from fedsim.network.fluid import PLUGIN as FLUID
from fedsim.network.naive import PLUGIN as NAIVE
from fedsim.params import Array
from fedsim.rng import Key

MAX_RATIO, MAX_ERROR, MIN_SLOWDOWN = 3.0, 0.02, 2.0
KEY = Key.root(0).child("bench_network")


class Then:
    """Calls a function when its parcel has arrived."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Parcel], object]) -> None:
        self._then = then

    def left(self) -> None:
        """Nothing waits for it."""

    def arrived(self, parcel: Parcel) -> None:
        """Go on."""
        self._then(parcel)

    def lost(self, cause: str) -> None:
        """These networks lose nothing."""
        raise AssertionError(cause)


def star(num_clients: int, server_bps: float, client_bps: float | Array, latency_s: float = 0.0) -> Links:
    """Return links that are the same in both directions."""
    clients = np.broadcast_to(np.asarray(client_bps, dtype=float), num_clients)
    return Links(clients, clients, np.full(num_clients, latency_s), server_bps, server_bps, 0.0)


# ---- 1. cost


def flow_event_seconds(concurrent: int, events: int) -> float:
    """Return the CPU time of a flow's event while as many flows begin as end; most, not all, are capped."""
    generator = KEY.child("cost").numpy()
    caps_bps = 20e6 * generator.lognormal(0.0, 0.8, concurrent)
    sizes = generator.exponential(1e7, 4096).astype(int).tolist()

    async def main() -> float:
        carrier = FLUID(FLUID.Config()).carrier(star(concurrent, 0.6 * caps_bps.sum(), caps_bps, 0.01))
        done = asyncio.get_running_loop().create_future()
        ended = 0

        def again(parcel: Parcel) -> None:
            nonlocal ended
            ended += 1
            if 2 * ended == events:
                done.set_result(None)
            carrier.carry(Parcel(-1, parcel.receiver, sizes[ended % 4096], None), listener)

        listener = Then(again)
        for client in range(concurrent):
            carrier.carry(Parcel(-1, client, sizes[client % 4096], None), listener)
        await clock.sleep_for(0.1)
        ended = 0
        began = time.process_time()
        await done
        return (time.process_time() - began) / events

    return clock.run(main())


def sleep_event_seconds(tasks: int, sleeps: int) -> float:
    """Return the CPU time of one ``await asyncio.sleep`` among so many tasks that do the same."""

    async def sleeper(delay_s: float) -> None:
        for _ in range(sleeps):
            await asyncio.sleep(delay_s)

    async def main() -> float:
        sleepers = [asyncio.create_task(sleeper(1.0 + index / tasks / 10)) for index in range(tasks)]
        began = time.process_time()
        await asyncio.gather(*sleepers)
        return (time.process_time() - began) / tasks / sleeps

    return clock.run(main())


# ---- 2. queueing theory


def mean_sojourn_s(links: Links, flows: int, arrivals_hz: float, mean_bits: float, key: Key) -> float:
    """Return the mean time that a flow takes: Poisson arrivals, exponential sizes, one flow to a client."""
    generator = key.numpy()
    gaps_s = generator.exponential(1 / arrivals_hz, flows)
    # Whole bytes, but so many that the rounding is nothing.
    sizes = (generator.exponential(mean_bits / 8, flows)).round().astype(int)
    sojourn_s = 0.0

    async def main() -> None:
        carrier = FLUID(FLUID.Config()).carrier(links)
        done = asyncio.get_running_loop().create_future()
        ended = 0

        def start(index: int) -> None:
            carrier.carry(Parcel(-1, index, int(sizes[index]), now_s()), Then(end))
            if index + 1 < flows:
                call_after(float(gaps_s[index + 1]), start, index + 1)

        def end(parcel: Parcel) -> None:
            nonlocal ended, sojourn_s
            ended += 1
            sojourn_s += now_s() - parcel.payload
            if ended == flows:
                done.set_result(None)

        start(0)
        await done

    clock.run(main())
    return sojourn_s / flows


def processor_sharing_s(arrivals_hz: float, services_hz: float) -> float:
    """Return the mean sojourn in M/M/1 processor sharing."""
    return 1 / (services_hz - arrivals_hz)


def erlang_s(arrivals_hz: float, services_hz: float, servers: int) -> float:
    """Return the mean sojourn in M/M/m."""
    load = arrivals_hz / services_hz
    waiting = load**servers / math.factorial(servers) * servers / (servers - load)
    idle = sum(load**busy / math.factorial(busy) for busy in range(servers))
    return waiting / (idle + waiting) / (servers * services_hz - arrivals_hz) + 1 / services_hz


# ---- 3. a busy server


def finishers_s(
    carrier_of: Callable[[Links], Carrier], server_bps: float, clients: int = 1_000
) -> list[float]:
    """Return when each client's update is in, sorted: 10 MB down, training, 10 MB up."""
    generator = KEY.child("round").numpy()
    down_bps = 20e6 * generator.lognormal(0.0, 0.8, clients)
    compute_s = (30.0 * generator.lognormal(0.0, 0.6, clients)).tolist()
    links = Links(down_bps / 2, down_bps, np.zeros(clients), server_bps, server_bps, 0.0)
    finished_s = list[float]()

    async def main() -> None:
        carrier = carrier_of(links)
        done = asyncio.get_running_loop().create_future()

        def train(parcel: Parcel) -> None:
            call_after(compute_s[parcel.receiver], upload, parcel.receiver)

        def upload(client: int) -> None:
            carrier.carry(Parcel(client, -1, 10**7, None), Then(finish))

        def finish(_: Parcel) -> None:
            finished_s.append(now_s())
            if len(finished_s) == clients:
                done.set_result(None)

        for client in range(clients):
            carrier.carry(Parcel(-1, client, 10**7, None), Then(train))
        await done

    clock.run(main())
    return finished_s


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a limit is missed")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median counts")
    parser.add_argument("--flows", type=int, default=200_000, help="flows of each queueing run")
    arguments = parser.parse_args()
    missed = list[str]()

    measures: dict[str, Callable[[], float]] = {
        "flow event among 100,000": lambda: flow_event_seconds(100_000, 100_000),
        "await sleep among 100,000": lambda: sleep_event_seconds(100_000, 3),
        "flow event among 1,000": lambda: flow_event_seconds(1_000, 100_000),
        "await sleep among 1,000": lambda: sleep_event_seconds(1_000, 100),
    }
    runs: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(arguments.repeats):
        for name, measure in measures.items():
            gc.collect()
            runs[name].append(measure())
    flow_s, sleep_s, few_flows_s, few_sleeps_s = map(median, runs.values())
    for name, times_s in runs.items():
        print(f"{name:26} {median(times_s) * 1e6:6.2f} us")
    print(
        f"ratio {flow_s / sleep_s:.2f} among 100,000, {few_flows_s / few_sleeps_s:.2f} among 1,000; "
        f"{flow_s / few_sleeps_s:.2f} for a flow among 100,000 against a sleep among 1,000"
    )
    if flow_s > MAX_RATIO * sleep_s:
        missed.append(f"a flow event costs {flow_s / sleep_s:.2f} > {MAX_RATIO} sleeps")

    flows = arguments.flows
    queues = [
        ("M/M/1-PS at load 0.7", star(flows, 1e9, 1e9), 0.7, processor_sharing_s(0.7, 1.0)),
        ("M/M/4 at load 0.7", star(flows, 4e9, 1e9), 2.8, erlang_s(2.8, 1.0, 4)),
    ]
    for name, links, arrivals_hz, theory_s in queues:
        began = time.process_time()
        measured_s = mean_sojourn_s(links, flows, arrivals_hz, 1e9, KEY.child(name))
        error = measured_s / theory_s - 1
        per_flow = (time.process_time() - began) / flows
        print(
            f"{name}: {measured_s:.4f} s, theory {theory_s:.4f} s: {error:+.2%}, {per_flow * 1e6:.0f} us/flow"
        )
        if abs(error) > MAX_ERROR:
            missed.append(f"{name} is off by {error:+.2%}, limit {MAX_ERROR:.0%}")

    for server_bps, label in ((1e9, "1 Gbit/s"), (1e10, "10 Gbit/s")):
        naive_s = finishers_s(NAIVE(NAIVE.Config()).carrier, server_bps)
        fluid_s = finishers_s(FLUID(FLUID.Config()).carrier, server_bps)
        slowdown = fluid_s[768] / naive_s[768]
        print(
            f"server {label}: 769th and median finisher naive {naive_s[768]:.0f} and {naive_s[499]:.0f} s, "
            f"shared {fluid_s[768]:.0f} and {fluid_s[499]:.0f} s: {slowdown:.2f} x"
        )
        if server_bps == 1e9 and slowdown < MIN_SLOWDOWN:
            missed.append(f"sharing takes {slowdown:.2f} < {MIN_SLOWDOWN} times as long")

    for limit in missed:
        print(f"missed: {limit}")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
