import pytest

from fedsim.runtime.records.recorder import silent


def test_the_silent_log_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    log = silent()
    log.info("round", round=1)
    log.warning("dropped", client=2)
    assert capfd.readouterr() == ("", "")
