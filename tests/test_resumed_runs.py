"""The tool that kills runs and resumes them."""

from pathlib import Path

import pytest
from check_resumed_runs import each_event, verdict

from fedsim.fuzz.examine import Verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 8])
def test_a_killed_run_ends_as_the_whole_one(seed: int, tmp_path: Path) -> None:
    assert verdict(seed, tmp_path) == Verdict("finished")


@pytest.mark.slow
def test_it_does_so_wherever_it_is_killed(tmp_path: Path) -> None:
    verdicts = each_event(3, tmp_path)
    assert [next(verdicts) for _ in range(3)] == [Verdict("finished")] * 3
