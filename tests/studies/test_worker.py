"""What a worker of a study does when the study is gone."""

import io
import signal
from unittest.mock import Mock

import pytest

from fedsim.studies.worker import tell
from fedsim.studies.worker_process import _end


def test_who_cannot_tell_ends_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "pause", lambda: pytest.fail("it waits"))
    before = signal.signal(signal.SIGTERM, _end)
    try:
        with pytest.raises(KeyboardInterrupt):
            tell(Mock(io.StringIO, write=Mock(side_effect=BrokenPipeError)), {"round": 1})
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN  # the end of the input adds nothing
    finally:
        signal.signal(signal.SIGTERM, before)
