"""Dispatch modes and operations on the meta device that do not import torch's compiler.

Its import takes most of a second, and fedsim compiles nothing. But torch keeps the compiler out of some
functions by a decorator, ``torch._disable_dynamo``, which imports it when such a function is first called:
the handler of every dispatch mode is one, and so are most kernels of the meta device, which are in Python.
"""

from __future__ import annotations

import sys
from functools import cache
from types import FunctionType

from torch._compile import _disable_dynamo
from torch._decomp import global_decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode whose handler is called as it is."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@cache
def free_meta_kernels() -> None:
    """Let the kernels of the meta device be called as they are, unless the compiler has been imported anyway.

    The decorator keeps what the compiler makes of a function as the function's ``__dynamo_disable``. That is
    set to the function itself, which gives the same results.
    """
    if "torch._dynamo" in sys.modules:
        return
    decorated = _disable_dynamo(lambda: None).__code__
    todo = [kernel for table in global_decomposition_table.values() for kernel in table.values()]
    seen = set()
    while todo:
        function = todo.pop()
        if function in seen or not isinstance(function, FunctionType):
            continue
        seen.add(function)
        # Decorators hold what they decorate in their closures.
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        todo += held
        if function.__code__ is decorated:
            for original in held:
                if isinstance(original, FunctionType):
                    original.__dict__["__dynamo_disable"] = original
