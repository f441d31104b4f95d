"""Keeping checkpoints of a run while it goes on, and going on from one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import msgpack

from fedsim.algorithms.contexts import Initial
from fedsim.clock import RecordKind, now_ns
from fedsim.clock.event_trace import stored_records
from fedsim.data import FederatedData
from fedsim.data.fingerprints import Fingerprint, differences, fingerprint
from fedsim.durable import telling
from fedsim.errors import DecodeError, FileError, JobError
from fedsim.report.atomic_folder import MEND
from fedsim.report.checkpoints import (
    FOLDER,
    JOURNAL,
    Checkpoint,
    CheckpointFolder,
    GrowingFile,
    Load,
    PackedSnapshot,
    Position,
    digest,
    pack_snapshot,
)
from fedsim.runtime.past.journal import AnySnapshot, Journal
from fedsim.runtime.past.past_work import PastWork
from fedsim.runtime.past.repeated_hooks import Past, differs
from fedsim.runtime.past.server_past import ServerPast, ServerSnapshot
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.run import kinds_of
from fedsim.runtime.start_values import StartValues
from fedsim.scenario.build import Plan
from fedsim.scenario.schema import CheckpointConfig

TRACE, LOG = "trace.msgpack", "log.jsonl"

FIRST_COST_S = 0.025
"""What the first checkpoint of a run is taken to cost, real s."""


@dataclass(frozen=True, eq=False)
class StoredPast:
    """A checkpoint from which a run can go on, whole and checked.

    Attributes:
        checkpoint: Its values.
        load: Gives what was alive.
        contents: What the growing files held, by name.
    """

    checkpoint: Checkpoint
    load: Load
    contents: Mapping[str, bytes]

    @classmethod
    def newest(
        cls,
        folder: Path,
        checkpoints: CheckpointFolder,
        tell: Callable[[str], object],
        suits: Callable[[Checkpoint], bool] = lambda checkpoint: True,
    ) -> StoredPast | None:
        """Return the newest checkpoint of a run that is whole and suits; None where there is none.

        Args:
            folder: Of the run.
            checkpoints: Its checkpoints.
            tell: Told of checkpoints that are damaged.
            suits: Says whether one suits.
        """
        for number in reversed(checkpoints.numbers()):
            try:
                checkpoint, load = checkpoints.read(number)
                if not suits(checkpoint):
                    continue
                contents = {name: _content(folder / name, at) for name, at in checkpoint.positions.items()}
                return cls(checkpoint, load, contents)
            except DecodeError as error:
                tell(f"the checkpoint after round {number} is not whole, and is passed over: {error}")
        return None

    def check(self, data: FederatedData) -> None:
        """Check that the run has the data that it had.

        Raises:
            RunError: It has others now.
        """
        if phrases := differences(fingerprint(data), self.checkpoint.data):
            raise differs(f"the data are not the same: {'; '.join(phrases)}")

    def past(self, plan: Plan, files: RunFiles) -> Past:
        """Return what the run repeats before it goes on; its trace is then compared with that in the files.

        Raises:
            RunError: The run has other data now.
        """
        self.check(plan.parts.data)
        kinds, checkpoint = kinds_of(plan.parts, plan.stages), self.checkpoint
        load = partial(self._loaded, Snapshot.classes(plan.parts, kinds))

        def end() -> None:
            if now_ns() != checkpoint.at_ns:
                raise differs(f"it ends at {now_ns()} ns, not at {checkpoint.at_ns} ns")
            files.go_on()

        entries = msgpack.Unpacker(BytesIO(self.contents[JOURNAL]), strict_map_key=False)
        work = PastWork(self._records())
        return Past(load, work, list(entries), checkpoint.rounds, kinds, end)

    def server_past(self, plan: Plan, files: RunFiles) -> ServerPast:
        """Return what a server goes on from, over sockets.

        Raises:
            RunError: The run has other data now.
        """
        self.check(plan.parts.data)
        classes = ServerSnapshot.classes(plan.parts, kinds_of(plan.parts))
        load = partial(self._loaded, classes)
        return ServerPast(load, list(self._records()), self.checkpoint.at_ns, files.go_on)

    def _loaded(self, classes: Collection[type], initial: Initial) -> Any:
        try:
            return self.load(classes, initial)
        except DecodeError as error:
            raise differs(str(error)) from None

    def _records(self) -> Iterator[tuple[RecordKind, list[Any]]]:
        return stored_records(BytesIO(self.contents[TRACE]))


def _content(file: Path, position: Position) -> bytes:
    """Return the first bytes of a file, if they are what they were."""
    try:
        with file.open("rb") as opened:
            content = opened.read(position.num_bytes)
    except OSError as error:
        raise DecodeError(f"{file.name} cannot be read: {error.strerror}") from None
    if digest(content).hex() != position.digest:
        raise DecodeError(f"{file.name} is damaged")
    return content


class RunFiles:
    """The files that grow while a run goes on; a context, which closes them.

    Args:
        folder: Of the run.
        place: What it is called in errors.
        past: What they hold already; None for new files.
        with_journal: Whether there is a journal.

    Attributes:
        by_name: The trace, the log and, if there is one, the journal, by their paths in the folder.
    """

    def __init__(self, folder: Path, place: Path, past: StoredPast | None, *, with_journal: bool) -> None:
        if with_journal:
            with telling(place, MEND):
                (folder / FOLDER).mkdir(exist_ok=True)
        self.by_name: dict[str, GrowingFile] = {}
        try:
            for name in (TRACE, LOG, JOURNAL) if with_journal else (TRACE, LOG):
                content = None if past is None else past.contents[name]
                file = GrowingFile(folder / name, place, content, is_repeated=name == TRACE)
                self.by_name[name] = file
        except BaseException:
            self.close()
            raise

    def positions(self) -> dict[str, Position]:
        """Bring all files to the disk; return how far each has come."""
        return {name: file.position() for name, file in self.by_name.items()}

    def go_on(self) -> None:
        """The past is over: append to the files from now on."""
        for file in self.by_name.values():
            file.go_on()

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; raise what the first of them raises."""
        refused = list[FileError]()
        for file in self.by_name.values():
            try:
                file.close()
            except FileError as error:
                refused.append(error)
        if refused:
            raise refused[0]


@dataclass(eq=False)
class CheckpointKeeper:
    """Keeps checkpoints of a run.

    Attributes:
        config: How often, and how many.
        data: The data of the run.
        files: The files of the run.
        checkpoints: Where they are kept.
        classes: The classes that may be in one.
        tell: Told if none can be kept.
        kept: Called after each.
        by: The name of the server that keeps them; empty in virtual time.
        journal: Notes what values decide.
    """

    config: CheckpointConfig
    data: FederatedData
    files: RunFiles
    checkpoints: CheckpointFolder
    classes: Collection[type]
    tell: Callable[[str], object]
    kept: Callable[[], object]
    by: str = ""
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal(self.files.by_name[JOURNAL].write)
        self._rounds = 0
        self._at_s, self._cost_s = perf_counter(), FIRST_COST_S
        self._is_over = False
        self._data: Fingerprint | None = None

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Count from a checkpoint on, from which the run goes on."""
        self._rounds, self._data = checkpoint.rounds, checkpoint.data

    def end_round(self, rounds: int, snapshot: Callable[[], AnySnapshot], initial: StartValues) -> bool:
        """Keep a checkpoint if it is time to; return whether it was."""
        if self._is_over or not self._is_due(rounds):
            return False
        began_s = perf_counter()
        if self.journal.fault is not None:
            self._give_up(self.journal.fault)
            return False
        try:
            alive = snapshot()
            packed = pack_snapshot(alive, self.classes, initial.names)
        except (TypeError, ValueError, OverflowError) as error:
            self._give_up(str(error))
            return False
        except JobError:  # which the run meets at its own time
            return False
        self._write(rounds, packed, alive.has_used_length)
        self.kept()
        self._rounds, self._at_s = rounds, perf_counter()
        self._cost_s = self._at_s - began_s
        return True

    def _is_due(self, rounds: int) -> bool:
        """Say whether enough rounds or enough time have passed, and enough time for what one costs."""
        passed_s = perf_counter() - self._at_s
        is_wanted = rounds - self._rounds >= self.config.every_rounds or passed_s >= self.config.every_real_s
        return is_wanted and passed_s * self.config.max_share >= self._cost_s

    def _write(self, rounds: int, packed: PackedSnapshot, has_used_length: bool) -> None:
        if self._data is None:
            self._data = fingerprint(self.data)
        positions = self.files.positions()
        checkpoint = Checkpoint(rounds, now_ns(), self._data, positions, has_used_length, self.by)
        self.checkpoints.write(checkpoint, packed)

    def _give_up(self, why: str) -> None:
        self._is_over = True
        self.tell(f"the run goes on without further checkpoints: {why}")
