"""How fast this machine trains the models of a scenario: ``fedsim calibrate SCENARIO --host``.

A device of a scenario has one speed and one overhead for each job. What a machine really reaches depends on
the kind of layer and on the size of batches, so both numbers hold for what they were measured with. How wrong
they are for other layers and batches is told beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsim.clock import Trace
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import InlineSamples, PooledSamples, Stream
from fedsim.engine.losses import TRAIN
from fedsim.models import flops
from fedsim.report.number_format import duration
from fedsim.report.text_table import TextTable
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import open_engine
from fedsim.units import format_quantity

STEPS = (2, 8, 32)
"""Mini-batches of the jobs that are timed."""
PINGS = 50
"""Messages of a byte that measure the latency of a loopback, ..."""
MOVED_BYTES = 32 << 20
"""... and the length of the one that measures its rate."""
REPEATS = 5
"""Times that each is done; the shortest counts."""


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """What was measured with one model, or one kind of its layers, and one size of batches.

    Attributes:
        model: The label of the model.
        layers: The kinds of layers that have parameters.
        batch_size: Samples in a batch.
        flops: Operations of a step.
        step_s: How long a step takes, s.
        overhead_s: What a job takes besides, s; 0 of a layer alone.
        is_whole: Whether it is the whole model and its training step, else forward and backward of layers.
    """

    model: str
    layers: str
    batch_size: int
    flops: float
    step_s: float
    overhead_s: float = 0.0
    is_whole: bool = True

    @property
    def speed(self) -> float:
        """Operations in a second."""
        return self.flops / self.step_s


def host_speeds(parts: Parts) -> list[HostSpeed]:
    """Return how fast each model of a fleet trains here, with a quarter of its batch, all and four times."""
    trace, jobs = Trace(keep=False), list[float]()
    trace.listen({"job_start": lambda at_ns, client, dispatch, name, flops, lasts_s: jobs.append(flops)})
    engine = open_engine(parts, trace)
    initial, found = parts.initial(), list[HostSpeed]()
    x, y, rows = engine.resources.tensors(PooledSamples())
    size = parts.training.batch_size
    try:
        for label in dict.fromkeys(label for group in parts.fleet.groups for label in group.models):
            for batch_size in dict.fromkeys((max(1, size // 4), size, 4 * size)):
                chosen = np.resize(np.arange(len(x) if rows is None else len(rows)), batch_size)
                samples = InlineSamples(*(_chosen(values, rows, chosen) for values in (x, y)))
                streams = {TRAIN: Stream(samples, batch_size)}

                def job(steps: int, label: str = label, streams: dict[str, Stream] = streams) -> Any:
                    context = ComputeContext(
                        *(engine, lambda: parts.fleet.server, parts.training),
                        client=0,
                        dispatch=0,
                        key=Key.root(0),
                    )
                    return context.fit(initial(label), streams=streams, steps=steps)

                seconds = [_shortest_s(partial(_done, job, steps)) for steps in STEPS]
                step_s, overhead_s = np.polyfit(STEPS, seconds, 1)
                step_s = step_s if step_s > 0 else seconds[-1] / STEPS[-1]  # on a machine with other work
                step_flops = jobs[-1] / STEPS[-1]
                net = parts.architectures[label].plugin.build(parts.data.task)
                layers = list(_layers(label, net, torch.as_tensor(samples.x), batch_size))
                kinds = ", ".join(dict.fromkeys(one.layers for one in layers))
                found.append(HostSpeed(label, kinds, batch_size, step_flops, step_s, max(0.0, overhead_s)))
                found += layers
    finally:
        engine.close()
    return found


def device_of(found: Sequence[HostSpeed], batch_size: int) -> tuple[float, float]:
    """Return the speed, FLOP/s, and the overhead of a job, s, with batches of a size: medians over models."""
    those = [one for one in found if one.is_whole and one.batch_size == batch_size]
    return float(np.median([one.speed for one in those])), float(np.median([one.overhead_s for one in those]))


def host_table(found: Sequence[HostSpeed], batch_size: int) -> TextTable:
    """Return what was measured."""
    speed, overhead_s = device_of(found, batch_size)
    factors = [max(one.speed / speed, speed / one.speed) for one in found]
    return TextTable.of(
        found,
        {
            "model": lambda one: one.model,
            "part": lambda one: "training step" if one.is_whole else f"{one.layers} alone",
            "batch": lambda one: str(one.batch_size),
            "operations": lambda one: format_quantity(one.flops, "compute").removesuffix("/s"),
            "time": lambda one: duration(one.step_s),
            "speed": lambda one: format_quantity(one.speed, "compute"),
            "overhead\nof a job": lambda one: duration(one.overhead_s) if one.is_whole else "",
        },
        title="this machine",
        notes=[
            f"as a device: speed {format_quantity(speed, 'compute')}, overhead {duration(overhead_s)}, for "
            f"batches of {batch_size}; for another model, layer or batch in this table, one speed is wrong "
            f"by up to {max(factors):.1f} times"
        ],
        text_columns=frozenset({0, 1}),
    )


def host_csv(
    found: Sequence[HostSpeed], batch_size: int, memory_bytes: float, rate_bps: float, latency_s: float
) -> str:
    """Return a fleet file of this machine, any number of which are drawn, with a link of both directions."""
    speed, overhead_s = device_of(found, batch_size)
    head = "label,share,speed_gflops,overhead_s,memory_gb,up_mbps,down_mbps,latency_ms"
    link = f"{rate_bps / 1e6:.6g},{rate_bps / 1e6:.6g},{1e3 * latency_s:.6g}"
    return f"{head}\nthis machine,1,{speed / 1e9:.6g},{overhead_s:.6g},{memory_bytes / 1e9:.6g},{link}\n"


async def loopback() -> tuple[float, float]:
    """Return the rate of a connection of this machine with itself, bit/s, and its one-way latency, s."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length in (*[1] * PINGS, MOVED_BYTES):
            await reader.readexactly(length)
            writer.write(b".")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, limit=MOVED_BYTES)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    times_s = []
    for length in (*[1] * PINGS, MOVED_BYTES):
        began_s = perf_counter()
        writer.write(bytes(length))
        await reader.readexactly(1)
        times_s.append(perf_counter() - began_s)
    writer.close()
    server.close()
    await server.wait_closed()
    return 8 * MOVED_BYTES / times_s[-1], float(np.median(times_s[:PINGS])) / 2


def _chosen(values: Tensor | None, rows: Tensor | None, chosen: Any) -> Any:
    if values is None:
        return None
    return (values if rows is None else values[rows])[torch.as_tensor(chosen)].cpu().numpy()


def _done(job: Callable[[int], Any], steps: int) -> None:
    async def do() -> None:
        await job(steps)

    asyncio.run(do())


def _layers(label: str, net: nn.Module, x: Tensor, batch_size: int) -> Iterator[HostSpeed]:
    """Yield the speed of each kind of layer of a net, forward and backward."""
    met = dict[str, list[tuple[nn.Module, Tensor]]]()

    def meet(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if len(inputs) == 1:
            met.setdefault(type(module).__name__, []).append((module, inputs[0].detach()))

    for module in net.modules():
        if any(parameter.ndim >= 2 for parameter in module.parameters(recurse=False)):
            module.register_forward_pre_hook(meet)
    net(x)

    def both(layers: Sequence[tuple[nn.Module, Tensor]]) -> None:
        for module, inputs in layers:
            outputs = module(inputs.requires_grad_(inputs.is_floating_point()))
            (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()

    for kind, layers in met.items():
        without_hooks = [(deepcopy(module), inputs) for module, inputs in layers]
        for module, _ in without_hooks:
            module._forward_pre_hooks.clear()
        on_meta = [(deepcopy(module).to("meta"), inputs.to("meta")) for module, inputs in without_hooks]
        counted = flops.measure(partial(both, on_meta)).flops
        if counted:
            step_s = _shortest_s(partial(both, without_hooks))
            yield HostSpeed(label, kind, batch_size, counted, step_s, 0.0, is_whole=False)


def _shortest_s(work: Callable[[], object]) -> float:
    work()  # the first time takes longer
    times_s = []
    for _ in range(REPEATS):
        began_s = perf_counter()
        work()
        times_s.append(perf_counter() - began_s)
    return min(times_s)
