from pathlib import Path

import pytest

from fedsim.bus.http import access
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import Address, address, client_tls, server_tls, server_url


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
    read = address(text)
    assert read == Address(host, port)
    assert (str(read), access.is_loopback(read.host)) == (shown, is_loopback)


def test_what_is_no_address() -> None:
    for text in ("", "host", ":80", "host:", "host:x", "host:70000", "host:-1", "a..b:80", f"{'x' * 70}:80"):
        with pytest.raises(UserError, match="host and a port"):
            address(text)


def test_urls() -> None:
    for text in ("http://127.0.0.1:8470", "https://example.org", "http://[::1]:1/"):
        assert server_url(text) == text
    for text in (
        *("127.0.0.1:80", "ftp://a", "http://", "http://a..b:80", f"http://{'x' * 70}", "http://a:x"),
        *("http://[", "http://me:word@a:80", "http://a?b", "http://a#b"),
    ):
        with pytest.raises(UserError, match="is no address of a server"):
            server_url(text)


def test_certificates_come_in_pairs_and_are_files(tmp_path: Path) -> None:
    assert server_tls(None, None) is None
    assert client_tls(None) is None
    for pair in ((tmp_path, None), (None, tmp_path)):
        with pytest.raises(UserError, match="belong together"):
            server_tls(*pair)
    (tmp_path / "rubbish").write_text("rubbish")
    for name, problem in (("missing", "no such file"), ("rubbish", "PEM")):
        with pytest.raises(UserError, match=problem):
            server_tls(tmp_path / name, tmp_path / name)
        with pytest.raises(UserError, match=problem):
            client_tls(tmp_path / name)
