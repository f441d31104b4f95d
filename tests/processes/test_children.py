import asyncio
import sys
from typing import Any

import pytest

from fedsim.errors import RunError, UserError
from fedsim.processes.children import ChildProcesses

STUBBORN = ("join", "http://127.0.0.1:9", "--clients", "0", "--while-fed")
"""Tries to connect for ten minutes, where nobody is."""


async def work(error: Exception | None = None) -> int:
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return 7


async def test_without_any_the_work_is_done() -> None:
    async with ChildProcesses((), {}) as beside:
        assert await beside.during(work()) == 7
        await beside.ended()


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        (("list", "devices"), RunError, r"(?s)'fedsim list devices' ended with status 0 .*phones"),
        (("token", "new", "--clients", "nonsense"), UserError, r"^clients 'nonsense': .* write numbers"),
    ],
)
async def test_one_that_ends_early_ends_the_work(command: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        async with ChildProcesses([command], {}) as beside:
            await beside.during(asyncio.Event().wait())


async def test_what_the_work_raises_comes_out_and_nothing_is_left() -> None:
    processes = ChildProcesses([STUBBORN, STUBBORN], {})
    with pytest.raises(RunError, match="no use"):
        async with processes as beside:
            await beside.during(work(RunError("no use")))
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
