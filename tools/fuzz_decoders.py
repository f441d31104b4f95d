"""Fuzz the decoder of frames and the entries of the aiohttp bus, with random and mutated bytes.

Whatever comes in, only ``DecodeError`` or ``ProtocolError`` may come out, in bounded time and memory. The
corpus is the golden frames of ``tests/wire/golden`` and entries of every letter. A failing input is printed
in hexadecimal, and the seed repeats a run::

    python tools/fuzz_decoders.py [--seconds 10] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import numpy as np

from fedsim.bus.http.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    ProtocolError,
    Reader,
    Reply,
    entry,
    read_large,
)
from fedsim.bus.reply_report import Note, read, written
from fedsim.errors import DecodeError
from fedsim.rng import Key
from fedsim.wire import COMMON, Frame, Kinds, decode

GOLDEN = Path(__file__).parent.parent / "tests" / "wire" / "golden"
KINDS = Kinds(COMMON)
MOST_S = 0.25
"""A single input may take so long; a quarter of a second allows for a busy machine."""
MOST_BYTES = 8 << 20
"""And so much memory at its peak, beside its own bytes."""
NOTES = written(
    [Note("info", "student chosen", {"round": 3, "weight": 0.5, "why": None}), Note("warning", "x", {})]
)
SPENT = (0.5, 0.25)
MESSAGES = (
    entry("d", 1, 3, 5, 2, "train", 4, -1, 5, body=b"frame") + entry("a"),
    entry("d", 2, 3, 5, 2, "train", 4, -1, 1 << 20) + entry("d", 3, 3, 6, 2, "train", 4, 5, None),
    entry("q", 1, 3, body=b"?") + entry("e", True, "the run is over"),
    entry("r", 3, 5, SPENT, NOTES) + entry("r", 3, 5, SPENT, None, body=b"frame"),
    entry("u", 3, 5, "spoilt") + entry("s", 7, True, body=b"held"),
    b"".join(Reply((3, 5), Frame(b"frame", 5), SPENT, NOTES).parts()),
)
TELLING = (
    0x00,
    0x7F,
    0x80,
    0x8F,
    0x90,
    0x9F,
    0xC0,
    0xC1,
    0xC4,
    0xC6,
    0xC7,
    0xC9,
    0xD3,
    0xDB,
    0xDD,
    0xDF,
    0xFF,
)
"""Bytes that mean something at the edges of msgpack's types."""


def corpus() -> list[bytes]:
    """Return the golden frames."""
    return [bytes.fromhex(path.read_text()) for path in sorted(GOLDEN.glob("*.hex"))]


def mutated(generator: np.random.Generator, seeds: list[bytes]) -> bytes:
    """Return random bytes, or a seed with a few changes."""
    if generator.random() < 0.1:
        return generator.bytes(int(generator.integers(0, 400)))
    data = bytearray(seeds[generator.integers(len(seeds))])
    for _ in range(int(generator.integers(1, 6))):
        at = int(generator.integers(0, len(data) + 1))
        match int(generator.integers(7)):
            case 0 if at < len(data):
                data[at] = int(generator.integers(256))
            case 1 if at < len(data):
                data[at] = TELLING[generator.integers(len(TELLING))]
            case 2:
                del data[at : at + int(generator.integers(1, 20))]
            case 3:
                data[at:at] = generator.bytes(int(generator.integers(1, 20)))
            case 4:
                other = seeds[generator.integers(len(seeds))]
                data[at:] = other[int(generator.integers(0, len(other))) :]
            case 5:
                data[at:at] = data[at : at + int(generator.integers(1, 40))] * int(generator.integers(1, 30))
            case _:
                del data[at:]
    return bytes(data)


def read_frame(data: bytes) -> None:
    """Decode a frame."""
    decode(data, KINDS)


def talk(data: bytes) -> None:
    """Read entries in two pieces, as either side would, and their notes; or else a large reply."""
    reader, half = Reader(FROM_CLIENT | FROM_SERVER, 1 << 16), len(data) // 2
    try:
        entries = reader.feed(data[:half]) + reader.feed(data[half:])
    except ProtocolError:
        entries = []
        read_large(memoryview(data))
    for letter, values, _ in entries:
        if letter == "r" and values[-1] is not None:
            with suppress(ValueError):
                read(values[-1])


def fuzz(
    name: str,
    seeds: list[bytes],
    target: Callable[[bytes], None],
    allowed: type[Exception],
    args: tuple[float, int],
) -> bool:
    """Feed a target for some seconds; print what happened and say whether it was fine."""
    seconds, seed = args
    generator = Key.root(seed).child("fuzz", name).numpy()
    ends: Counter[str] = Counter()
    slowest_s, end = 0.0, perf_counter() + seconds
    while perf_counter() < end:
        data = mutated(generator, seeds)
        began = perf_counter()
        try:
            target(data)
            ends["accepted"] += 1
        except allowed:
            ends["refused"] += 1
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}\n  {data.hex()}")
            return False
        slowest_s = max(slowest_s, perf_counter() - began)
    peak = peak_bytes(generator, seeds, target, allowed)
    print(
        f"{name}: {ends.total():,} inputs, {ends['accepted']:,} accepted; the slowest took "
        f"{slowest_s * 1e3:.1f} ms, the largest peak {peak / 1024:.0f} KiB"
    )
    return slowest_s <= MOST_S and peak <= MOST_BYTES


def peak_bytes(
    generator: np.random.Generator,
    seeds: list[bytes],
    target: Callable[[bytes], None],
    allowed: type[Exception],
) -> int:
    """Return the most memory that one of a thousand inputs takes."""
    highest = 0
    tracemalloc.start()
    for _ in range(1000):
        data = mutated(generator, seeds)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        with suppress(allowed):
            target(data)
        highest = max(highest, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    return highest


def main() -> int:
    """Fuzz both; return the exit status."""
    parser = argparse.ArgumentParser(description="Fuzz frames and entries.")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each of the two (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    how = arguments.seconds, arguments.seed
    fine = fuzz("frames", corpus(), read_frame, DecodeError, how)
    fine &= fuzz("entries", list(MESSAGES), talk, ProtocolError, how)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
