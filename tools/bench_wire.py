"""Frames: the time of packing, joining and decoding, as a multiple of a reference in the same process.

For a message of 20 MB, one array, the reference is one copy of its bytes. For a small message, an array of
shape (100, 10) with three scalars, it is plain ``msgpack.packb`` and ``unpackb``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

import msgpack
import numpy as np
from bench_harness import Bench, main

from fedsim.params import Array
from fedsim.wire import SERVER, Frame, Kinds, Message, Packed, counted, decode, message, pack


@message("bench")
class BenchMessage(Message):
    """Three scalars and an array."""

    label: str
    number: int
    rate: float
    values: Array = counted()


KINDS = Kinds([BenchMessage])
LARGE = BenchMessage("large", 1, 0.5, np.ones(5_000_000, np.float32))
SMALL = BenchMessage("small", 1, 0.5, np.ones((100, 10), np.float32))


def framed(packed: Packed) -> Frame:
    """Return a frame for one receiver."""
    return packed.frame(sender=SERVER, receiver=3, round=7, exchange="train")


def plain_msgpack() -> object:
    """Pack and unpack the small message without fedsim."""
    values = SMALL.values
    fields = {"label": "small", "number": 1, "rate": 0.5, "values": values.tobytes(), "shape": values.shape}
    read = msgpack.unpackb(msgpack.packb(fields))
    return np.frombuffer(read["values"], np.float32).reshape(read["shape"])


def compare(
    bench: Bench,
    reference: Callable[[], object],
    ways: Mapping[str, tuple[Callable[[], object], int, float]],
    calls: int,
) -> None:
    """Show the time of each way, with its calls and its limit, in proportion to the reference's."""

    def call_s(function: Callable[[], object], calls: int) -> float:
        started = perf_counter()
        for _ in range(calls):
            function()
        return (perf_counter() - started) / calls

    timed = {name: lambda f=function, n=number: call_s(f, n) for name, (function, number, _) in ways.items()}
    times = bench.in_turns({"reference": lambda: call_s(reference, calls), **timed})
    for name, (_, _, limit) in ways.items():
        # The fastest: what interrupts a few calls says nothing of the code.
        bench.show(name, min(times[name]) / min(times["reference"]), "x", at_most=limit)


def measure(bench: Bench) -> None:
    """Compare both messages with their references."""
    frame = framed(pack(LARGE))
    joined = frame.join()
    view = memoryview(joined)
    compare(
        bench,
        lambda: bytes(view),
        {
            "20 MB: pack, frame": (lambda: framed(pack(LARGE)), 50, 2.0),
            "20 MB: pack, frame, join": (lambda: framed(pack(LARGE)).join(), 3, 2.0),
            "20 MB: decode the joined frame": (lambda: decode(joined, KINDS), 50, 0.05),
            "20 MB: decode the frame in parts": (lambda: decode(frame, KINDS), 50, 0.05),
        },
        calls=3,
    )
    packed = pack(SMALL)
    compare(
        bench,
        plain_msgpack,
        {
            "small: pack, frame, decode": (lambda: decode(framed(pack(SMALL)), KINDS), 5000, 12.0),
            "small: frame for one more receiver": (lambda: framed(packed), 5000, 1.0),
        },
        calls=5000,
    )


if __name__ == "__main__":
    main(__doc__, measure, repeats=9)
