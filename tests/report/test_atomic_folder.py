import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsim.durable import sync
from fedsim.errors import FileError, OutputError
from fedsim.report import atomic_folder
from fedsim.report.atomic_folder import MARK, check_files, check_folders, staged, write_file


def publish(place: Path, content: str, *, force: bool = False) -> None:
    with staged(place, force=force) as hidden:
        (hidden / MARK).write_text(content)


def publish_half(place: Path, error: BaseException, *, force: bool = False) -> None:
    with staged(place, force=force) as hidden:
        (hidden / MARK).write_text("half")
        raise error


def contents(place: Path) -> dict[str, str]:
    return {str(p.relative_to(place)): p.read_text() for p in sorted(place.rglob("*")) if p.is_file()}


def test_a_folder_appears_with_missing_parents_and_nothing_else(tmp_path: Path) -> None:
    publish(tmp_path / "a" / "b", "new")
    assert contents(tmp_path) == {"a/b/summary.json": "new"}
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_nothing_is_at_the_place_while_the_block_runs(tmp_path: Path) -> None:
    with staged(tmp_path / "run") as hidden:
        (hidden / MARK).write_text("x")
        assert not (tmp_path / "run").exists()
        assert hidden.parent == tmp_path
        assert hidden.name.startswith(".")


def test_the_folder_has_ordinary_permissions(tmp_path: Path) -> None:
    publish(tmp_path / "run", "x")
    (tmp_path / "ordinary").mkdir()
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_nothing_not_even_parents(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        publish_half(tmp_path / "a" / "b", error())
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_the_old_folder_and_others_parents(tmp_path: Path) -> None:
    publish(tmp_path / "run", "old")
    with pytest.raises(KeyboardInterrupt):
        publish_half(tmp_path / "run", KeyboardInterrupt(), force=True)
    assert contents(tmp_path) == {"run/summary.json": "old"}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_force_replaces_a_run_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(atomic_folder, "_exchange", lambda left, right: False)
    publish(tmp_path / "run", "old")
    (tmp_path / "run" / "extra").write_text("gone with the old run")
    publish(tmp_path / "run", "new", force=True)
    assert contents(tmp_path) == {"run/summary.json": "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_is_a_place(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    check_folders([tmp_path / "run"], force=False)
    publish(tmp_path / "run", "new")
    assert contents(tmp_path) == {"run/summary.json": "new"}


def test_a_link_to_a_folder_keeps_pointing_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    publish(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == {"summary.json": "new"}


def test_a_run_is_not_replaced_without_force(tmp_path: Path) -> None:
    publish(tmp_path / "run", "old")
    with pytest.raises(OutputError, match="holds a run already: replace it with the option force"):
        check_folders([tmp_path / "other", tmp_path / "run"], force=False)
    with pytest.raises(OutputError, match="holds a run already"):
        publish(tmp_path / "run", "new")
    assert contents(tmp_path) == {"run/summary.json": "old"}


def test_force_replaces_nothing_but_runs(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("dear")
    with pytest.raises(OutputError, match="not even force"):
        check_folders([tmp_path / "thesis"], force=True)
    with pytest.raises(OutputError, match="not even force"):
        publish(tmp_path / "thesis", "new", force=True)
    assert contents(tmp_path) == {"thesis/chapter": "dear"}


def test_a_file_is_no_place_and_nothing_is_below_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is not a folder"):
        check_folders([tmp_path / "file"], force=True)
    with pytest.raises(OutputError, match="is not a folder"):
        check_folders([tmp_path / "file" / "run"], force=True)


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    check_folders([tmp_path / "a" / "b", tmp_path / "c"], force=False)
    check_files([tmp_path / "a" / "f"], force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_refuses_is_found_by_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match=r"cannot write .*Read-only file system"):
        check_folders([tmp_path / "a" / "run"], force=False)
    with pytest.raises(OutputError, match=r"cannot write .*Read-only file system"):
        check_files([tmp_path / "a" / "file"], force=False)


def _failing(name: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, calls: int = 0) -> None:
    """Make a function of the module fail after some calls that succeed."""
    real: Callable[..., Any] = getattr(atomic_folder, name)
    left = [calls]

    def fail(*arguments: Any) -> Any:
        if left[0] == 0:
            left[0] = -1
            raise error
        left[0] -= 1
        return real(*arguments)

    monkeypatch.setattr(atomic_folder, name, fail)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["sync", "_rename", "publish"])
def test_whatever_fails_while_publishing_nothing_is_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    _failing(step, error, monkeypatch)
    with pytest.raises(FileError if isinstance(error, OSError) else KeyboardInterrupt):
        publish(tmp_path / "run", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_whatever_fails_while_replacing_the_old_run_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool, error: BaseException
) -> None:
    publish(tmp_path / "run", "old")
    if can_exchange:
        _failing("_exchange", error, monkeypatch)
    else:
        monkeypatch.setattr(atomic_folder, "_exchange", lambda left, right: False)
        _failing("_rename", error, monkeypatch, calls=1)  # the old one is aside when the new one fails
    with pytest.raises(FileError if isinstance(error, OSError) else KeyboardInterrupt):
        publish(tmp_path / "run", "new", force=True)
    assert contents(tmp_path) == {"run/summary.json": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_everything_is_on_the_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    rename = atomic_folder._rename

    def noted_sync(path: Path) -> None:
        steps.append(f"sync {path.name[:1]}")
        sync(path)

    def noted_rename(old: Path, new: Path) -> None:
        steps.append("rename")
        rename(old, new)

    monkeypatch.setattr("fedsim.report.atomic_folder.sync", noted_sync)
    monkeypatch.setattr(atomic_folder, "_rename", noted_rename)
    with staged(tmp_path / "run") as hidden:
        (hidden / "f").write_text("x")
    assert steps == ["sync f", "sync .", "rename", f"sync {tmp_path.name[:1]}"]


def test_what_a_killed_run_has_left_is_swept_and_what_runs_is_not(tmp_path: Path) -> None:
    script = (
        "import sys, os, pathlib\n"
        "from fedsim.report.atomic_folder import staged\n"
        "with staged(pathlib.Path(sys.argv[1])) as hidden:\n"
        "    (hidden / 'half').write_text('x')\n"
        "    os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "run"], check=False)  # noqa: S603
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    assert (left[0] / "half").exists()
    with staged(tmp_path / "slow") as running:
        publish(tmp_path / "quick", "x")
        assert running.exists()
        assert not left[0].exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["quick", "slow"]


def test_a_hidden_folder_that_another_process_sweeps_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def mkdir(folder: Path, *settings: Any, **more: Any) -> None:
        os.mkdir(folder)  # noqa: PTH102
        made.append(folder)
        if len(made) in (1, 2):  # that of the check, and the first one to write into
            atomic_folder._sweep(tmp_path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    check_folders([tmp_path / "run"], force=False)
    publish(tmp_path / "run", "x")
    assert len(made) == 3
    assert contents(tmp_path) == {"run/summary.json": "x"}


@pytest.mark.parametrize("fault", ["open", "write", "fsync", "replace"])
def test_a_file_is_replaced_whole_or_not(tmp_path: Path, disk: Any, fault: str) -> None:
    file = tmp_path / "f.csv"
    with disk.fails(None) as calls:
        write_file(file, b"old")
    with disk.fails(calls.index(fault)), pytest.raises(FileError, match="No space left"):
        write_file(file, b"new")
    assert contents(tmp_path) == {"f.csv": "old"}
    write_file(file, b"new")
    assert contents(tmp_path) == {"f.csv": "new"}
    umask = os.umask(0o022)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_file_is_in_the_way_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(OutputError, match="the option force"):
        check_files([tmp_path / "f"], force=False)
    check_files([tmp_path / "f"], force=True)
    for force in (False, True):  # neither the switch nor anything else puts a file where a folder is
        with pytest.raises(OutputError, match="is a folder, where no file can be"):
            check_files([tmp_path], force=force)
