"""The tool that extends and forks runs of random scenarios."""

from pathlib import Path

import pytest
from check_continued_runs import verdict

from fedsim.fuzz.examine import Verdict


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5, 8])
def test_a_run_that_goes_on_has_the_results_of_a_whole_one(seed: int, tmp_path: Path) -> None:
    assert verdict(seed, tmp_path) == Verdict("finished")
