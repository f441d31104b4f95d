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
from tests.bus.http.conftest import Log

JOINED, GONE = "process joined", "process gone"
CLIENT: dict[str, Any] = {"told_by": "client"}
"""Whoever notes this is a client, which has no say here, and leaves out what the server would add."""


@pytest.mark.parametrize(
    ("event", "values", "told"),
    [
        (JOINED, {"clients": "0-3", "resumed": False}, "the process of clients 0-3 has joined"),
        (JOINED, {"clients": "0", "resumed": True}, "the process of clients 0 has joined again"),
        (
            GONE,
            {"clients": "0", "why": "it died"},
            "the process of clients 0 is gone: it died; it may come back",
        ),
        (
            "process left",
            {"clients": "0", "why": "other data"},
            "the process of clients 0 has left: other data",
        ),
        ("process refused", {"why": "no", "count": 1}, "a process was refused: no"),
        ("tokens not read again", {"cause": "no"}, "tokens stay as they were: no"),
        ("clients missing", {"count": 2}, "beginning without 2 of 7 clients"),
        ("round", {"round": 1}, None),
        *((event, CLIENT, None) for event in (JOINED, GONE, "clients missing")),
    ],
)
def test_a_person_is_told_what_the_server_notes(event: str, values: dict[str, Any], told: str | None) -> None:
    for level in ("info", "warning"):
        log, said = Log(), list[str]()
        getattr(_PrintingLog(log, said.append, 7), level)(event, **values)
        assert said == ([] if told is None else [told])
        assert (log.lines, log.warned) == ([(event, values)], [event] if level == "warning" else [])


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
