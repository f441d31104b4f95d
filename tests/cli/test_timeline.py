"""``fedsim timeline``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[..., Result]


@pytest.fixture
def run(call: Call, here: Path) -> Path:
    """The folder of a run."""
    assert call("run", "tiny.toml", "-q").exit_code == 0
    return Path("runs", "tiny", "fedavg-seed0")


def test_a_timeline_lies_beside_the_run(call: Call, run: Path) -> None:
    result = call("timeline", str(run))
    assert result.exit_code == 0, result.output
    file = run.resolve().with_name("fedavg-seed0.pftrace")
    assert result.stdout == f"{file}\n"
    assert "4 clients, " in result.stderr
    assert "open it at https://ui.perfetto.dev" in result.stderr
    content = file.read_bytes()
    assert call("timeline", f"{run}/", "--out", "there.pftrace").exit_code == 0
    assert Path("there.pftrace").read_bytes() == content
    # It is no part of the run, which is done again and replaced as before.
    assert call("run", "tiny.toml", "-q").exit_code == 0


def test_who_is_left_out_is_told(call: Call, run: Path) -> None:
    result = call("timeline", str(run), "--clients", "3")
    assert (
        "note: of 4 clients that were asked, the 1 slowest, the 1 median and the 1 fastest" in result.stderr
    )


def test_mistakes_are_told(call: Call, run: Path) -> None:
    for arguments, said in (
        ((str(run), "--clients", "2"), "'2' is below 3"),
        (("runs",), "is not the folder of a run: it holds no summary.json"),
        (("/",), "/ is not the folder of a run"),
        (("runs/tiny",), "holds 1 run: name one of them, such as runs/tiny/fedavg-seed0"),
        ((str(run), "--out", "tiny.toml"), "tiny.toml exists already, and is no timeline"),
    ):
        result = call("timeline", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_profile_adds_the_computer_s_own_time(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--out", "run", "--profile").exit_code == 0
    assert call("timeline", "run").exit_code == 0
    assert b"real time of this computer" in Path("run.pftrace").read_bytes()
    # The same run may replace it, with a profile or without.
    assert call("run", "tiny.toml", "-q", "--out", "run").exit_code == 0
    assert call("timeline", "run").exit_code == 0
    assert b"real time of this computer" not in Path("run.pftrace").read_bytes()
    result = call("run", "tiny.toml", "--profile", "--bus", "http")
    assert result.exit_code == 2
    assert "leave out --profile or --bus http" in result.stderr
