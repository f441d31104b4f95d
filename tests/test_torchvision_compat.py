"""Importing torchvision beside whatever torch there is."""

from types import ModuleType

import pytest

from fedsim import torchvision_compat
from fedsim.errors import DataError
from fedsim.torchvision_compat import torchvision_module

DATASETS = ModuleType("torchvision.datasets")


class Imports:
    """Stands for the plain import: raises its errors one after another, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self, name: str) -> ModuleType:
        assert name == "datasets"
        if self.errors:
            raise self.errors.pop(0)
        return DATASETS


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(torchvision_compat, "_declare", lambda *new: names.extend(new))
    return names


def test_the_installed_pair_imports() -> None:
    assert torchvision_module("datasets").MNIST.__name__ == "MNIST"
    assert torchvision_module("datasets") is torchvision_module("datasets")
    assert torchvision_module("models.vgg").__name__ == "torchvision.models.vgg"


def _operator(name: str) -> RuntimeError:
    return RuntimeError(f"operator torchvision::{name} does not exist")


@pytest.mark.parametrize(
    ("errors", "message", "names"),
    [
        ([], "", []),
        ([_operator("nms")], "", ["nms", "qnms"]),
        (
            [_operator("nms"), _operator("roi_pool")],
            "does not fit the installed torch .*roi_pool",
            ["nms", "qnms"],
        ),
        ([ImportError("No module named 'torchvision'")], "pip install torchvision", []),
        ([RuntimeError("out of luck")], "out of luck", []),
    ],
)
def test_missing_operators_are_declared_and_other_errors_reported(
    errors: list[Exception],
    message: str,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
    declared: list[str],
) -> None:
    monkeypatch.setattr(torchvision_compat, "_plain_import", Imports(*errors))
    if message:
        kind = RuntimeError if "luck" in message else DataError
        with pytest.raises(kind, match=message):
            torchvision_module("datasets")
    else:
        assert torchvision_module("datasets") is DATASETS
    assert declared == names
