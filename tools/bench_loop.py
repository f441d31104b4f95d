"""Measure the virtual-time loop against SimPy: cost per event, events per second, bytes per waiting task.

All figures are medians of several runs in one process, alternating between the two, so that a busy machine
slows both. CPU time, not wall time. With ``--check`` the exit status is 1 when a limit is missed.
"""

import argparse
import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Generator
from statistics import median
from typing import Any

import simpy

from fedsim import clock

PROCESSES, SLEEPS, WAITING_TASKS = 1_000, 100, 10_000
MAX_RATIO, MAX_BYTES_PER_TASK = 5.0, 2_048


def simpy_seconds() -> float:
    """Run the processes on SimPy and return the CPU time."""
    environment = simpy.Environment()

    def process(delay: float) -> Generator[Any, Any, None]:
        for _ in range(SLEEPS):
            yield environment.timeout(delay)

    for index in range(PROCESSES):
        environment.process(process(_delay(index)))
    started = time.process_time()
    environment.run()
    return time.process_time() - started


def fedsim_seconds(sleep: Callable[[float], Awaitable[None]]) -> float:
    """Run the same processes as tasks on virtual time, sleeping by ``sleep``, and return the CPU time."""

    async def process(delay: float) -> None:
        for _ in range(SLEEPS):
            await sleep(delay)

    async def main() -> float:
        tasks = [asyncio.create_task(process(_delay(index))) for index in range(PROCESSES)]
        started = time.process_time()
        await asyncio.gather(*tasks)
        return time.process_time() - started

    return clock.run(main())


def callback_seconds() -> float:
    """Run as many events as plain self-rescheduling callbacks and return the CPU time."""
    loop = clock.VirtualTimeLoop()

    def step(delay_ns: int, left: int) -> None:
        if left:
            loop.call_at_ns(loop.now_ns + delay_ns, step, delay_ns, left - 1)

    for index in range(PROCESSES):
        step(round(_delay(index) * 1e9), SLEEPS)
    loop.call_at(SLEEPS * 2.0, loop.stop)
    started = time.process_time()
    loop.run_forever()
    elapsed = time.process_time() - started
    loop.close()
    return elapsed


def bytes_per_waiting_task() -> float:
    """Return what a task that sleeps costs in memory, everything included."""

    async def main() -> float:
        gc.collect()
        tracemalloc.start()
        tasks = [asyncio.create_task(asyncio.sleep(1_000.0 + index)) for index in range(WAITING_TASKS)]
        await clock.sleep_for(1.0)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for task in tasks:
            task.cancel()
        return used / WAITING_TASKS

    return clock.run(main())


def _delay(index: int) -> float:
    return 1.0 + index / PROCESSES / 10.0


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a limit is missed")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median counts")
    arguments = parser.parse_args()

    measures: dict[str, Callable[[], float]] = {
        "SimPy timeout": simpy_seconds,
        "callbacks": callback_seconds,
        "clock.sleep_for": lambda: fedsim_seconds(clock.sleep_for),
        "asyncio.sleep": lambda: fedsim_seconds(asyncio.sleep),
    }
    runs: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(arguments.repeats):
        for name, measure in measures.items():
            gc.collect()
            runs[name].append(measure())
    events = PROCESSES * SLEEPS
    seconds = {name: median(times) for name, times in runs.items()}
    ratios = {name: elapsed / seconds["SimPy timeout"] for name, elapsed in seconds.items()}
    print(f"{PROCESSES} processes x {SLEEPS} sleeps, medians of {arguments.repeats}:")
    for name, elapsed in seconds.items():
        print(
            f"  {name:16} {elapsed / events * 1e6:6.2f} us/event {events / elapsed:10.0f} events/s"
            f" {ratios[name]:6.2f} x"
        )
    per_task = bytes_per_waiting_task()
    print(f"  {per_task:.0f} bytes per waiting task, of {WAITING_TASKS}")

    missed = [
        f"{name} {ratio:.2f} > {MAX_RATIO} x SimPy" for name, ratio in ratios.items() if ratio > MAX_RATIO
    ]
    if per_task > MAX_BYTES_PER_TASK:
        missed.append(f"{per_task:.0f} > {MAX_BYTES_PER_TASK} bytes per waiting task")
    for limit in missed:
        print(f"missed: {limit}")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
