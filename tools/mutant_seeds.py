"""Print the first seed below 200 that finds each mutant of ``tests/fuzz/mutants.py``.

``tests/fuzz/test_mutants.py`` needs such seeds when the seeds' scenarios have changed::

    python tools/mutant_seeds.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from check_seeds import limited

from fedsim.fuzz.examine import Verdict, examine
from fedsim.fuzz.random_scenarios import random_scenario


def first_seed(plant: Callable[[pytest.MonkeyPatch], None]) -> str:
    """Return the first seed that finds a mutant, with the last line of what is told."""
    with pytest.MonkeyPatch.context() as patched:
        plant(patched)
        for seed in range(200):
            if faults := limited(_verdict, seed).faults:
                return f"{seed}: {faults[-1].splitlines()[-1]}"
    return "no seed"


def _verdict(seed: int, place: Path) -> Verdict:
    return examine(random_scenario(seed), place)


def main() -> None:
    """Print a line for each mutant."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.fuzz import mutants
    from tests.fuzz.test_mutants import FOUND

    for name in FOUND:
        print(f"{name}: {first_seed(getattr(mutants, name))}", flush=True)


if __name__ == "__main__":
    main()
