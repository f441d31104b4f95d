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


def test_a_pair_that_fits_is_left_alone(monkeypatch: pytest.MonkeyPatch, declared: list[str]) -> None:
    monkeypatch.setattr(torchvision_compat, "_plain_import", Imports())
    assert torchvision_module("datasets") is DATASETS
    assert declared == []


def test_missing_operators_are_declared(monkeypatch: pytest.MonkeyPatch, declared: list[str]) -> None:
    missing = RuntimeError("operator torchvision::nms does not exist")
    monkeypatch.setattr(torchvision_compat, "_plain_import", Imports(missing))
    assert torchvision_module("datasets") is DATASETS
    assert declared == ["nms", "qnms"]


def test_other_missing_operators_are_reported(monkeypatch: pytest.MonkeyPatch, declared: list[str]) -> None:
    missing = [RuntimeError(f"operator torchvision::{name} does not exist") for name in ("nms", "roi_pool")]
    monkeypatch.setattr(torchvision_compat, "_plain_import", Imports(*missing))
    with pytest.raises(DataError, match=r"does not fit the installed torch .*roi_pool"):
        torchvision_module("datasets")
    assert declared == ["nms", "qnms"]


def test_an_absent_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torchvision_compat, "_plain_import", Imports(ImportError("No module named 'torchvision'"))
    )
    with pytest.raises(DataError, match="pip install torchvision"):
        torchvision_module("datasets")


def test_another_failure_is_not_hidden(monkeypatch: pytest.MonkeyPatch, declared: list[str]) -> None:
    monkeypatch.setattr(torchvision_compat, "_plain_import", Imports(RuntimeError("out of luck")))
    with pytest.raises(RuntimeError, match="out of luck"):
        torchvision_module("datasets")
    assert declared == []
