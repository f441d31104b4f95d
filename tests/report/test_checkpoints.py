from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import DecodeError, RunError
from fedsim.params import Model, freeze
from fedsim.report.checkpoints import Checkpoint, CheckpointFolder, GrowingFile, Position, pack_snapshot
from fedsim.runtime.clients.held import Held
from fedsim.runtime.past.snapshot import Snapshot

CLASSES = (Snapshot, Held, Model)


def model(value: float, size: int = 4) -> Model:
    return Model("mlp", freeze({"w": np.full(size, value, np.float32)}), {})


def snapshot(state: Any = None, held: Any = None) -> Snapshot:
    return Snapshot(state, held or {}, {}, {})


def checkpoint(rounds: int) -> Checkpoint:
    return Checkpoint(
        rounds, 10**9 * rounds, {"task": "#1"}, {"log.jsonl": Position(rounds, "ab")}, rounds > 1
    )


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    (tmp_path / "checkpoints").mkdir()
    return CheckpointFolder(tmp_path, keep=2)


def nothing_known(*name: Any) -> Any:
    raise LookupError(name)


def read(folder: CheckpointFolder, number: int, known: Callable[..., Any] = nothing_known) -> Snapshot:
    alive: Snapshot = folder.read(number)[1](CLASSES, known)
    return alive


def write(folder: CheckpointFolder, values: Checkpoint, alive: Snapshot, known: Any = None) -> None:
    folder.write(values, pack_snapshot(alive, CLASSES, known))


def files(folder: CheckpointFolder) -> set[str]:
    return {file.name for file in folder.path.iterdir()}


def test_what_was_alive_comes_back(folder: CheckpointFolder) -> None:
    shared = model(1.0)
    write(folder, checkpoint(3), snapshot(shared, {7: Held(2, shared, (model(2.0), None))}))
    assert folder.read(3)[0] == checkpoint(3)
    back = read(folder, 3)
    assert back.state is back.held[7].merged
    assert back.state.digest() == shared.digest()
    assert back.held[7].otherwise[0].digest() == model(2.0).digest()
    assert not back.state.params["w"].flags.writeable


def test_objects_of_every_run_are_named_alone(folder: CheckpointFolder) -> None:
    start = model(1.0)
    write(folder, checkpoint(1), snapshot(start), {id(start): ("mlp", 0)})
    assert files(folder) == {"1.checkpoint"}
    assert read(folder, 1, lambda label, variant: (label, variant)).state == ("mlp", 0)


def test_an_array_is_in_one_file_however_many_checkpoints_need_it(folder: CheckpointFolder) -> None:
    lasting = model(1.0, 100)
    for rounds in (1, 2, 3):
        write(folder, checkpoint(rounds), snapshot(model(float(rounds), 1), {0: Held(0, lasting, lasting)}))
    assert files(folder) == {"1.arrays", "2.arrays", "3.arrays", "2.checkpoint", "3.checkpoint"}
    assert (folder.path / "3.arrays").stat().st_size == 4
    assert read(folder, 3).held[0].merged.digest() == lasting.digest()


def test_files_go_when_no_checkpoint_needs_them(folder: CheckpointFolder) -> None:
    lasting = model(1.0, 10)
    for rounds in (1, 2, 3, 4):  # the file of round 1 holds more of no use than of use
        write(folder, checkpoint(rounds), snapshot(model(float(rounds), 100), {0: Held(0, lasting, lasting)}))
    assert files(folder) == {"3.arrays", "4.arrays", "3.checkpoint", "4.checkpoint"}


def test_a_run_that_goes_on_writes_no_array_anew(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, checkpoint(1), snapshot(model(1.0)))
    later = CheckpointFolder(tmp_path, keep=2)
    back = read(later, 1)
    write(later, checkpoint(2), back)
    assert files(later) == {"1.arrays", "1.checkpoint", "2.checkpoint"}


@pytest.mark.parametrize("name", ["3.checkpoint", "3.arrays"])
def test_damage_of_any_byte_is_found(folder: CheckpointFolder, name: str) -> None:
    write(folder, checkpoint(3), snapshot(model(1.0, 2)))
    file = folder.path / name
    whole = file.read_bytes()
    for place in range(len(whole)):
        for spoilt in (whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], whole[:place]):
            file.write_bytes(spoilt)
            with pytest.raises(DecodeError):
                folder.read(3)
    file.unlink()
    with pytest.raises(DecodeError, match="cannot be read"):
        folder.read(3)


def test_what_no_checkpoint_can_hold_is_said_and_nothing_is_written(folder: CheckpointFolder) -> None:
    with pytest.raises(TypeError, match=r"run\.state: a set cannot be part of a state"):
        write(folder, checkpoint(1), snapshot({1, 2}))
    assert files(folder) == set()


@dataclass(frozen=True)
class Unknown:
    """A record of a module that the algorithm does not name."""


@pytest.mark.parametrize("value", [Unknown(), Counter("a"), {1, 2}, 2**100, "\ud800"])
def test_what_could_not_be_read_back_is_not_packed(value: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        pack_snapshot(snapshot(value), CLASSES)


def test_arrays_lie_in_memory_as_before(folder: CheckpointFolder) -> None:
    plain = np.arange(24.0).reshape(2, 3, 4)
    views = (plain, np.asfortranarray(plain), plain.transpose(1, 2, 0), plain[:, :2])
    write(folder, checkpoint(1), snapshot(views))
    for back, view in zip(read(folder, 1).state, views, strict=True):
        np.testing.assert_array_equal(back, view)
        assert view is views[3] or back.strides == view.strides


def test_an_array_that_may_change_is_written_each_time(folder: CheckpointFolder) -> None:
    array = np.zeros(3)
    write(folder, checkpoint(1), snapshot(array))
    array += 1
    write(folder, checkpoint(2), snapshot(array))
    back = read(folder, 2).state
    assert back.tolist() == [1.0, 1.0, 1.0]
    back += 1


def test_later_checkpoints_go_when_the_run_goes_on_from_one(folder: CheckpointFolder) -> None:
    for rounds in (1, 2):
        write(folder, checkpoint(rounds), snapshot())
    folder.remove_after(1)
    assert folder.numbers() == [1]
    write(folder, checkpoint(2), snapshot())
    folder.remove_after(2, before_too=True)
    assert folder.numbers() == [2]


def test_a_file_that_is_repeated_has_the_same_bytes_and_grows_from_there(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"abcdefgh")
    file = GrowingFile(path, tmp_path, b"abcd", is_repeated=True)
    file.write(b"ab")
    with pytest.raises(RunError, match="trace is shorter than it was"):
        file.go_on()
    file.write(b"cd")
    assert path.read_bytes() == b"abcdefgh"
    file.go_on()
    file.write(b"EF")
    assert file.position() == Position(6, _digest(tmp_path, b"abcdEF"))
    assert path.read_bytes() == b"abcdEF"
    with pytest.raises(RunError, match="trace has other bytes from 0 on"):
        GrowingFile(path, tmp_path, b"abcd", is_repeated=True).write(b"aX")
    file.close()


def test_what_is_written_of_a_past_that_is_not_repeated_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree\n")
    file = GrowingFile(path, tmp_path, b"one\ntwo\n")
    file.write(b"one\n")
    file.go_on()
    file.write(b"four\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\nfour\n"


def _digest(folder: Path, content: bytes) -> str:
    file = GrowingFile(folder / "other", folder)
    file.write(content)
    digest = file.position().digest
    file.close()
    return digest
