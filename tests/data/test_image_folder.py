"""Images in folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.image_folder import ImageFolder, ImageFolderConfig
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from tests.data.conftest import held


def load(root: Path, **settings: Any) -> Dataset:
    config = ImageFolderConfig(**({"folder": "images"} | settings))
    return ImageFolder(config).load(LoadContext(root, 2, Key.root(0)))


def save(root: Path, name: str, colour: Any = 0, size: tuple[int, int] = (3, 2), mode: str = "RGB") -> None:
    path = root / "images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    save(tmp_path, "dog/b.png", (255, 0, 51))
    save(tmp_path, "dog/deep/a.PNG", (0, 0, 0))
    save(tmp_path, "cat/x.bmp", (102, 0, 0))
    (tmp_path / "images" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "images" / ".hidden").mkdir()
    dataset = load(tmp_path)
    assert dataset.task == Task((3, 2, 3), 2)
    x = held(dataset.x)
    assert x.dtype == np.float32
    assert held(dataset.y).tolist() == [0, 1, 1]
    assert dataset.class_names == ("cat", "dog")
    assert x[:, :, 1, 2].tolist() == [[np.float32(0.4), 0, 0], [1, 0, np.float32(0.2)], [0, 0, 0]]


def test_grey_images(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png", 51, mode="L")
    save(tmp_path, "a/2.png", (51, 51, 51))
    dataset = load(tmp_path, colour="grey")
    assert dataset.task.input_shape == (1, 2, 3)
    assert np.unique(held(dataset.x)).tolist() == [np.float32(0.2)]
    assert load(tmp_path).task.input_shape == (3, 2, 3)


def test_images_are_resized(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png", (255, 255, 255), (8, 4))
    save(tmp_path, "a/2.png", (255, 255, 255), (5, 5))
    dataset = load(tmp_path, size=[2, 6])
    assert dataset.task.input_shape == (3, 2, 6)
    assert (held(dataset.x) == 1).all()


def test_images_of_several_sizes(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png")
    save(tmp_path, "b/2.png", size=(5, 4))
    with pytest.raises(
        DataError, match=r"2\.png has 4 x 5 pixels, but 1\.png 2 x 3: resize all, size = \[2, 3]"
    ):
        load(tmp_path)


def test_a_photograph_is_turned_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.new("RGB", (3, 2)).save(tmp_path / "images" / "a" / "1.jpg", exif=exif)
    assert load(tmp_path).task.input_shape == (3, 3, 2)


def test_a_test_part_has_the_same_classes(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        save(tmp_path, name)
    save(tmp_path / "test", "b/1.png", (255, 255, 255))
    dataset = load(tmp_path, test_folder="test/images")
    assert held(dataset.test_y).tolist() == [1]
    save(tmp_path / "test", "c/1.png")
    with pytest.raises(DataError, match=r"class 'c' of .*/test/images is not one of a, b") as caught:
        load(tmp_path, test_folder="test/images")
    assert caught.value.setting == "test_folder"


def test_a_test_part_of_another_size(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png")
    save(tmp_path / "test", "a/1.png", size=(5, 5))
    with pytest.raises(DataError, match=r"the shape \(3, 5, 5\), but the others \(3, 2, 3\): give size"):
        load(tmp_path, test_folder="test/images")


def test_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no images: looked in ") as caught:
        load(tmp_path)
    assert caught.value.setting == "folder"
    folder = tmp_path / "images"
    folder.mkdir()
    with pytest.raises(DataError, match="images is empty: make a folder in it for each class"):
        load(tmp_path)
    save(tmp_path, "1.png")
    with pytest.raises(DataError, match="has images, but no folders"):
        load(tmp_path)
    (folder / "a").mkdir()
    with pytest.raises(DataError, match=r"images/a has no images \(\.bmp .*: add some, or remove the folder"):
        load(tmp_path)


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png")
    for content in (b"", b"no image", (tmp_path / "images/a/1.png").read_bytes()[:40]):
        (tmp_path / "images" / "a" / "2.png").write_bytes(content)
        with pytest.raises(DataError, match=r"2\.png cannot be read as an image: .*mend it or take it out"):
            load(tmp_path)


def test_more_than_eight_bits(tmp_path: Path) -> None:
    save(tmp_path, "a/1.png", 5, mode="I;16")
    with pytest.raises(DataError, match=r"1\.png is of mode I;16: save it with 8 bits for each channel"):
        load(tmp_path)
