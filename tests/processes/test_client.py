import tomllib
from dataclasses import replace

import pytest

from fedsim.bus.http.access import ClientRanges
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import UserError
from fedsim.processes.client import ClientProcess
from fedsim.runtime.sockets.handshake import Greeting
from fedsim.scenario import Scenario, build

PROCESS = ClientProcess(
    url="http://127.0.0.1:9",
    clients=ClientRanges.parse("0-3"),
    workers=1,
    patience_s=1.0,
)


def greeting(scenario: str) -> Greeting:
    """Return what a server says that has the same data."""
    data = build(Scenario.model_validate(tomllib.loads(scenario))).data
    return Greeting(scenario, "fedavg", fingerprint(data))


@pytest.mark.parametrize("verify", [True, False])
def test_the_server_says_whether_to_verify(verify: bool, tiny_scenario: str) -> None:
    parts = PROCESS.build(replace(greeting(tiny_scenario), verify=verify))
    assert parts.verify is verify
    assert parts.executor.config.workers == 1


def test_other_data_than_the_servers_are_refused(tiny_scenario: str) -> None:
    said = greeting(tiny_scenario)
    other = {**said.data, "who holds what": "4 clients #0123"}
    with pytest.raises(UserError, match=r"who holds what \(4 clients, .* here, 4 clients there\)"):
        PROCESS.build(replace(said, data=other))
