"""Everything fedsim raises on purpose.

::

    FedsimError
    ├── UserError            the user's mistake: exit status 2, never a traceback
    │   ├── ScenarioError    one or more faults of a scenario, all at once
    │   ├── UnitError        a quantity that is not a number with a unit of the right dimension
    │   ├── UnknownPluginError  a name that no plugin has
    │   ├── DataError        a data set, file or partition that does not fit the settings
    │   └── OutputError      a place that results cannot be written to
    ├── RunError             a run failed: exit status 1
    │   ├── FileError        a file of fedsim's own that the system refuses to write or read
    │   ├── DeadlockError    nothing can ever happen again, and a task still waits
    │   ├── LivelockError    events without end at one instant
    │   ├── JobError         a training job raised
    │   ├── MergeError       a merge gave values that are not finite; its round fails
    │   └── InvariantError   fedsim broke a promise of its own (a bug in fedsim or in a plugin)
    ├── DecodeError          bytes from a peer that are not a valid frame: dropped and counted
    └── VirtualTimeError     something that cannot work on the virtual-time loop; says what to use instead

A message gives the value, the rule and what to write instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedsim.quoting import MAX_SHOWN, shortened


class FedsimError(Exception):
    """Base of every error that fedsim raises on purpose."""


class UserError(FedsimError):
    """A mistake of the user; the message teaches how to mend it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a scenario.

    Attributes:
        path: The setting's path as in an override, such as ``fleet.0.count``; empty for the whole file.
        problem: The value and the rule that it breaks.
        mend: What to write instead; empty where the problem says so already.
    """

    path: str
    problem: str
    mend: str = ""

    def __str__(self) -> str:
        where = f"{shortened(self.path, MAX_SHOWN)}: " if self.path else ""
        return f"{where}{self.problem}" + (f" — {self.mend}" if self.mend else "")


class ScenarioError(UserError):
    """All faults of a scenario at once.

    Attributes:
        faults: At least one fault, in the order of the file.
        source: The file's name, or another word for where the scenario came from.
    """

    def __init__(self, faults: Sequence[Fault], source: str = "scenario") -> None:
        self.faults = tuple(faults)
        self.source = source
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(
            "\n".join([f"{shortened(source, MAX_SHOWN)}: {count}", *(f"  {fault}" for fault in self.faults)])
        )


class UnitError(UserError):
    """A quantity that is not a number with a unit of the right dimension."""


class UnknownPluginError(UserError):
    """A name that no plugin has; the message names the nearest one.

    Attributes:
        is_there: Whether a module has that name; the message then says why it is no plugin.
    """

    def __init__(self, message: str, *, is_there: bool = False) -> None:
        super().__init__(message)
        self.is_there = is_there


class DataError(UserError):
    """A data set, a file or a partition that does not fit the settings.

    Attributes:
        setting: The parameter to be changed, of whatever raised the error; empty where that is not known.
    """

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


class OutputError(UserError):
    """A place that results cannot be written to."""


class RunError(FedsimError):
    """A run failed."""


class FileError(RunError):
    """A file of fedsim's own that the system refuses to write or read, such as on a full disk."""


class DeadlockError(RunError):
    """Nothing is runnable, nothing is scheduled, and a task still waits."""


class LivelockError(RunError):
    """Too many events at one virtual instant."""


class JobError(RunError):
    """A training job raised; the cause is chained."""


class MergeError(RunError):
    """A merge gave values that are not finite: the state stays, and the round fails."""


class InvariantError(RunError):
    """A promise of fedsim was broken: a bug in fedsim or in a plugin, not in a scenario."""


class DecodeError(FedsimError):
    """Bytes from a peer that are not a valid frame of a known kind."""


class VirtualTimeError(FedsimError):
    """Something that cannot work on the virtual-time loop."""
