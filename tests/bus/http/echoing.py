"""A client process of its own, for tests that kill it: counts what it answers of each client, and says so.

python echoing.py URL CLIENTS FOLDER
"""

import asyncio
import sys
from typing import Any

from fedsim.bus import Delivery
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.state_folder import StateFolder
from fedsim.wire import COMMON, Kinds, ModelUpdate


async def main(url: str, clients: str, folder: str) -> None:
    state, hosted = StateFolder(folder), ClientRanges.parse(clients)
    limits = HttpLimits(backoff_first_s=0.005, backoff_cap_s=0.02)
    client, inbox = HttpClient(url, clients=hosted, limits=limits, state=state), asyncio.Queue[Delivery]()
    client.feed(inbox.put_nowait, Kinds(COMMON))
    await client.connect()
    print("joined", flush=True)  # noqa: T201
    while True:
        delivery = await inbox.get()
        number, dispatch, message = delivery.header.receiver, delivery.header.dispatch, delivery.message
        state.versions.rewind(number, dispatch)
        count = int(state.get(number) or b"0") + 1
        state.put(number, dispatch, b"%d" % count)
        model: Any = getattr(message, "model", None)
        client.send(delivery.header.reply(), ModelUpdate.of(model, num_samples=count))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
