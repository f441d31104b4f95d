import subprocess
import sys
from pathlib import Path

import pytest

from fedsim.errors import FileError
from fedsim.studies import study_lock
from fedsim.studies.study_lock import LOCKS, locked

OTHER = """
import sys
from pathlib import Path
from fedsim.studies import study_lock
study_lock.HAS_BYTE_LOCKS = sys.argv[2] == "True"
with study_lock.locked(Path(sys.argv[1]), wait=False) as is_mine:
    print(is_mine)
"""


def other(folder: Path) -> str:
    """Say whether another process could lock a run."""
    command = [sys.executable, "-c", OTHER, str(folder), str(study_lock.HAS_BYTE_LOCKS)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


@pytest.mark.parametrize("has_byte_locks", [True, False])
def test_a_run_is_locked_against_other_processes_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_byte_locks: bool
) -> None:
    monkeypatch.setattr(study_lock, "HAS_BYTE_LOCKS", has_byte_locks)
    with locked(tmp_path / "a-seed0", wait=False) as is_mine:
        assert is_mine
        with locked(tmp_path / "a-seed0", wait=False) as is_mine_too:
            assert not is_mine_too
        assert other(tmp_path / "a-seed0") == "False"
        assert other(tmp_path / "a-seed1") == "True"
    assert other(tmp_path / "a-seed0") == "True"


def test_a_file_of_locks_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / LOCKS).mkdir()
    with (
        pytest.raises(FileError, match=rf"cannot write {tmp_path / LOCKS}: Is a directory\. Choose another"),
        locked(tmp_path / "a-seed0", wait=True),
    ):
        pass
