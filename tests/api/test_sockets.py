"""A server and client processes from Python, each in a thread of this process."""

import asyncio
import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.errors import RunError, UserError
from fedsim.runtime.sockets.handshake import Greeting, read

TIMEOUT_S = 60


def quiet(line: str) -> None:
    """Say nothing."""


def greeting(url: str) -> Greeting:
    """Return what the server tells who joins."""

    async def main() -> Greeting:
        client = HttpClient(url, clients=ClientRanges.parse("0"))
        try:
            return read(await client.connect())
        finally:
            await client.close()

    return asyncio.run(main())


def test_a_run_with_two_processes_is_that_of_memory(tiny_scenario: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(tiny_scenario)
    urls, said = queue.Queue[str](), list[str]()
    with ThreadPoolExecutor(3) as threads:
        serving = threads.submit(
            lambda: fedsim.serve(
                file, listen="127.0.0.1:0", listening=urls.put, tell=said.append, verify=True
            )
        )
        url = urls.get(timeout=TIMEOUT_S)
        assert greeting(url).verify
        with pytest.raises(UserError, match="client 9 does not exist"):
            fedsim.join(url, "9", tell=quiet)
        joining = [threads.submit(fedsim.join, url, clients, tell=quiet) for clients in ("0-1", "2-3")]
        result = serving.result(TIMEOUT_S)
        for one in joining:
            one.result(TIMEOUT_S)
    assert result.summary["model_hash"] == fedsim.run(file).summary["model_hash"]
    assert "a process was refused: client 9 does not exist: this run has 4 clients, from 0" in said
    assert "the process of clients 0-1 has joined" in said
    assert "the process of clients 2-3 has left: the run is over" in said


def test_a_server_that_fails_tells_why(tiny_scenario: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(tiny_scenario)
    urls = queue.Queue[str]()

    def fail(row: Any) -> None:
        raise RunError("enough")

    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(
            lambda: fedsim.serve(file, listen="127.0.0.1:0", listening=urls.put, tell=quiet, progress=fail)
        )
        url = urls.get(timeout=TIMEOUT_S)
        assert not greeting(url).verify
        with pytest.raises(RunError, match="the server has ended the run: it failed: enough"):
            fedsim.join(url, "0-3", tell=quiet)
        with pytest.raises(RunError, match="enough"):
            serving.result(TIMEOUT_S)


def test_who_can_be_reached_from_afar_needs_tls_and_tokens(tiny_scenario: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(tiny_scenario)
    with pytest.raises(UserError, match="can be reached from other machines"):
        fedsim.serve(file, listen="0.0.0.0:0")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clients": "a"}, "'a' is no client number"),
        ({"url": "127.0.0.1:1"}, "no address of a server"),
        ({"workers": 0}, "workers is 0: at least 1 job"),
        ({"patience_s": 0.0}, "patience_s is 0: write a time greater than 0"),
    ],
)
def test_arguments_of_join(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        fedsim.join(**{"url": "http://127.0.0.1:1", "clients": "0", "tell": quiet, **options})
