"""The mode of MKL, the library that computes torch's matrix products on x86-64 processors.

In MKL's usual mode the bits of a product depend on the memory addresses of its operands. In the strict mode
(``MKL_CBWR=AUTO,STRICT``) they do not. MKL reads the variable at its first computation. Until then a function
can also set the mode.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

VARIABLE = "MKL_CBWR"
STRICT = "AUTO,STRICT"
KEEP_VARIABLE = "FEDSIM_KEEP_MKL_MODE"
"""If it is set, fedsim sets no mode: for tests, and for children of a process that could not set it."""

_BRANCHES = {
    1: "off",
    2: "AUTO",
    3: "COMPATIBLE",
    4: "SSE2",
    6: "SSSE3",
    7: "SSE4_1",
    8: "SSE4_2",
    9: "AVX",
    10: "AVX2",
    11: "AVX512_MIC",
    12: "AVX512",
    13: "AVX512_MIC_E1",
    14: "AVX512_E1",
}
_AUTO, _STRICT_FLAG = 2, 0x10000
_ALL_SETTINGS = -1


class _Mkl(NamedTuple):
    """MKL's own functions."""

    get: Callable[[int], int]
    set: Callable[[int], int]


def request_strict_mode() -> None:
    """Ask MKL for strict mode, for this process and its children, unless the user has chosen a mode.

    Importing fedsim does this. Where torch has computed already it is too late: a warning says so, and
    children take the mode of this process.
    """
    if os.environ.get(VARIABLE) or os.environ.get(KEEP_VARIABLE):
        return
    os.environ[VARIABLE] = STRICT
    if "torch" not in sys.modules or (mkl := _mkl()) is None:
        return
    if mkl.set(_AUTO | _STRICT_FLAG) != 0:
        mode = mkl_mode()
        if mode is None or mode == "off":
            del os.environ[VARIABLE]
            os.environ[KEEP_VARIABLE] = "1"
        else:
            os.environ[VARIABLE] = mode
        if text := remark():
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def mkl_mode() -> str | None:
    """Return the mode in effect, such as ``AUTO,STRICT`` or ``off``; None if torch has no MKL."""
    mkl = _mkl()
    if mkl is None:
        return None
    mode = mkl.get(_ALL_SETTINGS)
    branch = mode & ~_STRICT_FLAG
    return _BRANCHES.get(branch, f"branch {branch}") + (",STRICT" if mode & _STRICT_FLAG else "")


def mode_words() -> str:
    """Return which library multiplies torch's matrices, and MKL's mode."""
    mode = mkl_mode()
    return "torch computes them without MKL" if mode is None else f"MKL, mode {mode}"


def remark() -> str:
    """Return what a user should know about products that depend on memory addresses; mostly empty."""
    mode = mkl_mode()
    if mode is None or mode.endswith("STRICT") or mode == "COMPATIBLE":
        return ""
    return (
        f"MKL's mode is {mode}, so the bits of a matrix product depend on memory addresses: jobs are "
        f"computed together only where trials find equal bits. For strict mode, import fedsim before torch "
        f"computes anything, or set {VARIABLE}={STRICT}"
    )


@cache
def _mkl() -> _Mkl | None:
    """Return MKL's functions, from torch's own library or from a dynamic MKL; None without MKL."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    libraries = [path for path in folder.glob("libtorch_cpu.*") if path.suffix in {".so", ".dylib"}]
    for path, get, set_ in (
        *((str(path), "mkl_serv_cbwr_get", "mkl_serv_cbwr_set") for path in libraries),
        (None, "MKL_CBWR_Get", "MKL_CBWR_Set"),
    ):
        try:
            library = ctypes.CDLL(path)
            return _Mkl(getattr(library, get), getattr(library, set_))
        except (OSError, AttributeError, TypeError):
            continue
    return None
