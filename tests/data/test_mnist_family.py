"""The MNIST family, from small files in the same form."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedsim.data import mnist_family as idx_module
from fedsim.data.base import LoadContext
from fedsim.data.fashion_mnist import FashionMnist
from fedsim.data.mnist import Mnist
from fedsim.errors import DataError
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
TRAIN = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
TEST = np.full((2, 2, 3), 255, np.uint8)
ARRAYS = (TRAIN, np.array([0, 1, 9, 3, 4], np.uint8), TEST, np.array([5, 6], np.uint8))


def idx(array: Array) -> bytes:
    """Two zero bytes, 8 for unsigned bytes, the rank, each length as four big-endian bytes, the values."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def fill(root: Path, name: str = "MNIST", packed: tuple[bool, ...] = (True,) * 4) -> Path:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for file, array, is_packed in zip(FILES, ARRAYS, packed, strict=True):
        if is_packed:
            (raw / f"{file}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (raw / file).write_bytes(idx(array))
    return raw


def context(root: Path | None) -> LoadContext:
    return LoadContext(root, 2, Key.root(0))


@pytest.mark.parametrize("packed", [(True,) * 4, (False,) * 4, (True, False, False, True)])
def test_packed_and_plain_files_give_the_same(tmp_path: Path, packed: tuple[bool, ...]) -> None:
    raw = fill(tmp_path, packed=packed)
    before = sorted(raw.iterdir())
    dataset = Mnist(Mnist.Config()).load(context(tmp_path))
    assert sorted(raw.iterdir()) == before
    assert sorted(tmp_path.rglob("*")) == sorted([raw.parent, raw, *before])
    assert dataset.task == Task((1, 2, 3), 10)
    assert dataset.x is not None
    assert dataset.y is not None
    assert dataset.test_x is not None
    assert dataset.test_y is not None
    assert np.array_equal(dataset.x[:, 0], TRAIN.astype(np.float32) / np.float32(255))
    assert dataset.y.tolist() == [0, 1, 9, 3, 4]
    assert np.unique(dataset.test_x).tolist() == [1]
    assert dataset.test_y.tolist() == [5, 6]


def test_each_set_has_its_own_folder(tmp_path: Path) -> None:
    fill(tmp_path, "FashionMNIST")
    assert FashionMnist(FashionMnist.Config()).load(context(tmp_path)).x is not None
    with pytest.raises(DataError, match=r"MNIST.raw lacks train-images-idx3-ubyte, .*download=True"):
        Mnist(Mnist.Config()).load(context(tmp_path))


def test_without_a_root() -> None:
    with pytest.raises(DataError, match=r"data.root in the scenario, or set FEDSIM_DATA"):
        Mnist(Mnist.Config()).load(context(None))


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    raw = fill(tmp_path)
    (raw / f"{FILES[3]}.gz").unlink()
    with pytest.raises(DataError, match=f"lacks {FILES[3]} "):
        Mnist(Mnist.Config()).load(context(tmp_path))


@pytest.mark.parametrize("content", [b"not packed at all", gzip.compress(idx(TRAIN), mtime=0)[:20]])
def test_a_damaged_archive(tmp_path: Path, content: bytes) -> None:
    raw = fill(tmp_path)
    (raw / f"{FILES[0]}.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz cannot be read .*: fetch it again"):
        Mnist(Mnist.Config()).load(context(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\x00" * 16, idx(TRAIN)[:-1], idx(TRAIN[0])])
def test_files_of_another_form(tmp_path: Path, content: bytes) -> None:
    raw = fill(tmp_path)
    (raw / f"{FILES[2]}.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz .*: fetch it again"):
        Mnist(Mnist.Config()).load(context(tmp_path))


def test_labels_that_do_not_fit_the_images(tmp_path: Path) -> None:
    raw = fill(tmp_path)
    (raw / f"{FILES[1]}.gz").write_bytes(gzip.compress(idx(ARRAYS[3])))
    with pytest.raises(DataError, match="hold 5 images and 2 labels"):
        Mnist(Mnist.Config()).load(context(tmp_path))


def test_writers_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path)
    np.savez(tmp_path / "writers.npz", train_writer=np.array([7, 7, 0, 2, 7], np.uint16))
    config = idx_module.IdxConfig(users="writers.npz", user_key="train_writer")
    users = Mnist(config).load(context(tmp_path)).users
    assert users is not None
    assert users.dtype == np.int64
    assert users.tolist() == [7, 7, 0, 2, 7]
    assert Mnist(Mnist.Config()).load(context(tmp_path)).users is None


def test_writers_that_do_not_fit_the_images(tmp_path: Path) -> None:
    fill(tmp_path)
    np.save(tmp_path / "writers.npy", np.arange(4))
    with pytest.raises(DataError, match="4 users for 5 samples") as caught:
        Mnist(idx_module.IdxConfig(users="writers.npy")).load(context(tmp_path))
    assert caught.value.setting == "users"
