"""A server and client processes from Python, each in a thread of this process."""

import asyncio
import queue
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.errors import FileError, RunError, UserError
from fedsim.report.saved_models import write_models
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


def test_processes_stay_until_nothing_can_be_lost(
    tiny_scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, urls, said = tmp_path / "tiny.toml", tmp_path / "out", queue.Queue[str](), list[str]()
    file.write_text(tiny_scenario)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    often = {"run.checkpoint": {"every_rounds": 1, "max_share": 1.0}, "run.save_models": True}
    attempts = list[Path]()

    def full_at_first(path: Path, *others: Any) -> None:
        attempts.append(path)
        if len(attempts) == 1:
            raise FileError("no space left")
        write_models(path, *others)

    monkeypatch.setattr("fedsim.report.record_run.write_models", full_at_first)

    def serve() -> Any:
        return fedsim.serve(
            file, listen=f"127.0.0.1:{port}", out=out, overrides=often, listening=urls.put, tell=quiet
        )

    with ThreadPoolExecutor(2) as threads:
        serving = threads.submit(serve)
        joining = threads.submit(fedsim.join, urls.get(timeout=TIMEOUT_S), "0-3", tell=said.append)
        with pytest.raises(FileError, match="no space left"):
            serving.result(TIMEOUT_S)
        # The rounds are over, and only the folder is missing.
        result = threads.submit(serve).result(TIMEOUT_S)
        joining.result(TIMEOUT_S)
    assert any("started again" in line for line in said)
    whole = fedsim.run(file)
    assert result.summary["model_hash"] == whole.summary["model_hash"]
    assert result.summary["accuracy"] == whole.summary["accuracy"]
    assert (out / "models").is_dir()
    assert not (out / "checkpoints").exists()


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
