import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.access import ClientRanges
from fedsim.cli.joining import Joining
from fedsim.data import fingerprint
from fedsim.errors import UserError
from fedsim.runtime.greeting import Greeting
from fedsim.scenario import Scenario, build

JOINING = Joining(
    url="http://127.0.0.1:9",
    clients=ClientRanges.parse("0-3"),
    workers=1,
    patience_s=1.0,
    quiet=True,
)


def greeting(here: Path) -> Greeting:
    """Return what a server says that has the same data."""
    scenario = (here / "tiny.toml").read_text()
    data = build(Scenario.model_validate(tomllib.loads(scenario))).data
    return Greeting(scenario, "fedavg", fingerprint(data))


@pytest.mark.parametrize("verify", [True, False])
def test_the_server_says_whether_to_verify(verify: bool, here: Path) -> None:
    parts = JOINING.build(replace(greeting(here), verify=verify))
    assert parts.verify is verify
    assert parts.executor.config.workers == 1


def test_other_data_than_the_servers_are_refused(here: Path) -> None:
    said = greeting(here)
    other = {**said.data, "who holds what": "4 clients #0123"}
    with pytest.raises(UserError, match=r"who holds what \(4 clients, .* here, 4 clients there\)"):
        JOINING.build(replace(said, data=other))


@pytest.mark.parametrize("fault", ["open", "write", "replace"])
def test_a_full_disk_is_told_without_a_traceback(call: Any, here: Path, disk: Any, fault: str) -> None:
    join = ("join", "http://127.0.0.1:9", "--clients", "0", "--state", "state", "--patience", "1 ms")
    with disk.fails(None) as calls:
        assert call(*join).exit_code == 2  # nobody is there
    shutil.rmtree("state")
    with disk.fails(calls.index(fault)):
        failed = call(*join)
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith("fedsim: the run failed: cannot ")
    assert "No space left on device. Make room there" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
