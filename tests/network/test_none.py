import asyncio

import numpy as np

from fedsim.clock import now_ns
from fedsim.config import Config
from fedsim.network import Links, Parcel
from fedsim.network.none import PLUGIN as NONE

SLOW = Links(np.ones(1), np.ones(1), np.full(1, 9.0), 1.0, 1.0, 9.0)


class Diary:
    """Writes down what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def left(self) -> None:
        self.lines.append(f"left {now_ns()}")

    def arrived(self, parcel: Parcel) -> None:
        self.lines.append(f"arrived {now_ns()}")

    def lost(self, cause: str) -> None:
        self.lines.append("lost")


async def test_a_parcel_takes_no_time_but_comes_after_what_is_runnable() -> None:
    diary = Diary()
    NONE(Config()).carrier(SLOW).carry(Parcel(-1, 0, 10**9, None), diary)
    asyncio.get_running_loop().call_soon(diary.lines.append, "runnable")
    diary.lines.append("sent")
    await asyncio.sleep(1)
    assert diary.lines == ["sent", "runnable", "left 0", "arrived 0"]
