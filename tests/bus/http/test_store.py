from pathlib import Path

import pytest

from fedsim.bus import Header
from fedsim.bus.http.store import StateFolder
from fedsim.errors import UserError
from fedsim.wire import Frame

UP = Header(3, -1, 2, "train", 5, 4, 1)
SAID = {"s": (0.7, 0.5), "w": "[]"}
FRAME = Frame(b"head", (b"one", memoryview(b"two")), 10)


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


def test_a_state_is_durable_with_its_answer(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"state")
    one.put(4, b"other")
    assert one.get(3) == b"state"
    assert one.get(9) is None
    alone = Header(4, -1, 2, "train", 0, 0)
    one.turn([(UP, FRAME, one.pending(3), SAID), (alone, None, one.pending(4), {})], [])
    one.put(3, b"newer, without an answer")
    assert one.get(3) == b"newer, without an answer"
    one.close()
    other = StateFolder(tmp_path)
    assert [other.get(client) for client in (3, 4, 5)] == [b"state", b"other", None]
    (header, frame, said), *others = other.replies()
    assert (header, said, others) == (UP, SAID, [(alone, None, {})])
    assert frame is not None
    assert frame.join() == b"headonetwo"
    assert len(frame) == 10
    other.turn([], [UP])
    assert len(other.replies()) == 1
    assert other.get(3) == b"state"
    other.close()


def test_another_clients_answer_does_not_stand_for_an_equal_state(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"equal")
    one.turn([(UP, FRAME, one.pending(3), {})], [])
    one.close()
    states = tmp_path / "states"
    (states / "4.new").write_bytes(
        (states / "3").read_bytes()
    )  # a crash, before client 4's answer was written
    other = StateFolder(tmp_path)
    assert (other.get(3), other.get(4)) == (b"equal", None)
    other.close()


def test_a_state_that_came_later_does_not_go_with_an_earlier_answer(tmp_path: Path) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"first")
    first = UP, FRAME, one.pending(3), SAID
    one.put(3, b"second")  # the disk is slow
    one.turn([first], [])
    assert one.get(3) == one.pending(3) == b"second"
    one.close()
    other = StateFolder(tmp_path)
    assert (other.get(3), other.pending(3)) == (b"first", None)
    other.close()


@pytest.mark.parametrize("stands", [True, False])
def test_a_crash_between_state_and_answer(tmp_path: Path, stands: bool) -> None:
    one = StateFolder(tmp_path)
    one.put(3, b"old")
    one.turn([(UP, FRAME, one.pending(3), {})], [])
    one.put(3, b"new")
    later = Header(3, -1, 3, "train", 6, 5, 1)
    one.turn([(later, FRAME, one.pending(3), SAID)], [])
    one.close()
    # As it is before the last move: the new state beside the old one, its answer written or not.
    states = tmp_path / "states"
    new = (states / "3").read_bytes()
    (states / "3.new").write_bytes(new)
    if not stands:
        (tmp_path / "answers" / "3-6").unlink()
        (states / "3").unlink()
    (states / "3.part").write_bytes(b"half")
    other = StateFolder(tmp_path)
    assert other.get(3) == (b"new" if stands else None)
    assert sorted(path.name for path in states.iterdir()) == (["3"] if stands else [])
    other.close()


def test_a_folder_of_another_version_is_not_called_damaged(tmp_path: Path) -> None:
    StateFolder(tmp_path).close()
    path = tmp_path / "session"
    path.write_bytes(path.read_bytes().replace(b"fedsim state 2", b"fedsim state 1"))
    with pytest.raises(UserError, match="is of another version of fedsim"):
        StateFolder(tmp_path)


@pytest.mark.parametrize("name", ["session", "states/3", "answers/3-5"])
@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b"x" + b[1:]]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, spoil: object) -> None:
    assert callable(spoil)
    one = StateFolder(tmp_path)
    one.put(3, b"state")
    one.turn([(UP, FRAME, one.pending(3), {})], [])
    one.close()
    path = tmp_path / name
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(UserError, match=f"{name}' of the state folder is damaged"):
        _use(tmp_path)


def _use(path: Path) -> None:
    state = StateFolder(path)
    try:
        state.get(3)
        state.replies()
    finally:
        state.close()


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be used"):
        StateFolder(tmp_path / "file")
