"""Images and labels from files."""

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsim.data import Spreading, federate
from fedsim.data.base import Dataset, LoadContext
from fedsim.data.files import Files, FilesConfig
from fedsim.data.partitions.iid import PLUGIN as IID
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

LABELS = np.array([0, 1, 2, 1])


def save(folder: Path, **arrays: Any) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def load(root: Path | None, **settings: Any) -> Dataset:
    config = FilesConfig(**({"images": "x.npy", "labels": "y.npy"} | settings))
    return Files(config).load(LoadContext(root, 2, Key.root(0)))


def images(*shape: int) -> Any:
    return (np.arange(np.prod(shape)) % 256).astype(np.uint8).reshape(shape)


def test_grey_bytes(tmp_path: Path) -> None:
    save(tmp_path, x=np.full((4, 2, 5), 51, np.uint8), y=LABELS.astype(np.uint8))
    dataset = load(tmp_path)
    assert dataset.task == Task((1, 2, 5), 3)
    x, y = held(dataset.x), held(dataset.y)
    assert x.dtype == np.float32
    assert np.unique(x).tolist() == [np.float32(0.2)]
    assert y.tolist() == [0, 1, 2, 1]
    assert dataset.test_x is None


def test_images_are_standardised_over_the_training_samples_alone(tmp_path: Path) -> None:
    save(tmp_path, x=images(40, 2, 2), y=np.arange(40) % 2)
    dataset = load(tmp_path, standardise=True)
    data = federate(dataset, IID(IID.Config()), Spreading(2, (0.5, 0.25, 0.25)), Key.root(1))
    train, val = (data.x[data.pooled(part)] for part in ("train", "val"))
    assert train.mean(axis=0) == pytest.approx(np.zeros((1, 2, 2)), abs=1e-6)
    assert train.std(axis=0) == pytest.approx(np.ones((1, 2, 2)), abs=1e-6)
    assert abs(float(val.mean())) > 1e-3


def test_channels_come_first_wherever_they_were(tmp_path: Path) -> None:
    last = images(4, 5, 6, 3)
    save(tmp_path, x=last, y=LABELS, first=np.moveaxis(last, 3, 1))
    one, other = load(tmp_path), load(tmp_path, images="first.npy")
    assert one.task.input_shape == (3, 5, 6)
    x = held(one.x)
    assert x.flags.c_contiguous
    assert np.array_equal(x, held(other.x))
    assert x[1, 2, 3, 4] == np.float32(last[1, 3, 4, 2] / np.float32(255))


@pytest.mark.parametrize("shape", [(4, 3, 5, 3), (4, 5, 6, 7)])
def test_an_unclear_layout_has_to_be_said(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save(tmp_path, x=images(*shape), y=LABELS)
    with pytest.raises(DataError, match="layout"):
        load(tmp_path)
    assert load(tmp_path, layout="channels_first").task.input_shape == shape[1:]
    assert load(tmp_path, layout="channels_last").task.input_shape == (shape[3], *shape[1:3])


def test_floats_stay_as_they_are(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 24).reshape(4, 2, 3)
    save(tmp_path, x=values, y=LABELS)
    assert np.array_equal(held(load(tmp_path).x)[:, 0], values.astype(np.float32))


def test_xz_and_npz_hold_the_same(tmp_path: Path) -> None:
    values = images(4, 3, 3)
    save(tmp_path, x=values, y=LABELS)
    (tmp_path / "x.npy.xz").write_bytes(lzma.compress((tmp_path / "x.npy").read_bytes()))
    np.savez(tmp_path / "all.npz", images=values, labels=LABELS, x_test=values[:1], y_test=LABELS[:1])
    plain = held(load(tmp_path).x)
    packed = load(tmp_path, images="x.npy.xz", labels="all.npz")
    keys = {"test_image_key": "x_test", "test_label_key": "y_test"}
    zipped = load(
        tmp_path, images="all.npz", labels="all.npz", test_images="all.npz", test_labels="all.npz", **keys
    )
    for other in (packed, zipped):
        assert np.array_equal(plain, held(other.x))
    assert np.array_equal(held(zipped.test_x), plain[:1])


def test_a_test_part_may_hold_the_largest_label(tmp_path: Path) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS, tx=images(1, 3, 3), ty=np.array([3]))
    dataset = load(tmp_path, test_images="tx.npy", test_labels="ty.npy")
    assert dataset.task.num_outputs == 4
    assert held(dataset.test_y).tolist() == [3]


def test_more_classes_than_labels_show(tmp_path: Path) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS)
    assert load(tmp_path, num_classes=10).task.num_outputs == 10


@pytest.mark.parametrize(
    ("x", "y", "problem"),
    [
        (images(4, 3), LABELS, r"images are \(n, h, w\)"),
        (images(4, 3, 3).astype(np.int32), LABELS, "images are uint8 in 0..255 or floats"),
        (np.full((4, 3, 3), 255.0), LABELS, "from 255 to 255; float images lie in"),
        (np.full((4, 3, 3), np.nan), LABELS, "float images lie in"),
        (np.full((4, 3, 3), -0.5), LABELS, "float images lie in"),
        (images(3, 3, 3), LABELS, "3 images and .*/y.npy 4 labels"),
        (images(0, 3, 3), LABELS[:0], "holds no images"),
        (images(4, 3, 3), LABELS.astype(np.float64), "labels are integers"),
        (images(4, 3, 3), LABELS[:, None], "labels are integers of shape"),
        (images(4, 3, 3), LABELS - 1, "label -1; labels are numbered from 0"),
        (images(4, 3, 3), LABELS * 10, "go up to 20, but there are only 4 samples"),
    ],
)
def test_arrays_that_are_no_images_or_labels(tmp_path: Path, x: Any, y: Any, problem: str) -> None:
    save(tmp_path, x=x, y=y)
    with pytest.raises(DataError, match=problem):
        load(tmp_path)


def test_labels_beyond_the_classes(tmp_path: Path) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS)
    with pytest.raises(DataError, match="labels 0 to 2, but 2 classes"):
        load(tmp_path, num_classes=2)


def test_a_test_part_of_another_shape(tmp_path: Path) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS, tx=images(4, 5, 5))
    with pytest.raises(DataError, match=r"shape \(1, 5, 5\), but the others \(1, 3, 3\)"):
        load(tmp_path, test_images="tx.npy", test_labels="y.npy")


@pytest.mark.parametrize("name", ["x.npy", "x.npy.xz", "x.npz"])
def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="cannot be read as a plain array"):
        load(tmp_path, images=name)


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_objects_are_never_unpickled(tmp_path: Path, ending: str) -> None:
    objects = np.array([{}, []], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", images=objects)
    with pytest.raises(DataError, match="never unpickled"):
        load(tmp_path, images=f"x.{ending}")


def test_another_ending(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"not .npz, .npy, .npy.xz or [*]-ubyte"):
        load(tmp_path, images="x.png")


def test_a_missing_name_in_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", pictures=images(4, 3, 3), y=LABELS)
    with pytest.raises(DataError, match="no array 'images', it has: pictures, y"):
        load(tmp_path, images="x.npz")
    save(tmp_path, y=LABELS)
    assert load(tmp_path, images="x.npz", image_key="pictures").x is not None


def test_users_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS)
    np.savez(tmp_path / "u.npz", users=np.array([3, 0, 3, 3], np.uint8), others=np.arange(4))
    users, others = (
        there(load(tmp_path, users="u.npz").users),
        there(load(tmp_path, users="u.npz", user_key="others").users),
    )
    assert users.dtype == np.int64
    assert (users.tolist(), others.tolist()) == ([3, 0, 3, 3], [0, 1, 2, 3])
    assert load(tmp_path).users is None


@pytest.mark.parametrize(
    ("users", "problem"),
    [
        (np.arange(3), "u.npy holds 3 users for 4 samples"),
        (np.array([0, -1, 0, 0]), "u.npy holds the user -1"),
        (np.zeros(4), "users are integers of shape"),
        (np.zeros((4, 1), np.int64), "users are integers of shape"),
    ],
)
def test_users_that_do_not_fit(tmp_path: Path, users: Any, problem: str) -> None:
    save(tmp_path, x=images(4, 3, 3), y=LABELS, u=users)
    with pytest.raises(DataError, match=problem) as caught:
        load(tmp_path, users="u.npy")
    assert caught.value.setting == "users"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"test_images": "a.npy"}, "come together"),
        ({"test_image_key": "a"}, "are of a test part: give"),
        ({"images": ""}, "at least 1 character"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        FilesConfig.model_validate({"images": "x.npy", "labels": "y.npy"} | settings)


@given(st.integers(1, 5), st.integers(5, 9), st.integers(5, 9), st.sampled_from([1, 3, 4]))
def test_every_pixel_survives(n: int, height: int, width: int, channels: int) -> None:
    from fedsim.data.files import _images

    last = images(n, height, width, channels)
    x = _images(last, "x", "auto")
    assert np.array_equal(np.moveaxis(np.rint(x * 255).astype(np.uint8), 1, -1), last)
