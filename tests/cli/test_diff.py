"""``fedsim diff``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Call = Callable[..., Result]


def test_runs_that_are_equal_and_runs_that_part(call: Call, here: Path) -> None:
    for name, *options in (("a",), ("b", "--set", "engine.workers=1"), ("c", "--seed", "1")):
        assert call("run", "tiny.toml", "-q", "--out", name, *options).exit_code == 0
    same = call("diff", "a", "b")
    assert same.exit_code == 0
    assert "the runs are equal: they have the same events, and end with the same models" in same.stdout
    assert "engine.workers  auto   1" in same.stdout
    other = call("diff", "a", "c")
    assert other.exit_code == 1
    assert "run.seed  0      1" in other.stdout
    assert "  first   0." in other.stdout
    assert "  second  0." in other.stdout
    assert other.stderr == ""
    for arguments in (("a", "nowhere"), ("nowhere", "a")):
        result = call("diff", *arguments)
        assert result.exit_code == 2
        assert "nowhere is not the folder of a run: it holds no summary.json" in result.stderr
