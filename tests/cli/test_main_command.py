"""Mistakes in the options of commands that open sockets."""

import shutil
import socket
from typing import Any

import pytest

from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "tiny.toml", "--listen", "0.0.0.0:0"), "insecure"),
        (("serve", "tiny.toml", "--listen", "nowhere"), "host and a port"),
        (("serve", "tiny.toml", "--tls-cert", "x.pem"), "belong together"),
        (("serve", "tiny.toml", "--tokens", "missing"), "fedsim token new"),
        (("serve", "missing.toml"), "cannot be read"),
        (("serve", "tiny.toml", "--wait", "5"), "unit"),
        (("serve", "tiny.toml", "--wait", "0 s"), "--wait"),
        (("join", "http://127.0.0.1:1", "--clients", "0", "--patience", "5 MB"), "--patience"),
        (("join", "127.0.0.1:1", "--clients", "0"), "http://127.0.0.1"),
        (("join", "http://127.0.0.1:1", "--clients", "x"), "0-9,12"),
        (("join", "http://127.0.0.1:1", "--clients", "0", "--ca", "missing"), "trust (ca), missing"),
        (("run", "tiny.toml", "--processes", "2"), "--bus http"),
    ],
)
def test_mistakes_are_explained(call: Call, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_a_mistake(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        result = call("serve", "tiny.toml", "--listen", place)
    assert result.exit_code == 2
    assert f"cannot listen at {place}" in result.stderr
    assert "Choose another HOST:PORT" in result.stderr


def test_nobody_there_is_a_mistake(call: Call) -> None:
    result = call("join", "http://127.0.0.1:9", "--clients", "0", "--patience", "0.1 s")
    assert result.exit_code == 2
    assert "fedsim serve" in result.stderr


@pytest.mark.parametrize("fault", ["open", "write", "replace"])
def test_a_full_disk_is_told_without_a_traceback(call: Call, disk: Any, fault: str) -> None:
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
