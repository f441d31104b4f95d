import errno
import stat
from pathlib import Path
from typing import Any

import pytest

from fedsim import durable
from fedsim.durable import create, telling, write
from fedsim.errors import FileError, OutputError

MEND = "Make room"


def test_a_file_is_put_in_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o644)
    write(tmp_path / "f", b"ne", b"w", mend=MEND)
    assert (tmp_path / "f").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_whatever_the_disk_refuses_the_old_file_or_the_new_is_whole(tmp_path: Path, disk: Any) -> None:
    with disk.fails(None) as calls:
        write(tmp_path / "f", b"old", mend=MEND)
    assert calls == ["open", "write", "fsync", "replace", "fsync"]
    for number, name in enumerate(calls):
        write(tmp_path / "f", b"old", mend=MEND)
        with disk.fails(number), pytest.raises(FileError, match=f"cannot write {tmp_path}/f: No space left"):
            write(tmp_path / "f", b"new", mend=MEND)
        is_last = number == len(calls) - 1
        assert (tmp_path / "f").read_bytes() == (b"new" if is_last else b"old"), name
        assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_everything_is_on_the_disk_before_the_name_is(tmp_path: Path, disk: Any) -> None:
    with disk.fails(None) as calls:
        write(tmp_path / "f", b"x", mend=MEND)
    assert calls.index("fsync") < calls.index("replace") < len(calls) - 1 - calls[::-1].index("fsync")


def test_after_a_write_that_failed_all_fail(
    tmp_path: Path, disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_BUFFER_BYTES", 1)
    file = create(tmp_path / "f", tmp_path / "place", MEND)
    with disk.fails(0), pytest.raises(FileError, match=r"place: No space left on device\. Make room"):
        file.write(b"one")
    with pytest.raises(FileError, match="place: No space"):  # there is room again, but a gap in the file
        file.write(b"two")
    with pytest.raises(FileError, match="place: No space"):
        file.close()
    assert (tmp_path / "f").read_bytes() == b""


def test_an_error_names_what_is_within_the_place() -> None:
    with pytest.raises(FileError, match=r"^cannot write a/b: odd\. Make room$"), telling(Path("a"), MEND):
        raise OSError(errno.EIO, "odd", "a/b")
    with (
        pytest.raises(OutputError, match=r"^cannot read a: odd\. Make room$"),
        telling(Path("a"), MEND, doing="read", error=OutputError),
    ):
        raise OSError(errno.EIO, "odd", "b")
