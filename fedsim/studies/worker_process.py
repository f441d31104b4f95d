"""A process that does runs of a study: ``python -m fedsim.studies.worker_process``.

Tasks come as lines of JSON on its standard input, and what becomes of them goes out as lines of JSON on its
standard output. When its input ends, as it does when the study is killed, the process ends too, and leaves
nothing half-written.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any


def main() -> None:
    """Do tasks until there are no more."""
    # What plugins print must not get between the lines.
    outlet = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    tasks, has_ended = SimpleQueue[dict[str, Any] | None](), threading.Event()
    threading.Thread(target=_read, args=(tasks, has_ended), daemon=True).start()
    # Importing this takes seconds, in which the study may be killed.
    from fedsim.studies.worker import do, tell

    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, _end)
        for task in iter(tasks.get, None):
            tell(outlet, do(task, outlet))
            gc.collect()  # a failed run leaves its data set in cycles, which the next run would freeze
    if has_ended.is_set():
        os._exit(0)  # the study was killed: nobody waits for the second in which Python frees all it has


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(
        number, signal.SIG_IGN
    )  # a second one would cut off what the first makes the process tidy up
    raise KeyboardInterrupt


def _read(tasks: SimpleQueue[dict[str, Any] | None], has_ended: threading.Event) -> None:
    for line in sys.stdin:
        tasks.put(json.loads(line))
    has_ended.set()
    os.kill(os.getpid(), signal.SIGTERM)  # ends a run
    # Between runs the signal may come just before the wait for a task, or be ignored in the collector.
    tasks.put(None)


if __name__ == "__main__":
    main()
