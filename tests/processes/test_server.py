"""What a person is told while a run over sockets goes on, and what client processes are told."""

import tomllib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.clock import Trace
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import RunError
from fedsim.processes.addresses_and_tls import Address
from fedsim.processes.children import ChildProcesses
from fedsim.processes.server import ServerProcess, _PrintingLog
from fedsim.runtime.records.recorder import silent
from fedsim.runtime.sockets.handshake import Greeting, read
from fedsim.scenario import Plan, Scenario, build


class Kept:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))

    warning = info


@pytest.mark.parametrize(
    ("level", "event", "values", "told"),
    [
        (
            "info",
            "process joined",
            {"clients": "0-3", "resumed": False},
            "the process of clients 0-3 has joined",
        ),
        (
            "info",
            "process joined",
            {"clients": "0", "resumed": True},
            "the process of clients 0 has joined again",
        ),
        (
            *("info", "process gone", {"clients": "0", "why": "it was silent for 40 s"}),
            "the process of clients 0 is gone: it was silent for 40 s; it may come back",
        ),
        (
            *("info", "process left", {"clients": "0", "why": "other data"}),
            "the process of clients 0 has left: other data",
        ),
        ("warning", "process refused", {"why": "no", "count": 1}, "a process was refused: no"),
        ("warning", "tokens not read again", {"cause": "no"}, "tokens stay as they were: no"),
        ("warning", "clients missing", {"count": 2}, "beginning without 2 of 7 clients"),
        ("info", "round", {"round": 1}, None),
        # Whoever notes this is a client, which has no say here, and leaves out what the server would add.
        ("info", "process joined", {"told_by": "client"}, None),
        ("info", "process gone", {"clients": "all", "told_by": "client"}, None),
        ("warning", "clients missing", {"told_by": "client"}, None),
    ],
)
def test_a_person_is_told_what_the_server_notes(
    level: str, event: str, values: dict[str, Any], told: str | None
) -> None:
    log, said = Kept(), list[str]()
    getattr(_PrintingLog(log, said.append, 7), level)(event, **values)
    assert said == ([] if told is None else [told])
    assert log.lines == [(event, values)]


class Visitor(ChildProcesses):
    """In place of client processes: joins, reads the greeting, and ends the run."""

    def __init__(self, here: Address, heard: list[Greeting]) -> None:
        super().__init__((), {})
        self.here = here
        self.heard = heard

    async def during(self, work: Coroutine[Any, Any, Any]) -> Any:
        work.close()
        client = HttpClient(f"http://{self.here}", clients=ClientRanges.parse("0-3"))
        try:
            self.heard.append(read(await client.connect()))
        finally:
            await client.close()
        raise RunError("heard enough")


@pytest.mark.parametrize("verify", [True, False])
def test_the_greeting_tells_what_the_server_runs(verify: bool, tiny_scenario: str) -> None:
    parts = replace(build(Scenario.model_validate(tomllib.loads(tiny_scenario))), verify=verify)
    heard: list[Greeting] = []
    perform = ServerProcess(
        plan=Plan("tiny", "fedavg", tiny_scenario, parts),
        address=Address("127.0.0.1", 0),
        access=Access.open(),
        children=lambda here: Visitor(here, heard),
    )
    with pytest.raises(RunError, match="heard enough"):
        perform(parts, trace=Trace(keep=verify), log=silent(), watch=lambda row: None)
    assert heard == [Greeting(tiny_scenario, "fedavg", fingerprint(parts.data), verify)]
