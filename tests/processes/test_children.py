import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsim.errors import RunError, UserError
from fedsim.processes.children import ChildProcesses, python, variables

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


@pytest.mark.parametrize("path", ["", ":", None])
def test_a_file_in_the_working_folder_hides_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    (tmp_path / "statistics.py").write_text("raise SystemExit(9)\n")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    command = python("-c", "import statistics, fedsim; print(fedsim.__version__)")
    subprocess.run(command, cwd=tmp_path, env=variables(), check=True, capture_output=True)  # noqa: S603


def test_the_path_of_this_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plugin.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run(python("-c", "import my_plugin"), env=variables(), check=True)  # noqa: S603
