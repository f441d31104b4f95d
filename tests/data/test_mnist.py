"""The MNIST family, from small files."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.mnist import Emnist, EmnistConfig, FashionMnist, IdxConfig, Mnist
from fedsim.errors import DataError
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

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


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def fill(root: Path, name: str = "MNIST", packed: tuple[bool, ...] = (True,) * 4) -> Path:
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for file, array, is_packed in zip(FILES, ARRAYS, packed, strict=True):
        if is_packed:
            (raw / f"{file}.gz").write_bytes(zipped(idx(array)))
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
    assert np.array_equal(held(dataset.x)[:, 0], TRAIN.astype(np.float32) / np.float32(255))
    assert labels_of(dataset) == ([0, 1, 9, 3, 4], [5, 6])
    assert np.unique(held(dataset.test_x)).tolist() == [1]


def test_each_set_has_its_own_folder(tmp_path: Path) -> None:
    fill(tmp_path, "FashionMNIST")
    assert FashionMnist(FashionMnist.Config()).load(context(tmp_path)).x is not None
    with pytest.raises(DataError, match=r"MNIST.raw lacks train-images-idx3-ubyte, .*download=True"):
        Mnist(Mnist.Config()).load(context(tmp_path))


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    raw = fill(tmp_path)
    (raw / f"{FILES[3]}.gz").unlink()
    with pytest.raises(DataError, match=f"lacks {FILES[3]} "):
        Mnist(Mnist.Config()).load(context(tmp_path))


@pytest.mark.parametrize(
    ("number", "content", "problem"),
    [
        (0, b"not packed at all", r"train-images-idx3-ubyte.gz cannot be read .*: fetch it again"),
        (0, zipped(idx(TRAIN))[:20], r"train-images-idx3-ubyte.gz cannot be read .*: fetch it again"),
        (2, zipped(idx(TRAIN[0])), r"t10k-images-idx3-ubyte.gz .*: fetch it again"),
        (1, zipped(idx(ARRAYS[3])), "hold 5 images and 2 labels"),
    ],
)
def test_damaged_files(tmp_path: Path, number: int, content: bytes, problem: str) -> None:
    (fill(tmp_path) / f"{FILES[number]}.gz").write_bytes(content)
    with pytest.raises(DataError, match=problem):
        Mnist(Mnist.Config()).load(context(tmp_path))


def test_writers_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path)
    np.savez(tmp_path / "writers.npz", train_writer=np.array([7, 7, 0, 2, 7], np.uint16))
    config = IdxConfig(users="writers.npz", user_key="train_writer")
    users = there(Mnist(config).load(context(tmp_path)).users)
    assert users.dtype == np.int64
    assert users.tolist() == [7, 7, 0, 2, 7]
    assert Mnist(Mnist.Config()).load(context(tmp_path)).users is None


LETTERS = np.array([1, 26, 2, 3, 1], np.uint8)
"""a, z, b, c, a: the letters of EMNIST are numbered from 1."""


def fill_emnist(root: Path, split: str = "letters", labels: Array = LETTERS) -> Path:
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", len(labels)), ("test", 2)):
        (raw / f"emnist-{split}-{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(TRAIN[:n])))
        (raw / f"emnist-{split}-{part}-labels-idx1-ubyte").write_bytes(idx(labels[:n]))
    return raw


def load(root: Path | None, **settings: Any) -> Dataset:
    return Emnist(EmnistConfig.model_validate(settings)).load(LoadContext(root, 2, Key.root(0)))


def labels_of(dataset: Dataset) -> tuple[list[float], list[float]]:
    return held(dataset.y).tolist(), held(dataset.test_y).tolist()


def test_images_are_upright_and_letters_numbered_from_0(tmp_path: Path) -> None:
    raw = fill_emnist(tmp_path)
    before = sorted(raw.iterdir())
    dataset = load(tmp_path)
    assert sorted(raw.iterdir()) == before
    assert dataset.task == Task((1, 3, 2), 26)
    assert labels_of(dataset) == ([0, 25, 1, 2, 0], [0, 25])
    x = held(dataset.x)
    assert x.flags.c_contiguous
    for row in range(3):
        for column in range(2):
            assert x[1, 0, row, column] == np.float32(TRAIN[1, column, row]) / np.float32(255)


def test_files_as_torchvisions_download_leaves_them(tmp_path: Path) -> None:
    # Plain, those of all splits, beside the archive that they were in.
    raw = fill_emnist(tmp_path)
    for packed in list(raw.glob("*.gz")):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    for part in ("train", "test"):
        for what in ("images-idx3", "labels-idx1"):
            (raw / f"emnist-digits-{part}-{what}-ubyte").write_bytes(b"of another split")
    (raw / "gzip.zip").write_bytes(b"an archive")
    assert labels_of(load(tmp_path)) == ([0, 25, 1, 2, 0], [0, 25])


def test_the_first_classes(tmp_path: Path) -> None:
    fill_emnist(tmp_path)
    dataset = load(tmp_path, classes=2)
    assert dataset.task.num_outputs == 2
    assert labels_of(dataset) == ([0, 1, 0], [0])
    assert np.rint(held(dataset.x)[:, 0, 0, 0] * 255).tolist() == [TRAIN[k, 0, 0] for k in (0, 2, 4)]


def test_named_classes_are_numbered_as_they_are_named(tmp_path: Path) -> None:
    fill_emnist(tmp_path)
    dataset = load(tmp_path, classes=["z", "a"])
    assert labels_of(dataset) == ([1, 0, 1], [1, 0])
    assert dataset.class_names == ("z", "a")


@pytest.mark.parametrize(
    ("split", "num_classes", "label", "name"),
    [("byclass", 62, 61, "z"), ("balanced", 47, 46, "t"), ("bymerge", 47, 10, "A"), ("digits", 10, 9, "9")],
)
def test_the_names_of_each_split(tmp_path: Path, split: str, num_classes: int, label: int, name: str) -> None:
    fill_emnist(tmp_path, split, np.array([label, 0, label], np.uint8))
    assert load(tmp_path, split=split).task.num_outputs == num_classes
    assert labels_of(load(tmp_path, split=split, classes=[name])) == ([0, 0], [0])


def test_writers_of_the_samples_that_are_kept(tmp_path: Path) -> None:
    fill_emnist(tmp_path)
    np.save(tmp_path / "w.npy", np.array([5, 6, 7, 8, 9]))
    users = there(load(tmp_path, classes=["a", "c"], users="w.npy").users)
    assert users.tolist() == [5, 8, 9]


@pytest.mark.parametrize(
    ("classes", "problem"),
    [
        (27, "has 26 classes, a, b, .*at most that many"),
        (["a", "A"], "no class 'A'"),
        (["N/A"], "no class 'N/A'"),
        (["a", "a"], "named twice"),
    ],
)
def test_classes_that_are_not_there(tmp_path: Path, classes: Any, problem: str) -> None:
    fill_emnist(tmp_path)
    with pytest.raises(DataError, match=problem) as caught:
        load(tmp_path, classes=classes)
    assert caught.value.setting == "classes"


def test_a_missing_split_says_how_to_get_it(tmp_path: Path) -> None:
    fill_emnist(tmp_path, "digits")
    wanted = r'lacks emnist-letters-train-images-idx3-ubyte, .*EMNIST\(".*", "letters", download=True\)'
    with pytest.raises(DataError, match=wanted):
        load(tmp_path)
    with pytest.raises(DataError, match="set FEDSIM_DATA"):
        load(None)


def test_labels_of_another_split(tmp_path: Path) -> None:
    fill_emnist(tmp_path, labels=np.array([1, 27], np.uint8))
    with pytest.raises(DataError, match="the label 27, but those of split 'letters' end at 26"):
        load(tmp_path)
