"""Addresses of clusters, and a Ray that cannot be imported; joining one is tested with the executor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from fedsim.engine.cluster.connection import Address, Connection
from fedsim.errors import UserError

ADDRESS: TypeAdapter[str] = TypeAdapter(Address)


@pytest.mark.parametrize("text", ["auto", "local", "127.0.0.1:6379", "head.example:1", "[::1]:65535"])
def test_an_address_is_a_word_or_a_host_and_its_port(text: str) -> None:
    assert ADDRESS.validate_python(text) == text


@pytest.mark.parametrize("text", ["automatic", "host:port", ":6379", "host:0", "host:65536", "host:"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is no address of a cluster"):
        ADDRESS.validate_python(text)


def test_the_address_of_a_ray_client_is_refused() -> None:
    with pytest.raises(ValidationError, match="is the address of a Ray client"):
        ADDRESS.validate_python("ray://head:10001")


def test_a_broken_ray_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('libray.so is missing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(
        UserError, match=r"cannot be imported \(libray.so is missing\): .*pip install --force-reinstall ray"
    ):
        Connection("auto")
