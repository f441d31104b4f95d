import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.messages import Reply
from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FileError, UserError
from fedsim.wire import Frame

UP = 3, 5
SAID = (0.75, 0.5), "[]"
UNSAID = (0.0, 0.0), None
FRAME = Frame(b"headonetwo", 10)


def reply(
    folder: StateFolder, key: tuple[int, int] = UP, said: Any = SAID, frame: Frame | None = FRAME
) -> Reply:
    spent_s, notes = said
    return Reply(key, frame, spent_s, notes, state=folder.pending(key[0]))


def keep(folder: StateFolder, *replies: Reply) -> None:
    for one in replies:
        asyncio.run(folder.keep(one))


def filled(path: Path) -> None:
    """Leave a folder with the state of client 4, and a reply of client 3 that its state goes with."""
    one = StateFolder(path)
    for client, gone in ((4, True), (3, False)):
        one.put(client, b"state")
        keep(one, reply(one, (client, 6), UNSAID))
        if gone:
            one.forget((client, 6))
    one.close()


def test_session_and_run_are_kept(tmp_path: Path) -> None:
    one = StateFolder(tmp_path / "a" / "b")
    assert len(one.session) == 32
    assert one.run == ""
    one.begin("0" * 32)
    one.close()
    other = StateFolder(tmp_path / "a" / "b")
    assert (other.session, other.run) == (one.session, "0" * 32)
    other.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    with pytest.raises(UserError, match="another process uses the state folder"):
        StateFolder(tmp_path)
    one.close()
    one.close()
    StateFolder(tmp_path).close()


def test_nothing_is_written_into_a_folder_that_was_let_go(tmp_path: Path) -> None:
    """A thread may begin with it when its process has been stopped already."""
    one = StateFolder(tmp_path)
    one.close()
    keep(one, reply(one))
    other = StateFolder(tmp_path)
    assert other.replies() == []
    other.close()


def test_a_state_is_durable_with_its_reply(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"state")
    one.put(4, b"other")
    assert one.get(3) == b"state"
    assert one.get(9) is None
    keep(one, reply(one), reply(one, (4, 0), UNSAID, None))
    one.put(3, b"newer, without an reply")
    assert one.get(3) == b"newer, without an reply"
    one.close()
    other = StateFolder(tmp_path)
    assert [other.get(client) for client in (3, 4, 5)] == [b"state", b"other", None]
    kept, alone = other.replies()
    assert (kept.key, kept.spent_s, kept.notes) == (UP, *SAID)
    assert (alone.key, alone.spent_s, alone.notes, alone.frame) == ((4, 0), *UNSAID, None)
    assert kept.frame is not None
    assert kept.frame.join() == b"headonetwo"
    assert len(kept.frame) == 10
    other.forget(UP)
    assert len(other.replies()) == 1
    assert other.get(3) == b"state"
    other.close()


def test_a_state_that_came_later_does_not_go_with_an_earlier_reply(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"first")
    first = reply(one)
    one.put(3, b"second")  # the disk is slow
    keep(one, first)
    assert one.get(3) == one.pending(3) == b"second"
    one.close()
    other = StateFolder(tmp_path)
    assert (other.get(3), other.pending(3)) == (b"first", None)
    other.close()


def test_the_newest_reply_has_the_state_until_it_is_taken(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    later, alone = (3, 16), (3, 17)
    for key, state in ((UP, b"old"), (later, b"new"), (alone, None)):
        if state is not None:
            one.put(3, state)
        keep(one, reply(one, key))
    one.close()
    (tmp_path / "states" / "3.part").write_bytes(b"half")
    names = ["3-5.state", "3-16.state", "3-17"]
    for key in (UP, later, alone, UP):
        other = StateFolder(tmp_path)
        assert [path.name for path in other._reply_files()] == names
        assert other.get(3) == b"new"
        other.forget(key)
        assert other.get(3) == b"new"
        other.close()
        names = names[1:]
    assert [path.name for path in (tmp_path / "states").iterdir()] == ["3"]


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "without its last byte": lambda whole: whole[:-1],
    "with one more": lambda whole: whole + b"x",
    "empty": lambda whole: b"",
    "another first byte": lambda whole: b"x" + whole[1:],
}


def check_use(path: Path, error: type[Exception], match: str) -> None:
    """Check that who uses the folder is told what is wrong."""

    def use() -> None:
        with closing(StateFolder(path)) as state:
            for client in (3, 4, 5):
                state.get(client)
            state.replies()

    with pytest.raises(error, match=match):
        use()


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("session", "states/4", "replies/3-6.state"):
        path, whole = tmp_path / name, (tmp_path / name).read_bytes()
        for spoil in SPOILT.values():
            path.write_bytes(spoil(whole))
            check_use(tmp_path, UserError, f"{name}' of the state folder is damaged")
        path.write_bytes(whole)
    whole = (tmp_path / "replies" / "3-6.state").read_bytes()
    for name in (
        "states/5",
        "states/4",
        "replies/5-5",
        "replies/3-7",
        "session",
    ):  # a file in the place of another
        path = tmp_path / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(whole)
        why = "it is that of dispatch 6" if name == "replies/3-7" else "its checksum is wrong"
        check_use(tmp_path, UserError, f"{name}' of the state folder is damaged .{why}")
        path.unlink() if before is None else path.write_bytes(before)
    path = tmp_path / "session"
    path.write_bytes(path.read_bytes().replace(b"fedsim state 7", b"fedsim state 6"))
    check_use(tmp_path, UserError, "is of another version of fedsim")


def test_what_is_no_file_or_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    check_use(tmp_path / "file", FileError, r"cannot use the state folder .*file: Not a directory")
    for number, name in enumerate(("session", "states/4", "replies/3-6.state", "states/3.part", "lock")):
        folder = tmp_path / str(number)
        filled(folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
        why = rf"cannot (read|use the state folder) .*{name}: Is a directory\. "
        check_use(folder, FileError, why)


def _modes(path: Path) -> dict[str, int]:
    places = [path, *path.rglob("*")]
    return {str(place.relative_to(path)): stat.S_IMODE(place.stat().st_mode) for place in places}


PRIVATE = {
    ".": 0o700,
    "replies": 0o700,
    "replies/3-6.state": 0o600,
    "lock": 0o600,
    "session": 0o600,
    "states": 0o700,
    "states/4": 0o600,
}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("is_there", [False, True])
def test_nobody_else_can_look_into_a_folder(tmp_path: Path, umask: int, is_there: bool) -> None:
    folder = tmp_path / "state"
    if is_there:
        folder.mkdir(0o777)
        folder.chmod(0o777)
    before = os.umask(umask)
    try:
        filled(folder)
    finally:
        os.umask(before)
    assert _modes(folder) == PRIVATE
    for place in [folder, *folder.rglob("*")]:
        place.chmod(0o755)
    StateFolder(folder).close()
    assert _modes(folder) == PRIVATE


def test_a_folder_with_other_things_is_not_taken_from_others(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("for everybody")
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match=r"open to other users and holds more than states \('thesis'\)"):
        StateFolder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o700)
    StateFolder(tmp_path).close()


def test_whatever_the_disk_refuses_the_folder_goes_on(tmp_path: Path, disk: Any) -> None:
    later = 3, 6

    def work(folder: Path) -> list[bytes]:
        """Take up what is there, and do what is left; return the states that were durable in turn."""
        state, durable = StateFolder(folder), []
        try:
            state.begin("0" * 32)
            last = max((one.key[1] for one in state.replies()), default=0)
            durable.append(state.get(3) or b"")
            for key, after in ((UP, b"one"), (later, b"two")):
                if key[1] > last:
                    state.put(3, after)
                    keep(state, reply(state, key))
            state.forget(UP)
            return [*durable, state.get(3) or b""]
        finally:
            state.close()

    with disk.fails(None) as calls:
        assert work(tmp_path / "whole") == [b"", b"two"]
    assert len(calls) >= 30
    for number, name in enumerate(calls):
        folder = tmp_path / str(number)
        why = rf"cannot .*{folder}.*: No space left on device\..* start this process again"
        with disk.fails(number), pytest.raises(FileError, match=why):
            work(folder)
        found, after = work(folder)
        assert (found in (b"", b"one", b"two"), after) == (True, b"two"), (number, name)
        assert {str(p.relative_to(folder)) for p in folder.rglob("*")} == {
            *("replies", "replies/3-6.state", "lock", "session", "states", "states/3")
        }
