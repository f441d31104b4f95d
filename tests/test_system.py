import os
import sys

import pytest
from click.testing import CliRunner

import fedsim
from fedsim.cli import main
from fedsim.errors import UserError
from fedsim.system import check_system, num_usable_cores


def test_the_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 7}, raising=False)
    assert num_usable_cores() == 3


@pytest.mark.parametrize(("count", "cores"), [(10, 10), (None, 1)])
def test_a_system_that_does_not_say_which_has_all_cores(
    count: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert num_usable_cores() == cores


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_posix_systems_are_accepted(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    check_system()


def test_windows_is_refused_in_python_and_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delitem(vars(fedsim), "run", raising=False)
    with pytest.raises(UserError, match=r"does not run on Windows itself.*WSL 2"):
        _ = fedsim.run
    result = CliRunner().invoke(main, ["list", "algorithms"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("fedsim: fedsim does not run on Windows itself")
