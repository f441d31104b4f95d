"""What a person is told while a run over sockets goes on; the greeting: tests/api/test_sockets.py."""

from typing import Any

import pytest

from fedsim.errors import UserError
from fedsim.processes.server import ServerProcess, _PrintingLog
from fedsim.scenario import Plan, load_scenario
from tests.bus.http.conftest import Log

JOINED, GONE = "process joined", "process gone"
CLIENT: dict[str, Any] = {"told_by": "client"}
"""Whoever notes this is a client, which has no say here, and leaves out what the server would add."""


def test_a_budget_of_energy_is_refused() -> None:
    tables = {"run": {"until": {"joules": "1 J"}}, "fleet": [{"count": 2, "compute_power": "1 W"}]}
    plan = Plan.of(load_scenario({**tables, "data": {"name": "sizes"}, "engine": {"executor": "null"}}), "")
    with pytest.raises(UserError, match=r"run\.until\.joules: over sockets nobody knows what devices draw"):
        ServerProcess.with_children(plan, 1)


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
