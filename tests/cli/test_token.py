import errno
import os
import stat
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.access import Access
from tests.cli.conftest import Call
from tests.conftest import there


def test_a_token_grants_its_clients(call: Call, here: Path) -> None:
    first = call("token", "new", "--clients", "0-3,7", "--tokens", "tokens.txt")
    second = call("token", "new", "--clients", "4", "--tokens", "tokens.txt")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    access = Access.from_file(here / "tokens.txt")
    granted = there(access.grant(first.stdout.strip()))
    assert list(granted) == [0, 1, 2, 3, 7]
    assert list(access.grant(second.stdout.strip()) or ()) == [4]
    assert access.grant("another") is None
    assert first.stdout.strip() not in (here / "tokens.txt").read_text()
    assert stat.S_IMODE((here / "tokens.txt").stat().st_mode) == 0o600


def test_a_file_without_a_last_line_break_is_mended(call: Call, here: Path) -> None:
    (here / "tokens.txt").write_text("# ours")
    assert call("token", "new", "--clients", "0", "--tokens", "tokens.txt").exit_code == 0
    lines = (here / "tokens.txt").read_text().splitlines()
    assert lines[0] == "# ours"
    assert len(lines) == 2


def test_without_a_file_the_line_is_shown(call: Call) -> None:
    made = call("token", "new", "--clients", "0-9")
    assert made.exit_code == 0
    line = made.stderr.splitlines()[-1]
    granted = Access.from_lines([line]).grant(made.stdout.strip())
    assert str(granted) == "0-9"


def test_mistakes_are_explained(call: Call) -> None:
    wrong = call("token", "new", "--clients", "9-0")
    assert wrong.exit_code == 2
    assert "0-9" in wrong.stderr or "goes up" in wrong.stderr
    nowhere = call("token", "new", "--clients", "0", "--tokens", "missing/tokens.txt")
    assert nowhere.exit_code == 2
    assert "missing/tokens.txt" in nowhere.stderr


@pytest.mark.parametrize("kept", [0, 10])
def test_a_full_disk_leaves_the_file_as_it_was(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Of a line that the disk has no room for, the system may write a part."""

    class Full(FileIO):
        def write(self, content: Any, /) -> int:
            if not kept:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content[:kept])

    call("token", "new", "--clients", "0", "--tokens", "tokens.txt")
    before = (here / "tokens.txt").read_bytes()
    monkeypatch.setattr(os, "fdopen", lambda number, mode, **_: Full(number, mode))
    failed = call("token", "new", "--clients", "1", "--tokens", "tokens.txt")
    assert failed.exit_code == 1
    assert "cannot write tokens.txt: No space left on device. Make room" in failed.stderr
    assert (here / "tokens.txt").read_bytes() == before
