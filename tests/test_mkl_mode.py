"""MKL's mode is asked for before torch computes anything, and what is in effect is known."""

import os
import subprocess
import sys

import pytest

from fedsim import mkl_mode as module
from fedsim.mkl_mode import KEEP_VARIABLE, STRICT, VARIABLE, mkl_mode, remark, request_strict_mode

HAS_MKL = mkl_mode() is not None
NO_MKL = "torch computes without MKL here"
# The variable and the mode of a process, and the mode of a child of it.
SHOWN = """
import os, subprocess, sys
from fedsim.mkl_mode import mkl_mode
child = "import fedsim, fedsim.mkl_mode as m; print(m.mkl_mode())"
print(mkl_mode())
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip())
"""
USED = "import torch; torch.randn(9, 9) @ torch.randn(9, 9)"


@pytest.mark.skipif(not HAS_MKL, reason=NO_MKL)
@pytest.mark.parametrize(
    ("before", "chosen", "mode", "warnings"),
    [
        pytest.param("import fedsim", "", STRICT, 0, id="fresh"),
        pytest.param("import torch; import fedsim", "", STRICT, 0, id="torch imported"),
        pytest.param(f"{USED}; import fedsim", "", "off", 1, id="torch used"),
        pytest.param("import fedsim", "COMPATIBLE", "COMPATIBLE", 0, id="chosen by the user"),
        pytest.param(f"{USED}; import fedsim", "COMPATIBLE", "COMPATIBLE", 0, id="chosen, and torch used"),
    ],
)
def test_a_process_and_its_children_have_one_mode(before: str, chosen: str, mode: str, warnings: int) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in (VARIABLE, KEEP_VARIABLE)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", f"{before}\n{SHOWN}"],
        env={**kept, VARIABLE: chosen},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [mode, mode]
    assert done.stderr.count("RuntimeWarning: MKL's mode is off") == warnings


def test_without_mkl_nothing_is_set_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mkl", lambda: None)
    request_strict_mode()
    assert mkl_mode() is None
    assert remark() == ""


def test_other_modes_are_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mkl", lambda: module._Mkl(lambda _: 10, lambda _: 0))
    assert mkl_mode() == "AVX2"
    assert f"set {VARIABLE}={STRICT}" in remark()
    monkeypatch.setattr(module, "_mkl", lambda: module._Mkl(lambda _: 0x1000A, lambda _: 0))
    assert (mkl_mode(), remark()) == ("AVX2,STRICT", "")
