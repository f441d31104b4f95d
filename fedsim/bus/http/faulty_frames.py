"""Faults of frames over sockets: the server's process decides what becomes of each frame, in both directions.

The draws are those of :mod:`fedsim.network.faults`, so a scenario has the same faults in memory. Sessions and
client processes know nothing of them: a dispatch that is lost is never handed to its session, and a reply
that is lost has arrived and was acknowledged, and goes no further. So a connection may still break at any
time, and each reply is taken once.

Times are real here. A fault with ``at``, ``for`` or ``every`` is on by the clock of the run. A partition
loses what the server sends or has received while it lasts. A late frame, or one that is sent again, waits in
the server's process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedsim.bus.base import Header
from fedsim.bus.http.transfer_records import TransferRecords
from fedsim.bus.ledger import Outcome
from fedsim.clock import now_ns
from fedsim.network import Parcel
from fedsim.network.fault_settings import RetryConfig
from fedsim.network.faults import LOSSES, SPOILT_CAUSE, RunFault, struck
from fedsim.wire import Packed


class ExposedFrame(NamedTuple):
    """A frame that faults may strike.

    Attributes:
        header: Of its delivery.
        packed: Its message.
        num_bytes: Its length.
        arrive: Lets it go on as without faults, with so many further copies.
    """

    header: Header
    packed: Packed
    num_bytes: int
    arrive: Callable[[int], object]


class FaultyFrames:
    """Lets frames go on, or not, as the faults of a run say.

    Args:
        faults: Those of frames.
        retry: How frames are sent again that do not arrive; None where they are not.
        records: Where faults and the ends of frames are recorded.
    """

    def __init__(
        self, faults: Sequence[RunFault], retry: RetryConfig | None, records: TransferRecords
    ) -> None:
        self._faults = faults
        self._num_retries, self._after_s = (0, 0.0) if retry is None else (retry.times, retry.after)
        self._records = records
        self._timers = set[asyncio.TimerHandle]()

    def close(self) -> None:
        """Forget the frames that wait; others go on without faults."""
        self._faults = ()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def meet(self, frame: ExposedFrame, attempt: int = 0) -> None:
        """Let a frame go on now or later, or lose it, when it has been sent so often before."""
        header = frame.header
        parcel = Parcel(header.sender, header.receiver, 0, None, header.dispatch, attempt)
        kinds, delay_s = struck(self._faults, parcel, now_ns())
        if delay_s and not any(kinds[kind] for kind in LOSSES):
            self._records.struck(header, "delay")
            self._wait(delay_s, lambda: self._go_on(frame, attempt, kinds))
        else:
            self._go_on(frame, attempt, kinds)

    def _go_on(self, frame: ExposedFrame, attempt: int, kinds: Counter[str]) -> None:
        kind = next((kind for kind in (*LOSSES, "corrupt") if kinds[kind]), None)
        if kind is None:
            frame.arrive(kinds["duplicate"])
            return
        header, records = frame.header, self._records
        row = records.enter(header, frame.packed, frame.num_bytes)
        records.struck(header, kind)
        is_tried_again = attempt < self._num_retries
        if is_tried_again:
            records.tried_again(header)
        if kind == "corrupt":
            records.end(header, row, Outcome.UNDECODABLE, SPOILT_CAUSE, kinds["duplicate"])
        else:
            records.end(header, row, Outcome.LOST, kind)
        if is_tried_again:
            self._wait(self._after_s, lambda: self.meet(frame, attempt + 1))

    def _wait(self, wait_s: float, go_on: Callable[[], object]) -> None:
        def over() -> None:
            self._timers.discard(timer)
            go_on()

        timer = asyncio.get_running_loop().call_later(wait_s, over)
        self._timers.add(timer)
