"""Reading the files of results, which may be damaged, or gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedsim.errors import OutputError
from fedsim.quoting import MOST_SAID, shortened

T = TypeVar("T")


def read_whole(file: Path, how: Callable[[Path], T]) -> T:
    """Read a file of results.

    Raises:
        OutputError: It is not there, or damaged.
    """
    try:
        return how(file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = shortened(error, MOST_SAID)
        raise OutputError(f"{file} cannot be read, so these results are not whole: {said}") from error
