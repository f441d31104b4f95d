"""Measure frames: what packing, joining and reading cost beside copying the same bytes once.

Ratios of times taken in one process hold on a slow or busy machine too, so they are what ``--check`` tests::

    python tools/bench_wire.py [--check]

A 20 MB message is one array; "copies" are multiples of the time to copy its bytes. The small message is a
float32 array of shape (100, 10) with three scalars; its reference is plain ``msgpack.packb`` and ``unpackb``.
"""

import argparse
import sys
from collections.abc import Callable
from time import perf_counter

import msgpack
import numpy as np

from fedsim.params import Array
from fedsim.wire import SERVER, Kinds, Message, counted, decode, message, pack


@message("bench")
class Bench(Message):
    """Three scalars and an array."""

    label: str
    number: int
    rate: float
    values: Array = counted()


KINDS = Kinds([Bench])


def best(function: Callable[[], object], calls: int, repeats: int = 9) -> float:
    """Return the seconds that a call takes in the best of several repeats."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        for _ in range(calls):
            function()
        times.append((perf_counter() - start) / calls)
    return min(times)


def large() -> list[tuple[str, float, float]]:
    """Return name, ratio and the most that is allowed, for the message of 20 MB."""
    sent = Bench("large", 1, 0.5, np.ones(5_000_000, np.float32))
    frame = pack(sent).frame(sender=SERVER, receiver=3, round=7, exchange="train")
    joined = frame.join()
    view = memoryview(joined)
    copy_s = best(lambda: bytes(view), 3)

    def encode() -> object:
        return pack(sent).frame(sender=SERVER, receiver=3, round=7, exchange="train")

    def encode_and_join() -> object:
        return pack(sent).frame(sender=SERVER, receiver=3, round=7, exchange="train").join()

    print(f"20 MB: one copy takes {copy_s * 1e3:.2f} ms; in copies of its bytes:")
    return [
        ("pack, frame", best(encode, 50) / copy_s, 2.0),
        ("pack, frame, join", best(encode_and_join, 3) / copy_s, 2.0),
        ("decode the joined frame", best(lambda: decode(joined, KINDS), 50) / copy_s, 0.05),
        ("decode the frame in parts", best(lambda: decode(frame, KINDS), 50) / copy_s, 0.05),
    ]


def small() -> list[tuple[str, float, float]]:
    """Return name, ratio and the most that is allowed, for the small message, and print the times."""
    array = np.ones((100, 10), np.float32)
    sent = Bench("small", 1, 0.5, array)
    packed = pack(sent)
    frame = packed.frame(sender=SERVER, receiver=3, round=7, exchange="train")
    joined = frame.join()

    def reference() -> object:
        plain = {"label": "small", "number": 1, "rate": 0.5, "values": array.tobytes(), "shape": array.shape}
        read = msgpack.unpackb(msgpack.packb(plain))
        return np.frombuffer(read["values"], np.float32).reshape(read["shape"])

    def whole() -> object:
        made = pack(sent).frame(sender=SERVER, receiver=3, round=7, exchange="train")
        return decode(made, KINDS)

    reference_s = best(reference, 5000)
    times = {
        "pack": best(lambda: pack(sent), 5000),
        "frame": best(lambda: packed.frame(sender=SERVER, receiver=3, round=7, exchange="train"), 5000),
        "decode the frame in parts": best(lambda: decode(frame, KINDS), 5000),
        "decode the joined frame": best(lambda: decode(joined, KINDS), 5000),
        "pack, frame, decode": best(whole, 5000),
    }
    print(f"small message of {len(frame)} bytes (plain msgpack: {reference_s * 1e6:.1f} µs):")
    for name, time_s in times.items():
        print(f"  {name:28} {time_s * 1e6:8.2f} µs")
    print("in plain msgpack's time:")
    return [
        ("pack, frame, decode", times["pack, frame, decode"] / reference_s, 12.0),
        ("frame for one more receiver", times["frame"] / reference_s, 1.0),
    ]


def main() -> int:
    """Print all figures and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure frames beside a copy of their bytes.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a ratio is too high")
    check = parser.parse_args().check
    failed = 0
    for measure in (large, small):
        for name, ratio, most in measure():
            verdict = "ok" if ratio <= most else "TOO SLOW"
            failed += ratio > most
            print(f"  {name:28} {ratio:8.4f} of at most {most:g}: {verdict}")
    return 1 if check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
