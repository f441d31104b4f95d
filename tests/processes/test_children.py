import asyncio
import sys
from typing import Any

import pytest

from fedsim.errors import RunError, UserError
from fedsim.processes.children import ChildProcesses

STUBBORN = ("join", "http://127.0.0.1:9", "--clients", "0", "--while-fed")
"""Tries to connect for ten minutes, where nobody is."""


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_without_any_the_work_is_done() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    async with ChildProcesses((), {}) as beside:
        assert await beside.during(work()) == 7
        await beside.ended()


async def test_one_that_ends_early_ends_the_work() -> None:
    with pytest.raises(RunError, match=r"(?s)'fedsim list devices' ended with status 0 .*phones"):
        async with ChildProcesses([("list", "devices")], {}) as beside:
            await beside.during(_forever())


async def test_a_mistake_of_the_users_is_told_as_such() -> None:
    with pytest.raises(UserError, match=r"^clients 'nonsense': .* write numbers"):
        async with ChildProcesses([("token", "new", "--clients", "nonsense")], {}) as beside:
            await beside.during(_forever())


async def test_what_the_work_raises_comes_out_and_nothing_is_left() -> None:
    async def work() -> None:
        raise RunError("no use")

    processes = ChildProcesses([STUBBORN, STUBBORN], {})
    with pytest.raises(RunError, match="no use"):
        async with processes as beside:
            await beside.during(work())
    assert all(process.returncode is not None for process in processes._processes)


async def test_the_environment_reaches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    make = asyncio.create_subprocess_exec

    async def note(*arguments: Any, **options: Any) -> Any:
        seen.append((arguments, options["env"]["FEDSIM_TOKEN"]))
        return await make(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    async with ChildProcesses([("--version",)], {"FEDSIM_TOKEN": "secret"}) as beside:
        await beside.ended()
    assert seen == [((sys.executable, "-P", "-m", "fedsim", "--version"), "secret")]
