"""``--live``: whom it shows to, where, and that the command is the same otherwise."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fedsim.page.live_run import LiveRun
from fedsim.page.live_snapshot import Snapshot

Call = Callable[..., Result]


def url_of(said: str) -> str:
    """Return where a page is, as a command has told it once."""
    (url,) = re.findall(r"^live page: (http://127\.0\.0\.1:\d+/)$", said, re.MULTILINE)
    return str(url)


def test_a_run_says_where_its_page_is_and_ends_as_without(call: Call, here: Path) -> None:
    plain = call("run", "tiny.toml", "--out", "plain")
    live = call("run", "tiny.toml", "--out", "live", "--live")
    assert live.exit_code == 0, live.output
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url_of(live.stderr))  # noqa: S310
    for name in ("trace.msgpack", "rounds.parquet", "log.jsonl", "scenario.toml"):
        assert (here / "plain" / name).read_bytes() == (here / "live" / name).read_bytes()
    shorn = re.sub(r"wall time.*", "", live.stdout)
    assert shorn == re.sub(r"wall time.*", "", plain.stdout)


def test_the_page_is_there_while_the_run_goes_on(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is read where the run tells of its beginning, in the run's own thread."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = list[bytes]()
    observe = LiveRun.observe

    def look(self: LiveRun, *parts: Any) -> None:
        observe(self, *parts)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            seen.append(page.read())

    monkeypatch.setattr(LiveRun, "observe", look)
    result = call("run", "tiny.toml", f"--live={port}", "--quiet")
    assert result.exit_code == 0, result.output
    assert url_of(result.stderr) == f"http://127.0.0.1:{port}/"
    assert seen[0].startswith(b"<!doctype html>")


def test_a_comparison_has_a_page_too(call: Call) -> None:
    result = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--live")
    assert result.exit_code == 0, result.output
    url_of(result.stderr)


@pytest.mark.slow  # runs in other processes
def test_studies_have_pages_too(call: Call, here: Path) -> None:
    varied = call("compare", "tiny.toml", "--algorithms", "local", "--set", "training.lr=0.1,0.2", "--live")
    assert varied.exit_code == 0, varied.output
    url_of(varied.stderr)
    (here / "study.toml").write_text('base = "tiny.toml"\nseeds = [0]\n[[variant]]\nalgorithm = "local"\n')
    study = call("study", "study.toml", "--live", "--jobs", "1")
    assert study.exit_code == 0, study.output
    url_of(study.stderr)
    beside = call("compare", "tiny.toml", "--algorithms", "fedavg,local", "--jobs", "2", "--live", "--force")
    assert beside.exit_code == 0, beside.output


@pytest.mark.slow  # a run between processes
def test_a_run_over_sockets_has_a_page(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place))
    looks = list[Snapshot]()
    observe = LiveRun.observe

    def look(self: LiveRun, *parts: Any) -> None:
        looks.append(self.snapshot())
        observe(self, *parts)
        looks.append(self.snapshot())

    monkeypatch.setattr(LiveRun, "observe", look)
    result = call("run", "tiny.toml", "--bus", "http", "--processes", "1", "--live")
    assert result.exit_code == 0, result.output
    url_of(result.stderr)
    before, after = looks
    assert before.page.answer == "Waiting for clients to join."
    assert after.page.answer.startswith("0 of 2 rounds, ")
    assert " passed." in after.page.answer


def test_a_port_that_is_taken_is_taught_before_anything_is_done(call: Call, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = call("run", "tiny.toml", "--live", port)
    assert result.exit_code == 2
    assert f"127.0.0.1:{port}: address already in use. Choose another --live PORT" in result.stderr
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--live", "tiny.toml"),
        ("tiny.toml", "--live", "80"),
        ("tiny.toml", "--live=65536"),
        ("tiny.toml", "--live=8_000"),
        ("tiny.toml", "--live="),
    ],
)
def test_what_is_no_port_is_taught(call: Call, arguments: tuple[str, ...]) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "is no port: write one from 1024 to 65535, or leave it out" in said
    assert "Traceback" not in result.stderr


@pytest.mark.slow  # a process of its own
def test_without_it_nothing_of_pages_is_imported(here: Path) -> None:
    program = (
        "import sys; from fedsim.cli import main\n"
        "main(['run', 'tiny.toml', '--quiet'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith(('fedsim.figures', 'fedsim.page.live'))])"
    )
    paths = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=here, env=paths, capture_output=True, check=True
    )
    assert done.stdout.splitlines()[-1] == b"[]"
    assert json.loads((here / "runs/tiny/fedavg-seed0/summary.json").read_text())["rounds"] == 2
