"""Portable processes: what they are started with, what they refuse, and hashes that any processor gives."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fedsim import portable_numerics
from fedsim.errors import UserError
from fedsim.mkl_mode import mkl_mode
from fedsim.portable_numerics import REQUEST, FreshProcessError, require, variables

IS_POSSIBLE = portable_numerics._is_supported() and mkl_mode() is not None
PAGE = Path(__file__).parents[1] / "docs/background/repeating.md"


def test_the_variables_are_added_to_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "vi")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "ONE TWO")
    monkeypatch.setattr(portable_numerics, "numpy_features", lambda: ["TWO", "THREE"])
    found = variables()
    assert (found["EDITOR"], found["MKL_CBWR"], found[REQUEST]) == ("vi", "COMPATIBLE", "1")
    assert found["NPY_DISABLE_CPU_FEATURES"] == "ONE TWO THREE"


@pytest.mark.parametrize(
    ("missing", "supported", "kind", "advice"),
    [
        ([REQUEST], True, FreshProcessError, "python -m fedsim.portable_numerics SCRIPT.py"),
        ([], True, UserError, "engine.numerics = 'native'"),
        (["MKL_CBWR"], True, UserError, "engine.numerics = 'native'"),  # an endless restart otherwise
        ([REQUEST], False, UserError, "engine.numerics = 'native'"),
    ],
)
def test_a_process_that_is_not_portable_is_refused(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], supported: bool, kind: type[UserError], advice: str
) -> None:
    monkeypatch.setattr(portable_numerics, "_missing_variables", lambda: iter(missing))
    monkeypatch.setattr(portable_numerics, "_is_supported", lambda: supported)
    monkeypatch.setattr(portable_numerics, "_shortcomings", lambda: iter(["torch computes with AVX2"]))
    with pytest.raises(UserError, match="torch computes with AVX2") as caught:
        require()
    assert type(caught.value) is kind
    assert advice in str(caught.value)


def test_other_systems_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert "on arm64, and only Linux on x86_64 is supported" in next(portable_numerics._shortcomings())


@pytest.mark.skipif(not IS_POSSIBLE, reason="portable numbers are for Linux on x86_64 with MKL")
@pytest.mark.parametrize("without", ["", "NPY_DISABLE_CPU_FEATURES", *portable_numerics._FIXED])
def test_a_fresh_process_is_portable_with_all_variables_alone(without: str) -> None:
    code = "from fedsim.portable_numerics import numpy_features, require; print(*numpy_features()); require()"
    environment = {name: value for name, value in variables().items() if name != without}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    # On a processor that has none of the instructions, nothing depends on the variable of NumPy.
    is_refused = bool(without != "NPY_DISABLE_CPU_FEATURES" or done.stdout.split()) and bool(without)
    assert ("is not possible here" in done.stderr) is is_refused


def _hashes(algorithm: str) -> list[str]:
    """Return the hashes in the manual's table, or skip where its libraries are others."""
    page = PAGE.read_text()
    for library, needed in re.findall(r"(torch|NumPy) (\d+\.\d+\.\d+)", page):
        if (has := version(library.lower()).partition("+")[0]) != needed:
            pytest.skip(f"the table is of {library} {needed}, and this is {has}")
    row = re.search(rf"^\| `{algorithm}` \| `(\w+)` \| `(\w+)` \|$", page, re.M)
    assert row is not None
    return list(row.groups())


@pytest.mark.slow
@pytest.mark.skipif(not IS_POSSIBLE, reason="portable numbers are for Linux on x86_64 with MKL")
@pytest.mark.parametrize("algorithm", ["fedavg", "dsfl"])
def test_a_portable_run_has_the_hashes_of_the_manual(tmp_path: Path, algorithm: str) -> None:
    words = f"-m fedsim run quickstart --algorithm {algorithm} --set engine.numerics=portable --quiet --out"
    subprocess.run([sys.executable, *words.split(), str(tmp_path / "run")], check=True)  # noqa: S603
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert [summary["trace_hash"], summary["model_hash"]] == _hashes(algorithm)
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["numerics"], run["mkl_mode"]) == ("portable", "COMPATIBLE")
