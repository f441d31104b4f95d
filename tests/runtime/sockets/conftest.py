"""Runs over real sockets on one loop, and what they are made of."""

import asyncio
import tomllib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedsim.algorithms.contexts import Warn, ignored
from fedsim.bus.http.state_folder import StateFolder
from fedsim.clock import Trace
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.server_past import ServerPast
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of
from fedsim.runtime.sockets.join import host
from fedsim.runtime.sockets.serve import serve
from fedsim.runtime.tasks import Tasks
from fedsim.scenario import Scenario, build
from tests.bus.http.conftest import SkippingLoop, World, new_world, within

T = TypeVar("T")
CLIENTS = 4
SCENARIO = """
run = { seed = 3, rounds = 2 }
data = { name = "digits", limit = 240, global_test = 0.1, public.size = 20 }
training = { lr = 0.1, batch_size = 16 }
participation = { clients_per_round = 3, client_timeout = "60 s" }
network.model = "none"
[[fleet]]
count = 4
device = "high"
"""
SOON = ("fedavg", "fedmd", "ktpfl", "fedme", "scaffold")
"""One algorithm of each form of exchange; the others are slow tests."""
FEW = {"lambdas": [0.0, 0.5], "temperatures": [1.0, 5.0], "distill_epochs": 3}
QUICK: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("persfl", "persfl_gd"), FEW),
    **{name: {"server_steps": 5} for name in ("feddf", "pfeddf", "fedet")},
    "fedme": {"finetune_epochs": 1},
    "fedgkt": {"server_epochs": 2},
}
"""Settings for what takes long by default and means the same with less."""


def parts(name: str, *, width: int = 8, **changes: Any) -> Parts:
    """Return parts of two rounds on the digits; ``changes`` replaces any of them."""
    scenario = tomllib.loads(SCENARIO)
    scenario["algorithm"] = {"name": name, "params": QUICK.get(name, {})}
    scenario["models"] = {"mlp": {"params": {"hidden": [width]}}}
    return replace(build(Scenario.model_validate(scenario)), **changes)


def hosted(
    parts: Parts,
    make: Callable[[], Parts],
    shares: Sequence[str],
    use: Callable[[World], Coroutine[Any, Any, T]],
    *,
    folder: Path | None = None,
    shelf: Any = None,
    change: Callable[[Any], None] = lambda client: None,
    harm: Mapping[str, Any] | None = None,
    warn: Warn = ignored,
) -> T:
    """Return the result of ``use`` with a server while processes, made by ``make``, host shares."""

    async def main(ends: ExitStack) -> T:
        world = await new_world(num_clients=parts.data.num_clients, kinds=kinds_of(parts))
        url = None if harm is None else (await world.proxy(**harm)).url
        tasks = Tasks()

        async def whole() -> T:
            hosting = []
            for share in shares:
                state = None if folder is None else ends.enter_context(closing(StateFolder(folder / share)))
                client = await world.join(share, url, is_ready=False, state=state)
                change(client)
                work = host(make(), client, folder=state or shelf, warn=warn)
                hosting.append(tasks.start(work, share))
            result = await use(world)
            world.server.finish()
            await asyncio.gather(*hosting)
            return result

        try:
            result: T = await within(tasks.until(whole()))
            return result
        finally:
            await world.close()

    with ExitStack() as ends, asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(main(ends))


def over_http(
    make: Callable[[], Parts],
    shares: Sequence[str],
    *,
    prepare: Callable[[World], None] = lambda world: None,
    wait_s: float | None = None,
    trace: Trace | None = None,
    past: ServerPast | None = None,
    keeper: Any = None,
    **options: Any,
) -> tuple[RunResult, World]:
    """Run with a process for each share of the clients; return the result, and the server's side, closed.

    ``trace`` stands in for that of the server, of which there is one for each test.
    """
    parts = make()

    async def use(world: World) -> tuple[RunResult, World]:
        prepare(world)
        if trace is not None:
            world.server._records._trace = trace
        common: Any = {"ledger": world.ledger, "trace": trace or world.trace, "log": world.log}
        common |= {"wait_s": wait_s, "past": past, "keeper": keeper}
        return await serve(parts, world.server, **common), world

    return hosted(parts, make, shares, use, **options)
