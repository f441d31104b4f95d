from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from fedsim.cli.sockets import Address, address, client_tls, seconds, server_tls
from fedsim.errors import UserError

Call = Callable[..., Result]
CONTEXT: Any = None


@pytest.mark.parametrize(
    ("text", "host", "port", "shown", "is_loopback"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80, "127.0.0.1:80", True),
        ("localhost:0", "localhost", 0, "localhost:0", True),
        ("[::1]:8470", "::1", 8470, "[::1]:8470", True),
        ("0.0.0.0:1", "0.0.0.0", 1, "0.0.0.0:1", False),  # noqa: S104
        ("example.org:1", "example.org", 1, "example.org:1", False),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str, is_loopback: bool) -> None:
    read = address(CONTEXT, CONTEXT, text)
    assert read == Address(host, port)
    assert (str(read), read.is_loopback) == (shown, is_loopback)


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:x", "host:70000", "host:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match="host and a port"):
        address(CONTEXT, CONTEXT, text)


def test_durations() -> None:
    assert seconds(CONTEXT, CONTEXT, "2 min") == 120.0
    assert seconds(CONTEXT, CONTEXT, None) is None
    for wrong in ("5", "0 s", "5 MB"):
        with pytest.raises(click.BadParameter):
            seconds(CONTEXT, CONTEXT, wrong)


def test_certificates_come_in_pairs_and_are_files(tmp_path: Path) -> None:
    assert server_tls(None, None) is None
    assert client_tls(None) is None
    for pair in ((tmp_path, None), (None, tmp_path)):
        with pytest.raises(UserError, match="belong together"):
            server_tls(*pair)
    with pytest.raises(UserError, match="no such file"):
        server_tls(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UserError, match="no such file"):
        client_tls(tmp_path / "a")
    (tmp_path / "rubbish").write_text("rubbish")
    with pytest.raises(UserError, match="PEM"):
        server_tls(tmp_path / "rubbish", tmp_path / "rubbish")
    with pytest.raises(UserError, match="PEM"):
        client_tls(tmp_path / "rubbish")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "tiny.toml", "--listen", "0.0.0.0:0"), "--insecure"),
        (("serve", "tiny.toml", "--listen", "nowhere"), "host and a port"),
        (("serve", "tiny.toml", "--tls-cert", "x.pem"), "belong together"),
        (("serve", "tiny.toml", "--tokens", "missing"), "fedsim token new"),
        (("serve", "missing.toml"), "cannot be read"),
        (("serve", "tiny.toml", "--wait", "5"), "unit"),
        (("join", "127.0.0.1:1", "--clients", "0"), "http://127.0.0.1"),
        (("join", "http://127.0.0.1:1", "--clients", "x"), "0-9,12"),
        (("join", "http://127.0.0.1:1", "--clients", "0", "--ca", "missing"), "--ca missing"),
        (("run", "tiny.toml", "--processes", "2"), "--bus http"),
    ],
)
def test_mistakes_are_explained(call: Call, arguments: tuple[str, ...], said: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_a_mistake(call: Call) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        result = call("serve", "tiny.toml", "--listen", place)
    assert result.exit_code == 2
    assert f"cannot listen at {place}" in result.stderr
    assert "--listen" in result.stderr


def test_nobody_there_is_a_mistake(call: Call) -> None:
    result = call("join", "http://127.0.0.1:9", "--clients", "0", "--patience", "0.1 s")
    assert result.exit_code == 2
    assert "fedsim serve" in result.stderr
