"""Check under simulated processors that jobs computed together have the bits of single jobs.

Variables that torch, MKL, oneDNN and NumPy read at their start make them compute as on other processors.
Under each setting run the tests of equal bits and of portable numbers, and random scenarios of nets with odd
sizes (:mod:`odd_nets`). Each scenario runs one job at a time, then jobs together, then jobs together under
``verify``. The hashes have to be equal. The tests of the demo's table run under two settings. No tests run on
the processor as it is, as ``make test`` and ``make slow`` run them::

    python tools/check_processors.py [--seeds 0-99] [--only NAME ...] [--without-tests]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from fedsim import toml_writer
from fedsim.errors import FedsimError
from fedsim.portable_numerics import numpy_features

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
TESTS = (
    *("tests/engine/batched", "tests/engine/cluster", "tests/engine/executors"),
    *("tests/engine/test_execute.py", "tests/test_mkl_mode.py", "tests/wire/codecs/test_chain.py"),
)
PORTABLE_TESTS = "tests/test_portable_numerics.py"
DEMO_TESTS = "tests/test_readme.py"
WITH_DEMO = ("torch default", "all the least")

NO_REQUEST = {"MKL_CBWR": "", "FEDSIM_KEEP_MKL_MODE": "1"}
NUMPY_LEAST = " ".join(numpy_features())
"""NumPy refuses the names of features that it has no code for."""
LEAST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "4",
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    "torch default": {"ATEN_CPU_CAPABILITY": "default"},
    "torch avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL off": NO_REQUEST,
    "MKL AUTO,STRICT": {"MKL_CBWR": "AUTO,STRICT"},
    "MKL COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "OMP 4 threads": {"OMP_NUM_THREADS": "4"},
    "NumPy least": {"NPY_DISABLE_CPU_FEATURES": NUMPY_LEAST},
    "all the least": {**LEAST, "NPY_DISABLE_CPU_FEATURES": NUMPY_LEAST},
}
FORMS = (("off", False), ("auto", False), ("auto", True))
"""Values of engine.batching, and whether the run is verified."""


def differences(seeds: Sequence[int]) -> list[str]:
    """Run the scenario of each seed in every form, in this process; return the differences."""
    from odd_nets import odd_scenario

    from fedsim.runtime.run import run
    from fedsim.scenario import build, load_scenario

    lines = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "odd.toml"
        for seed in seeds:
            file.write_text(toml_writer.document(odd_scenario(seed)), encoding="utf-8")
            try:
                hashes = []
                for batching, verify in FORMS:
                    scenario = load_scenario(file, [f"engine.batching={batching}", "engine.workers=1"])
                    result = run(replace(build(scenario, str(file)), verify=verify))
                    hashes.append((result.trace_hash, result.model_hash))
                if len(set(hashes)) > 1:
                    lines.append(f"seed {seed}: {hashes}")
            except FedsimError as error:
                lines.append(f"seed {seed}: {type(error).__name__}: {error}")
    return lines


def check(name: str, seeds: str, *, with_tests: bool) -> tuple[bool, str]:
    """Check one setting; return whether it passes, and the text to print."""
    began_s = perf_counter()
    variables = {"PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    environment = {**os.environ, **variables, **SETTINGS[name]}
    commands = [[sys.executable, str(HERE), "--seeds", seeds, "--here"]]
    if with_tests and SETTINGS[name]:
        slow = [PORTABLE_TESTS, DEMO_TESTS] if name in WITH_DEMO else [PORTABLE_TESTS]
        pytest = [sys.executable, "-m", "pytest", "-q", "--hypothesis-profile", "quick"]
        commands += [[*pytest, *TESTS], [*pytest, "-m", "slow", *slow]]
    failed = ""
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            failed += f"{done.stdout[-4000:]}{done.stderr[-2000:]}"
    verdict = "FAILED" if failed else "passed"
    return not failed, f"{name}: {verdict}, {perf_counter() - began_s:.0f} s\n{failed}"


def main() -> None:
    """Check the chosen settings, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0-99", help="scenarios, such as 0-99")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--without-tests", action="store_true", help="leave out the tests of equal bits")
    parser.add_argument("--here", action="store_true", help="run the scenarios in this process, as it is set")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    if arguments.here:
        lines = differences(range(int(first), int(last or first) + 1))
        sys.exit("\n".join(lines) or 0)
    with ThreadPoolExecutor(2) as threads:
        check_one = partial(check, seeds=arguments.seeds, with_tests=not arguments.without_tests)
        failed = 0
        for has_passed, text in threads.map(check_one, arguments.only):
            failed += not has_passed
            print(text, end="", flush=True)
    print(f"{len(arguments.only) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
