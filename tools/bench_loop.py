"""The virtual-time loop against SimPy: processor time of an event, memory of a waiting task."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import simpy
from bench_harness import Bench, main, processor_s

from fedsim import clock

PROCESSES, SLEEPS, WAITING_TASKS = 1_000, 100, 10_000
MAX_RATIO, MAX_BYTES_PER_TASK = 5.0, 2_048


def delays_s(count: int) -> list[float]:
    """Return so many delays that differ by up to a tenth."""
    return [1.0 + index / count / 10 for index in range(count)]


def simpy_s() -> float:
    """Return the time of the processes on SimPy, s."""
    environment = simpy.Environment()

    def process(delay_s: float) -> Generator[Any, Any, None]:
        for _ in range(SLEEPS):
            yield environment.timeout(delay_s)

    for delay_s in delays_s(PROCESSES):
        environment.process(process(delay_s))
    return processor_s(environment.run)


def tasks_s(
    sleep: Callable[[float], Awaitable[None]], num_tasks: int = PROCESSES, sleeps: int = SLEEPS
) -> float:
    """Return the time of tasks that sleep on virtual time, s."""

    async def process(delay_s: float) -> None:
        for _ in range(sleeps):
            await sleep(delay_s)

    async def run_all() -> float:
        tasks = [asyncio.create_task(process(delay_s)) for delay_s in delays_s(num_tasks)]
        started = time.process_time()
        await asyncio.gather(*tasks)
        return time.process_time() - started

    return clock.run(run_all())


def callbacks_s() -> float:
    """Return the time of as many callbacks that schedule themselves again, s."""
    loop = clock.VirtualTimeLoop()

    def step(delay_ns: int, left: int) -> None:
        if left:
            loop.call_at_ns(loop.now_ns + delay_ns, step, delay_ns, left - 1)

    for delay_s in delays_s(PROCESSES):
        step(round(delay_s * 1e9), SLEEPS)
    loop.call_at(SLEEPS * 2.0, loop.stop)
    elapsed_s = processor_s(loop.run_forever)
    loop.close()
    return elapsed_s


def bytes_per_waiting_task() -> float:
    """Return the memory of a sleeping task, with its timer."""

    async def wait() -> float:
        gc.collect()
        tracemalloc.start()
        tasks = [asyncio.create_task(asyncio.sleep(1_000.0 + index)) for index in range(WAITING_TASKS)]
        await clock.sleep_for(1.0)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for task in tasks:
            task.cancel()
        return used / WAITING_TASKS

    return clock.run(wait())


def measure(bench: Bench) -> None:
    """Time SimPy and three ways to wait on virtual time."""
    times = bench.in_turns(
        {
            "SimPy timeout": simpy_s,
            "callback": callbacks_s,
            "clock.sleep_for": lambda: tasks_s(clock.sleep_for),
            "asyncio.sleep": lambda: tasks_s(asyncio.sleep),
        }
    )
    for name, times_s in times.items():
        bench.show(name, [1e6 * each / PROCESSES / SLEEPS for each in times_s], "us/event")
    base = times.pop("SimPy timeout")
    for name, times_s in times.items():
        bench.ratio(f"{name} / SimPy timeout", times_s, base, at_most=MAX_RATIO)
    bench.show("waiting task", bytes_per_waiting_task(), "bytes", at_most=MAX_BYTES_PER_TASK)


if __name__ == "__main__":
    main(__doc__, measure)
