"""Portable numerics: equal bits on different x86-64 processors.

Libraries choose their kernels by the instructions of the processor. With the variables below, torch, MKL,
NumPy, OpenBLAS and the C library take kernels for the least common instructions. They read the variables when
a process starts, so a process that was started without them cannot become portable. ::

    python -m fedsim.portable_numerics script.py

runs Python with them. Torch's convolutions leave oneDNN and NNPACK, whose kernels depend on the sizes of
caches, too.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fedsim.errors import UserError
from fedsim.mkl_mode import VARIABLE, mkl_mode

REQUEST = "FEDSIM_PORTABLE"
"""Set in processes that were started to be portable."""

_FIXED: Mapping[str, str] = {
    REQUEST: "1",
    "ATEN_CPU_CAPABILITY": "default",
    VARIABLE: "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Prescott",
    "OPENBLAS_L2_SIZE": "512",
    "OPENBLAS_NUM_THREADS": "1",
    # The C library's exp, log and pow use FMA where there is one. Names of glibc since 2.33, then older ones.
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX2_Usable,-FMA_Usable,-FMA4_Usable",
}
_NUMPY = "NPY_DISABLE_CPU_FEATURES"
_OPENBLAS_CORES = ("prescott", "katmai")
"""What OpenBLAS calls the kernels of that core type."""

_ENVIRONMENT = Path("/proc/self/environ")
"""The variables with which this process was started."""


class FreshProcessError(UserError):
    """The run needs a process that is started with :func:`variables`."""


def require() -> None:
    """Let this process compute portably."""
    shortcomings = list(_shortcomings())
    if not shortcomings:
        import torch

        torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
        torch.backends.nnpack.set_flags(False)  # type: ignore[no-untyped-call]
        return
    problem = f"engine.numerics = 'portable' is not possible here: {'; '.join(shortcomings)}"
    # Not a second time: a wrapper around Python may drop variables at each start.
    if not _is_supported() or REQUEST not in _missing_variables():
        raise UserError(f"{problem}. Write engine.numerics = 'native'")
    raise FreshProcessError(
        f"{problem}. The libraries choose their kernels when Python starts: use the command fedsim, which "
        "starts Python anew, or start it by 'python -m fedsim.portable_numerics SCRIPT.py'"
    )


def is_requested() -> bool:
    """Return whether this process was started to be portable."""
    return bool(os.environ.get(REQUEST))


def variables() -> dict[str, str]:
    """Return the environment of a portable process."""
    disabled = [*os.environ.get(_NUMPY, "").split(), *numpy_features()]
    return {**os.environ, **_FIXED, _NUMPY: " ".join(dict.fromkeys(disabled))}


def restart(command: Sequence[str]) -> None:
    """Replace this process by a portable one that runs a command of Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, list(command), variables())  # noqa: S606


def _is_supported() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _shortcomings() -> Iterator[str]:
    """Yield what in this process depends on the processor."""
    import torch
    from threadpoolctl import threadpool_info

    if not _is_supported():
        yield f"this is {sys.platform} on {platform.machine()}, and only Linux on x86_64 is supported"
        return
    if (capability := torch.backends.cpu.get_cpu_capability()) != "DEFAULT":
        yield f"torch computes with {capability}"
    if (mode := mkl_mode()) != "COMPATIBLE":
        yield "torch computes matrix products without MKL" if mode is None else f"MKL's mode is {mode}"
    if features := numpy_features():
        yield f"NumPy computes with {' '.join(features)}"
    libraries: list[dict[str, Any]] = threadpool_info()
    for library in libraries:
        name, core = library["internal_api"], str(library.get("architecture"))
        if library["user_api"] == "blas" and name != "mkl" and core.lower() not in _OPENBLAS_CORES:
            yield f"NumPy multiplies matrices with {name} for {core}"
    if missing := list(_missing_variables()):
        yield f"it was started without {', '.join(missing)}"


def _missing_variables() -> Iterator[str]:
    """Yield which variables this process was started without; to set them later changes nothing."""
    there = _ENVIRONMENT.read_bytes().split(b"\0")
    yield from (name for name, value in _FIXED.items() if f"{name}={value}".encode() not in there)


def numpy_features() -> list[str]:
    """Return the instructions that NumPy has kernels for, and uses."""
    try:
        umath = import_module("numpy._core._multiarray_umath")
    except ImportError:  # before NumPy 2
        umath = import_module("numpy.core._multiarray_umath")
    return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]


if __name__ == "__main__":
    restart([sys.executable, *sys.argv[1:]])
