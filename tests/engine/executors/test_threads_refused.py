import threading

import pytest

from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.threads import Threads
from fedsim.engine.worker_state import Resources
from fedsim.errors import RunError


def test_threads_that_the_computer_does_not_start(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, start, started = threading.active_count(), threading.Thread.start, list[threading.Thread]()

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RunError, match=r"no more than 2 of 5 worker threads .*: lower engine.workers"):
        Threads(ExecutorConfig(workers=5)).open(resources)
    assert threading.active_count() == before
