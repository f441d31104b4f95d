"""What a client process must not forget."""

import os
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FileError, UserError


def test_one_process_at_a_time_for_one_session_of_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with closing(StateFolder(folder)) as one:
        assert (len(one.session), one.run) == (32, "")
        one.bind("0" * 32, "1" * 32)
        with pytest.raises(UserError, match="another process uses the state folder"):
            StateFolder(folder)
        one.close()
        with closing(StateFolder(folder)) as other:
            assert (other.session, other.run, other.server) == (one.session, "0" * 32, "1" * 32)


def test_states_outlive_a_process(tmp_path: Path) -> None:
    with closing(StateFolder(tmp_path)) as one:
        assert one.get(3) is None
        for dispatch in (2, 5, 10):
            one.put(3, dispatch, b"after %d" % dispatch)
        one.put(4, 7, b"other")
        one.versions.forget({3: [6]})
    (tmp_path / "3-11.part").write_bytes(b"half")
    with closing(StateFolder(tmp_path)) as other:
        assert [other.get(client) for client in (3, 4, 5)] == [b"after 10", b"other", None]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3-10", "3-5", "4-7", "lock", "session"]
        other.versions.rewind(3, 8)
        assert other.get(3) == b"after 5"
        other.versions.go_back({3: 6})
        assert other.get(4) is None
        other.put(4, 7, b"again")
        assert other.get(4) == b"again"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-5", "4-7", "lock", "session"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is damaged"),
        ("\udcff", "is damaged"),
        ("fedsim state 7\n", "is of another version of fedsim"),
        ("fedsim state 11\n0\n\n", "is damaged"),
        ("fedsim state 11\n" + "0" * 32, "is damaged"),
    ],
)
def test_a_session_that_is_none(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "session").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=f"{problem}: remove it to begin anew"):
        StateFolder(tmp_path)


def test_what_is_no_file_or_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match=r"cannot use the state folder .*file: (Not a directory|File exists)"):
        StateFolder(tmp_path / "file")
    folder = tmp_path / "folder"
    with closing(StateFolder(folder)) as one:
        one.put(4, 0, b"state")
        (folder / "4-0").unlink()
        (folder / "4-0").mkdir()
        with pytest.raises(FileError, match=r"cannot read .*4-0: Is a directory\. Make room"):
            one.get(4)
    for name in ("session", "3-0.part", "lock"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
        with pytest.raises(FileError, match=rf"cannot use the state folder .*{name}: Is a directory\. "):
            StateFolder(folder)
        (folder / name).rmdir()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, disk: Any) -> None:
    with closing(StateFolder(tmp_path)) as one:
        one.put(0, 0, b"first")
        with disk.fails(None) as calls:
            one.put(0, 1, b"second")
        for number in range(len(calls)):
            with disk.fails(number), pytest.raises(FileError, match=r"No space left on device\. Make room"):
                one.put(0, 2, b"third")
            assert one.get(0) == b"second"


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_nobody_else_can_read_the_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(StateFolder(tmp_path / "state")) as one:
            one.put(4, 0, b"state")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert modes == dict.fromkeys(("4-0", "lock", "session"), 0o600)
