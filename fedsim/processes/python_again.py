"""Starting Python again, where fedsim is found and nothing hides a module that it needs.

``python -m`` puts the working folder before the standard library, and so does an empty entry of PYTHONPATH:
then a file of the user's that is called ``statistics.py`` is imported instead of Python's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fedsim

HOME = str(Path(fedsim.__file__).parents[1])
"""Where Python finds fedsim."""


def python(*arguments: str) -> tuple[str, ...]:
    """Return a command that runs Python, without the working folder on its path."""
    return (sys.executable, "-P", *arguments)


def variables() -> dict[str, str]:
    """Return the variables of this process, with fedsim on Python's path."""
    paths = [HOME, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
