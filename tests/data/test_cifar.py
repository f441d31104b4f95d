"""CIFAR-10 and CIFAR-100, from small files in the official form."""

import hashlib
import pickle  # noqa: TID251 - the official files are pickles
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.data.base import LoadContext
from fedsim.data.cifar import Cifar10, Cifar100
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module
from tests.conftest import there
from tests.data.conftest import held

Plugin = type[Cifar10] | type[Cifar100]
SETS = [(Cifar10, "CIFAR10", "labels"), (Cifar100, "CIFAR100", "fine_labels")]


def context(root: Path | None) -> LoadContext:
    return LoadContext(root, 2, Key.root(0))


def images(n: int) -> Any:
    return (np.arange(n * 3072) % 251).astype(np.uint8).reshape(n, 3072)


def fill(root: Path, name: str, key: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write two images in each file, and make torchvision expect their checksums."""
    kind = getattr(torchvision_module("datasets"), name)
    folder: Path = root / kind.base_folder
    folder.mkdir()

    def write(file: str, content: Any) -> str:
        (folder / file).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / file).read_bytes(), usedforsecurity=False).hexdigest()

    for which in ("train_list", "test_list"):
        files = [file for file, _ in getattr(kind, which)]
        sums = [write(file, {"data": images(2), key: [n, 9 - n]}) for n, file in enumerate(files)]
        monkeypatch.setattr(kind, which, [[*pair] for pair in zip(files, sums, strict=True)])
    classes = [f"class {n}" for n in range(100 if name == "CIFAR100" else 10)]
    md5 = write(kind.meta["filename"], {kind.meta["key"]: classes})
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5})
    return folder


@pytest.mark.parametrize(("plugin", "name", "key"), SETS)
def test_both_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: Plugin, name: str, key: str
) -> None:
    folder = fill(tmp_path, name, key, monkeypatch)
    before = sorted(tmp_path.rglob("*"))
    dataset = plugin(plugin.Config()).load(context(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before
    assert dataset.task == Task((3, 32, 32), 100 if name == "CIFAR100" else 10)
    assert there(dataset.class_names)[:2] == ("class 0", "class 1")
    batches = len(list(folder.iterdir())) - 2
    x, y = held(dataset.x), held(dataset.y)
    assert x.shape == (2 * batches, 3, 32, 32)
    # The red plane of an image comes first, then the green and the blue one, each row by row.
    assert x[1, 2, 5, 7] == np.float32(images(2)[1, 2 * 1024 + 5 * 32 + 7]) / np.float32(255)
    assert x.flags.c_contiguous
    assert y.tolist() == [label for n in range(batches) for label in (n, 9 - n)]
    assert np.array_equal(held(dataset.test_x), x[:2])
    assert held(dataset.test_y).tolist() == [0, 9]


def test_other_files_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path, "CIFAR10", "labels", monkeypatch)

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "opened",)

    (folder / "data_batch_3").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=r"is not the official one.*unpack cifar-10-python.tar.gz") as caught:
        Cifar10(Cifar10.Config()).load(context(tmp_path))
    assert caught.value.setting == "root"
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize(("plugin", "name", "key"), SETS)
def test_files_of_the_right_form_are_refused_unless_they_are_the_official_ones(
    tmp_path: Path, plugin: Plugin, name: str, key: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fill(tmp_path, name, key, patch)
        assert plugin(plugin.Config()).load(context(tmp_path)).x is not None
    with pytest.raises(DataError, match="is not the official one"):
        plugin(plugin.Config()).load(context(tmp_path))


@pytest.mark.parametrize(("plugin", "name", "key"), SETS)
def test_missing_files_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: Plugin, name: str, key: str
) -> None:
    folder = fill(tmp_path, name, key, monkeypatch)
    meta = getattr(torchvision_module("datasets"), name).meta["filename"]
    (folder / meta).unlink()
    with pytest.raises(DataError, match=f"lacks {meta}: unpack .*download=True"):
        plugin(plugin.Config()).load(context(tmp_path))
    with pytest.raises(DataError, match="set FEDSIM_DATA"):
        plugin(plugin.Config()).load(context(None))
