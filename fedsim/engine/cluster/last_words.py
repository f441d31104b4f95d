"""What is said of this process when it is ended without a word.

Ray ends a process at once, with status 1 and in silence, when the connection to its own node breaks. Nothing
in Python runs then, so another process says what has happened.
"""

from __future__ import annotations

import subprocess
import sys

_SAY_AT_THE_END = "import os, sys; os.read(0, 1) or os.write(2, sys.argv[1].encode())"
"""Waits for one byte, and says the words if there is none when the other end closes."""


class LastWords:
    """Words that go to the standard error if this process ends before they are taken back.

    Args:
        words: What to say.
    """

    def __init__(self, words: str) -> None:
        # A session of its own: it outlives this process, and Ctrl-C.
        self._process = subprocess.Popen(  # noqa: S603
            (sys.executable, "-I", "-S", "-c", _SAY_AT_THE_END, f"{words}\n"),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def take_back(self) -> None:
        """Let them be."""
        self._process.communicate(b".")
