"""Checkpoints: what a run needs to go on, in ``checkpoints/`` of its folder.

=================== =========================================================================================
``journal.msgpack`` what values decided since the beginning (:mod:`fedsim.runtime.past.journal`)
``N.checkpoint``    what was alive after round N (:mod:`fedsim.runtime.past.snapshot`), and how far trace, log
                    and journal had come; the arrays are named by file, place, form and digest
``N.arrays``        the bytes of the arrays that no checkpoint before had
=================== =========================================================================================

A checkpoint is written when all that it needs is on the disk, and moved into place. Every byte that is read
back is checked by a digest; a damaged checkpoint is passed over for the one before. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgpack
import numpy as np

from fedsim import durable
from fedsim.data.fingerprints import Fingerprint
from fedsim.errors import DecodeError
from fedsim.params import Array
from fedsim.report.atomic_folder import MEND, write_file
from fedsim.runtime.past.journal import AnySnapshot
from fedsim.runtime.past.repeated_hooks import differs
from fedsim.runtime.state_encoding import Reader, StateLimits, Writer
from fedsim.walk import little_endian, octets

FOLDER = "checkpoints"
JOURNAL = f"{FOLDER}/journal.msgpack"
FORMAT = "fedsim checkpoint 3"

MAX_DEAD_SHARE = 0.5
"""Share of the bytes of an older file that may be of no use before its arrays are written anew."""

_SUFFIX, _ARRAYS = ".checkpoint", ".arrays"
_LIMITS = StateLimits(frame_bytes=2**44, envelope_bytes=2**31, arrays=2**31, values=2**31)
_DIGEST_BYTES = 16

Known: TypeAlias = Callable[..., Any]
"""Gives an object of the run by what it is called."""

Load: TypeAlias = Callable[[Collection[type], Known], Any]
"""Gives what was alive, told which classes may occur and what gives known objects."""

Place: TypeAlias = tuple[int, int, int, bytes]
"""Where an array is: number of the file, offset, length in bytes, digest."""


class Position(NamedTuple):
    """How far a file had come.

    Attributes:
        num_bytes: Its length.
        digest: Of its content, hexadecimal.
    """

    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, but for what was alive.

    Attributes:
        rounds: Rounds that had ended.
        at_ns: Virtual time, ns.
        data: The fingerprint of the data.
        positions: How far trace, log and journal had come, by their paths in the folder.
        has_used_length: Whether something would have been different with another number of rounds.
        by: The name of the server that wrote it; empty in virtual time.
    """

    rounds: int
    at_ns: int
    data: Fingerprint
    positions: Mapping[str, Position]
    has_used_length: bool
    by: str = ""


PackedSnapshot: TypeAlias = tuple[bytes, Sequence[Array]]
"""What is alive as msgpack, and the arrays that it names by their numbers."""


def pack_snapshot(
    snapshot: AnySnapshot, classes: Collection[type], known: Mapping[int, Sequence[Any]] | None = None
) -> PackedSnapshot:
    """Return what is alive in the form of a checkpoint.

    Args:
        snapshot: What is alive.
        classes: The classes that may occur.
        known: Objects that every run of the scenario has, by identity: what each is called.

    Raises:
        TypeError, ValueError, OverflowError: It holds what no checkpoint can.
    """
    writer = Writer(_LIMITS, known, classes)
    return msgpack.packb(writer.tree(snapshot, "run")), writer.arrays


class CheckpointFolder:
    """The checkpoints of one run.

    Args:
        folder: Of the run.
        keep: How many are kept.
        place: What the folder of the run is called in errors; as it is, if left out.
    """

    def __init__(self, folder: Path, keep: int, place: Path | None = None) -> None:
        self.path = folder / FOLDER
        self._place = place or folder
        self._keep = keep
        # Where arrays are that are still in use; by identity, which nothing else has while they live.
        self._places: dict[int, tuple[weakref.ref[Array], Place]] = {}
        self._needs: dict[int, set[int]] = {}  # by checkpoint, the files of arrays

    def write(self, checkpoint: Checkpoint, packed_snapshot: PackedSnapshot) -> None:
        """Write a checkpoint, and remove the oldest ones.

        Args:
            checkpoint: Its values.
            packed_snapshot: What is alive, from :func:`pack_snapshot`.

        Raises:
            FileError: It cannot be written; the checkpoints before are as they were.
        """
        tree, arrays = packed_snapshot
        number = checkpoint.rounds
        places = self._placed(arrays, number)
        pairs = zip(places, arrays, strict=True)
        listed = [(*place, array.dtype.str, array.shape, array.flags.writeable) for place, array in pairs]
        values = tuple(getattr(checkpoint, one.name) for one in fields(checkpoint))
        packed = msgpack.packb((FORMAT, values, tree, listed))
        self._write(number, _SUFFIX, digest(packed), packed)
        self._needs[number] = {place[0] for place in places}
        self._remove_old()

    def _placed(self, arrays: Sequence[Array], number: int) -> list[Place]:
        """Write the arrays that are in no file yet; return where each one is."""
        known = [self._places.get(id(array)) for array in arrays]
        places = [
            entry[1] if entry is not None and entry[0]() is array else None
            for array, entry in zip(arrays, known, strict=True)
        ]
        wasteful = self._wasteful([place for place in places if place is not None])
        pieces, offset = list[memoryview](), 0
        for index, array in enumerate(arrays):
            place = places[index]
            if place is None or place[0] in wasteful:
                piece = octets(little_endian(array))
                pieces.append(piece)
                places[index] = number, offset, len(piece), digest(piece)
                offset += len(piece)
        if pieces:
            self._write(number, _ARRAYS, *pieces)
        found = [place for place in places if place is not None]
        self._places = {
            id(array): (weakref.ref(array), place)
            for array, place in zip(arrays, found, strict=True)
            if not array.flags.writeable  # or it may have other values when it is written again
        }
        return found

    def _wasteful(self, places: Sequence[Place]) -> set[int]:
        """Return the files of which the most part is of no use any more."""
        used: dict[int, int] = {}
        for number, _, length, _ in dict.fromkeys(places):
            used[number] = used.get(number, 0) + length
        return {
            number
            for number, length in used.items()
            if length < (1 - MAX_DEAD_SHARE) * self._file(number, _ARRAYS).stat().st_size
        }

    def _remove_old(self) -> None:
        """Remove all but the newest checkpoints, and the arrays that none of those needs."""
        with durable.telling(self._place, MEND):
            for number in self.numbers()[: -self._keep]:
                self._file(number, _SUFFIX).unlink()
                self._needs.pop(number, None)
            in_use = set[int]().union(*map(self._needed, self.numbers()))
            for file in self.path.glob(f"*{_ARRAYS}"):
                if int(file.stem) not in in_use:
                    file.unlink()

    def _needed(self, number: int) -> set[int]:
        """Return the numbers of the files of arrays that a checkpoint needs."""
        if number not in self._needs:
            self._needs[number] = {place[0] for place in self._read(number)[3]}
        return self._needs[number]

    # Reading

    def numbers(self) -> list[int]:
        """Return after which rounds there are checkpoints, ascending."""
        return sorted(int(file.stem) for file in self.path.glob(f"*{_SUFFIX}") if file.stem.isdigit())

    def read(self, number: int) -> tuple[Checkpoint, Load]:
        """Return a checkpoint, and what gives what was alive.

        Raises:
            DecodeError: It is damaged.
        """
        _, (rounds, at_ns, data, positions, *others), packed, listed = self._read(number)
        tree = msgpack.unpackb(packed, use_list=False, strict_map_key=False)
        arrays = list(self._arrays(listed))

        def load(classes: Collection[type], known: Known) -> Any:
            snapshot = Reader(arrays, classes, _LIMITS, known, is_trusted=True).value(tree, "run")
            self._places = {
                id(array): (weakref.ref(array), tuple(place))
                for array, (*place, _, _, is_writeable) in zip(arrays, listed, strict=True)
                if not is_writeable
            }
            return snapshot

        reached = {name: Position(*position) for name, position in positions.items()}
        return Checkpoint(rounds, at_ns, data, reached, *others), load

    def _arrays(self, listed: Sequence[Sequence[Any]]) -> Iterator[Array]:
        contents: dict[int, bytes] = {}
        for number, offset, length, known, dtype, shape, is_writeable in listed:
            if number not in contents:
                contents[number] = self._content(number, _ARRAYS)
            piece = contents[number][offset : offset + length]
            if digest(piece) != known:
                raise DecodeError(f"{number}{_ARRAYS} is damaged")
            array = np.frombuffer(piece, np.dtype(dtype)).reshape(shape)
            yield array.copy() if is_writeable else array

    def copy(self, number: int, to: Path) -> None:
        """Copy a checkpoint, and the arrays that it needs, into another folder of checkpoints.

        Raises:
            DecodeError: It is damaged.
        """
        with durable.telling(self._place, MEND):
            shutil.copy(self._file(number, _SUFFIX), to)
            for needed in self._needed(number):
                shutil.copy(self._file(needed, _ARRAYS), to)

    def remove_after(self, number: int, *, before_too: bool = False) -> None:
        """Remove the checkpoints after a round, or all others: the run goes on from there."""
        with durable.telling(self._place, MEND):
            for other in self.numbers():
                if other > number or (before_too and other < number):
                    self._file(other, _SUFFIX).unlink()

    def _read(self, number: int) -> Any:
        content = self._content(number, _SUFFIX)
        packed = content[_DIGEST_BYTES:]
        if digest(packed) != content[:_DIGEST_BYTES]:
            raise DecodeError(f"{number}{_SUFFIX} is damaged")
        whole = msgpack.unpackb(packed, use_list=False, strict_map_key=False)
        if whole[0] != FORMAT:
            raise DecodeError(f"{number}{_SUFFIX} is of another version of fedsim")
        return whole

    def _content(self, number: int, suffix: str) -> bytes:
        try:
            return self._file(number, suffix).read_bytes()
        except OSError as error:
            raise DecodeError(f"{number}{suffix} cannot be read: {error.strerror}") from None

    def _write(self, number: int, suffix: str, *pieces: bytes | memoryview) -> None:
        write_file(self._file(number, suffix), *pieces, place=self._place)

    def _file(self, number: int, suffix: str) -> Path:
        return self.path / f"{number}{suffix}"


class GrowingFile:
    """A file that grows, and knows the digest of its content.

    Args:
        path: The file.
        place: The folder that it belongs to, for errors.
        past: What is there of it and stays; None for a new file.
        is_repeated: Whether the past is written once more, until :meth:`go_on`, and has to be the same.
            Otherwise nothing that is written until then counts.
    """

    def __init__(
        self, path: Path, place: Path, past: bytes | None = None, *, is_repeated: bool = False
    ) -> None:
        self._path, self._place, self._past = path, place, past
        self._is_repeated, self._num_repeated = is_repeated, 0
        self._digest = hashlib.blake2b(past or b"", digest_size=_DIGEST_BYTES)
        self._num_bytes = len(past or b"")
        self._file = durable.create(path, place, MEND) if past is None else None

    def write(self, content: bytes) -> int:
        """Append bytes.

        Raises:
            RunError: The past is repeated, and there it has other bytes.
        """
        if self._file is None:
            if self._is_repeated:
                self._compare(content)
            return len(content)
        self._digest.update(content)
        self._num_bytes += len(content)
        return self._file.write(content)

    def go_on(self) -> None:
        """Append from now on what is written."""
        past = self._past or b""
        if self._is_repeated and self._num_repeated < len(past):
            raise differs(f"{self._path.name} is shorter than it was")
        self._file, self._past = durable.reopen(self._path, self._place, MEND, len(past)), None

    def position(self) -> Position:
        """Bring the file to the disk; return how far it has come."""
        if self._file is not None:
            self._file.flush()
            with durable.telling(self._place, MEND):
                os.fsync(self._file.fileno())
        return Position(self._num_bytes, self._digest.hexdigest())

    def close(self) -> None:
        """Close it; what is written afterwards is left out."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _compare(self, content: bytes) -> None:
        end = self._num_repeated + len(content)
        if self._past is None or self._past[self._num_repeated : end] != content:
            raise differs(f"{self._path.name} has other bytes from {self._num_repeated} on")
        self._num_repeated = end


def digest(content: bytes | memoryview) -> bytes:
    """Return 16 bytes that identify some bytes."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
