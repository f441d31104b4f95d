from dataclasses import replace

import pytest

from fedsim.bus.http.access import ClientRanges
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.processes.client import ClientProcess
from fedsim.runtime.sockets.handshake import Greeting
from fedsim.scenario import build
from fedsim.scenario.build import read_resolved

PROCESS = ClientProcess(
    url="http://127.0.0.1:9", clients=ClientRanges.parse("0-3"), workers=1, patience_s=1.0
)


def test_what_a_greeting_makes_of_a_process(tiny_scenario: str) -> None:
    data = build(read_resolved(tiny_scenario)).data
    said = Greeting(tiny_scenario, "fedavg", fingerprint(data))
    for verify in (True, False):  # as the server does
        parts = PROCESS.build(replace(said, verify=verify))
        assert parts.verify is verify
        assert parts.executor.config.workers == 1
    other = {**said.data, "who holds what": "4 clients #0123"}
    with pytest.raises(UserError, match=r"who holds what \(4 clients, .* here, 4 clients there\)"):
        PROCESS.build(replace(said, data=other))


@pytest.mark.parametrize(
    ("scenario", "match"),
    [
        (
            "[data]\nname = 'lab.secret'\n",
            r"cannot be read here \(.*; data\.name: no data set .* 'lab\.secret'.*\): private plugins",
        ),
        ("= rubbish", "scenario cannot be read here"),
    ],
)
def test_a_scenario_that_cannot_be_read_here(scenario: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        PROCESS.build(Greeting(scenario, "fedavg"))
