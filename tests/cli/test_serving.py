"""What a person is told while a run over sockets goes on."""

from typing import Any

import pytest

from fedsim.cli.serving import _Telling


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
        ("info", "process gone", {"clients": "0"}, "the process of clients 0 is gone; it may come back"),
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
    getattr(_Telling(log, said.append, 7), level)(event, **values)
    assert said == ([] if told is None else [told])
    assert log.lines == [(event, values)]
