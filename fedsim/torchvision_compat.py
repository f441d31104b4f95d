"""Imports parts of torchvision beside a torch that lacks its compiled operators.

A torchvision wheel built for another flavour of torch (CUDA beside CPU) loads no operators, and then fails
while it registers shapes for two of them, ``nms`` and ``qnms``. fedsim uses neither. Declaring their
signatures is enough for the import; it is done only after the plain import has failed.
"""

import importlib
from types import ModuleType
from typing import Any

from fedsim.errors import DataError

# A library's operators vanish with it, so it is kept for the life of the process.
_declared: list[Any] = []

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def torchvision_module(name: str) -> ModuleType:
    """Return a module of torchvision by its name below it, such as ``datasets`` or ``models.vgg``."""
    try:
        return _plain_import(name)
    except ImportError as error:
        raise DataError(
            f"torchvision cannot be imported ({error}); install it: pip install torchvision"
        ) from error
    except RuntimeError as error:
        # It reads: operator torchvision::nms does not exist.
        if "torchvision::" not in str(error):
            raise
    try:
        _declare("nms", "qnms")
        return _plain_import(name)
    except RuntimeError as error:
        raise DataError(
            f"torchvision does not fit the installed torch ({error}); install the pair that its readme names"
        ) from error


def _plain_import(name: str) -> ModuleType:
    return importlib.import_module(f"torchvision.{name}")


def _declare(*names: str) -> None:
    import torch

    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    _declared.append(library)
    for name in names:
        library.define(name + _SIGNATURE)
