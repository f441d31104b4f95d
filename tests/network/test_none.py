import asyncio

import numpy as np

from fedsim.config import Config
from fedsim.network import Links, Parcel
from fedsim.network.none import PLUGIN as NONE
from tests.network.listening import Ear

SLOW = Links(np.ones(1), np.ones(1), np.full(1, 9.0), 1.0, 1.0, 9.0)


async def test_a_parcel_takes_no_time_but_comes_after_what_is_runnable() -> None:
    ear = Ear()
    NONE(Config()).carrier(SLOW).carry(Parcel(-1, 0, 10**9, None), ear)
    runnable = list[int]()
    asyncio.get_running_loop().call_soon(lambda: runnable.append(len(ear.heard)))
    assert ear.heard == []
    await asyncio.sleep(1)
    assert runnable == [0]
    assert ear.events == [("left", 0), ("arrived", 0)]
