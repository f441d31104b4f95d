"""What a client process must not forget. A disk that refuses something: test_faults.py."""

import asyncio
import os
import stat
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
    with closing(StateFolder(path)) as one:
        for client, gone in ((4, True), (3, False)):
            one.put(client, b"state")
            keep(one, reply(one, (client, 6), UNSAID))
            if gone:
                one.forget((client, 6))


def test_one_process_at_a_time_for_one_session_of_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with closing(StateFolder(folder)) as one:
        assert (len(one.session), one.run) == (32, "")
        one.begin("0" * 32)
        with pytest.raises(UserError, match="another process uses the state folder"):
            StateFolder(folder)
        one.close()
    keep(one, reply(one))  # a thread may begin with it when its process has been stopped already
    with closing(StateFolder(folder)) as other:
        assert (other.session, other.run) == (one.session, "0" * 32)
        assert other.replies() == []


def test_a_state_is_durable_with_its_reply(tmp_path: Path) -> None:
    with closing(StateFolder(tmp_path)) as one:
        one.put(3, b"state")
        one.put(4, b"other")
        assert (one.get(3), one.get(9)) == (b"state", None)
        keep(one, reply(one), reply(one, (4, 0), UNSAID, None))
        one.put(3, b"newer, without a reply")
        assert one.get(3) == b"newer, without a reply"
        one.put(5, b"first")
        first = reply(one, (5, 0))
        one.put(5, b"second")  # it does not go with an earlier reply, though the disk is slow
        keep(one, first)
        assert one.get(5) == one.pending(5) == b"second"
    with closing(StateFolder(tmp_path)) as other:
        assert [other.get(client) for client in (3, 4, 5, 6)] == [b"state", b"other", b"first", None]
        assert other.pending(5) is None
        kept, alone, _ = other.replies()
        assert (kept.key, kept.spent_s, kept.notes) == (UP, *SAID)
        assert (alone.key, alone.spent_s, alone.notes, alone.frame) == ((4, 0), *UNSAID, None)
        assert kept.frame is not None
        assert (kept.frame.join(), len(kept.frame)) == (b"headonetwo", 10)
        other.forget(UP)
        assert [one.key for one in other.replies()] == [(4, 0), (5, 0)]
        assert other.get(3) == b"state"


def test_the_newest_reply_has_the_state_until_it_is_taken(tmp_path: Path) -> None:
    later, alone = (3, 16), (3, 17)
    with closing(StateFolder(tmp_path)) as one:
        for key, state in ((UP, b"old"), (later, b"new"), (alone, None)):
            if state is not None:
                one.put(3, state)
            keep(one, reply(one, key))
    (tmp_path / "states" / "3.part").write_bytes(b"half")
    names = ["3-5.state", "3-16.state", "3-17"]
    for key in (UP, later, alone, UP):
        with closing(StateFolder(tmp_path)) as other:
            assert sorted(path.name for path in (tmp_path / "replies").iterdir()) == sorted(names)
            assert [f"{one.key[0]}-{one.key[1]}" for one in other.replies()] == [
                name.removesuffix(".state") for name in names
            ]
            assert other.get(3) == b"new"
            other.forget(key)
            assert other.get(3) == b"new"
        names = names[1:]
    assert [path.name for path in (tmp_path / "states").iterdir()] == ["3"]


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
    contents = {name: (tmp_path / name).read_bytes() for name in ("session", "states/4", "replies/3-6.state")}
    reply = contents["replies/3-6.state"]
    spoilt = [
        (name, bad, "its checksum is wrong")
        for name, whole in contents.items()
        for bad in (whole[:-1], whole + b"x", b"", b"x" + whole[1:])
    ]
    # And a file in the place of another.
    spoilt += [(name, reply, "its checksum is wrong") for name in ("states/5", "states/4", "replies/5-5")]
    spoilt += [("session", reply, "its checksum"), ("replies/3-7", reply, "it is that of dispatch 6")]
    for name, bad, why in spoilt:
        (tmp_path / name).write_bytes(bad)
        check_use(tmp_path, UserError, f"{name}' of the state folder is damaged .{why}")
        if name in contents:
            (tmp_path / name).write_bytes(contents[name])
        else:
            (tmp_path / name).unlink()
    (tmp_path / "session").write_bytes(contents["session"].replace(b"fedsim state 7", b"fedsim state 6"))
    check_use(tmp_path, UserError, "is of another version of fedsim")


def test_what_is_no_file_or_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    check_use(tmp_path / "file", FileError, r"cannot use the state folder .*file: Not a directory")
    for number, name in enumerate(("session", "states/4", "replies/3-6.state", "states/3.part", "lock")):
        folder = tmp_path / str(number)
        filled(folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
        check_use(folder, FileError, rf"cannot (read|use the state folder) .*{name}: Is a directory\. ")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("is_there", [False, True])
def test_nobody_else_can_look_into_a_folder(tmp_path: Path, umask: int, is_there: bool) -> None:
    def modes() -> dict[str, int]:
        return {
            str(place.relative_to(tmp_path)): stat.S_IMODE(place.stat().st_mode)
            for place in (folder, *folder.rglob("*"))
        }

    folder = tmp_path / "state"
    if is_there:
        folder.mkdir()
        folder.chmod(0o777)
    before = os.umask(umask)
    try:
        filled(folder)
    finally:
        os.umask(before)
    private = dict.fromkeys(("state", "state/replies", "state/states"), 0o700)
    files = ("replies/3-6.state", "lock", "session", "states/4")
    private |= {f"state/{name}": 0o600 for name in files}
    assert modes() == private
    for name in private:
        (tmp_path / name).chmod(0o755)
    StateFolder(folder).close()
    assert modes() == private


def test_a_folder_with_other_things_is_not_taken_from_others(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("for everybody")
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match=r"open to other users and holds more than states \('thesis'\)"):
        StateFolder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o700)
    StateFolder(tmp_path).close()
