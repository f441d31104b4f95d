"""Fuzz the decoder of frames and the messages of the aiohttp bus's session, with random and mutated bytes.

Whatever comes in, only ``DecodeError`` or ``SessionError`` may come out, in bounded time and memory. The
corpus is the golden frames of ``tests/wire/golden`` and a message of every word. A failing input is printed
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

from fedsim.bus import Header
from fedsim.bus.http.enclosed import read, written
from fedsim.bus.http.session import (
    FROM_CLIENT,
    FROM_SERVER,
    PROTOCOL,
    Inbox,
    Outbox,
    SessionError,
    encode,
    header_values,
    parse,
)
from fedsim.bus.reply_report import Note
from fedsim.errors import DecodeError
from fedsim.rng import Key
from fedsim.wire import COMMON, Kinds, decode

GOLDEN = Path(__file__).parent.parent / "tests" / "wire" / "golden"
KINDS = Kinds(COMMON)
MOST_S = 0.25
"""A single input may take so long; a quarter of a second allows for a busy machine."""
MOST_BYTES = 8 << 20
"""And so much memory at its peak, beside its own bytes."""
HEADER = header_values(Header(-1, 3, 2, "train", 5, 4, -1))
ANSWER = header_values(Header(3, -1, 2, "train", 5, 4, -1))
NOTES = written(
    [Note("info", "student chosen", {"round": 3, "weight": 0.5, "why": None}), Note("warning", "x", {})]
)
MESSAGES = (
    encode("hello", proto=PROTOCOL, session="0" * 32, clients="0-9,12", last=0, base=0, ready=True),
    encode("welcome", resumed=True, last=7, run="f" * 32, finished=False) + b"[run]\nrounds = 3\n",
    encode("refused", why="no"),
    encode("ready"),
    encode("send", n=1, h=HEADER, c=7, a=0) + b"frame",
    encode("blob", n=2, h=HEADER, b=1 << 20, a=0),
    encode("none", n=3, h=HEADER, a=0),
    encode("none", n=4, h=ANSWER, a=0, s=(0.7, 0.5), w=NOTES),
    encode("send", n=5, h=ANSWER, c=7, a=0, s=(0.0, 0.0), w=NOTES) + b"frame",
    encode("ack", n=3),
    encode("bad", n=3, why="spoilt"),
    encode("ask", id=1, client=3) + b"?",
    encode("told", id=1, at=0, of=3) + b"yes",
    encode("fault", id=1, why="no"),
    encode("alive"),
    encode("finish"),
    encode("bye"),
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
    """Take a message as either side would: parse it, and bring its numbers before an outbox and an inbox."""
    outbox: Outbox[int] = Outbox(1 << 20, 10)
    for item in range(5):
        outbox.add(item, 1)
    values = parse(data, FROM_CLIENT | FROM_SERVER).values
    if "n" in values:
        Inbox(0, gaps=True).accept(values["n"])
        Inbox(0).accept(values["n"])
    if "a" in values:
        outbox.acknowledge(values["a"])
    if "last" in values:
        outbox.replay(values["last"])
    if "w" in values:
        with suppress(ValueError):
            read(values["w"])


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
    parser = argparse.ArgumentParser(description="Fuzz frames and the messages of a session.")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each of the two (default 10)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    how = arguments.seconds, arguments.seed
    fine = fuzz("frames", corpus(), read_frame, DecodeError, how)
    fine &= fuzz("messages", list(MESSAGES), talk, SessionError, how)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
