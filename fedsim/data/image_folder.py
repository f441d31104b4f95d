"""Your own images: a folder for each class, with image files in it or below it.

Files are .png, .jpg, .jpeg, .bmp, .gif (its first image), .webp, .tif, .tiff, .ppm and .pgm; others, and
hidden ones, are left out. An image is turned as its EXIF data say, and its transparency is dropped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.config import AsTuple, Config
from fedsim.data.base import Dataset, DatasetPlugin, Indices, LoadContext, blamed, room
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.task import Task

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Endings of the names of image files, in any case."""

_MODES = {"grey": "L", "rgb": "RGB"}
_BYTES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
"""Pillow's modes of at most 8 bits for each channel, which it converts without loss of range."""

Side = Annotated[int, Field(ge=1, le=4096)]


class ImageFolderConfig(Config):
    """Settings of images in folders."""

    folder: DataPath
    """Folder of the classes' folders; classes are numbered in the order of their sorted names."""
    test_folder: DataPath | None = None
    """The same for a test part; it has no other classes."""
    size: Annotated[tuple[Side, Side], AsTuple] | None = None
    """Height and width in pixels, such as [32, 32], to which every image is resized (bilinear); without it,
    all images must have the same."""
    colour: Literal["rgb", "grey"] = "rgb"
    """Whether samples have three channels, or one."""


class ImageFolder(DatasetPlugin[ImageFolderConfig]):
    """Images, class by class, in the order of their sorted paths."""

    origin = ("folder",)

    def load(self, context: LoadContext) -> Dataset:
        """Return all images as (n, channels, height, width)."""
        config = self.config
        with blamed("folder"):
            files = _files(context.path(config.folder))
            x, y = self._read(files, list(files))
        test_x, test_y = None, None
        if config.test_folder is not None:
            with blamed("test_folder"):
                test_folder = context.path(config.test_folder)
                test_files = _files(test_folder)
                for name in test_files:
                    if name not in files:
                        there = shortened(", ".join(files), MAX_SHOWN)
                        problem = f"class {quoted(name)} of {test_folder} is not one of {there}"
                        raise DataError(problem)
                test_x, test_y = self._read(test_files, list(files))
                if test_x.shape[1:] != x.shape[1:]:
                    shapes = f"the shape {test_x.shape[1:]}, but the others {x.shape[1:]}"
                    raise DataError(f"its images have {shapes}: give size")
        return Dataset(Task(x.shape[1:], len(files)), x, y, test_x, test_y, class_names=tuple(files))

    def _read(
        self, files: Mapping[str, Sequence[Path]], classes: Sequence[str]
    ) -> tuple[NDArray[np.float32], Indices]:
        """Return the images and labels of a part; all images have the size of the first."""
        every = [path for paths in files.values() for path in paths]
        labels = [classes.index(name) for name, paths in files.items() for _ in paths]
        shape = self._image(every[0]).shape
        x = room((len(every), *shape), np.float32, "size")
        for place, path in enumerate(every):
            image = self._image(path)
            if image.shape != shape:
                height, width = shape[1:]
                raise DataError(
                    f"{path} has {image.shape[1]} x {image.shape[2]} pixels, but {every[0].name} "
                    f"{height} x {width}: resize all, size = [{height}, {width}] say"
                )
            np.divide(image, np.float32(255), out=x[place])
        return x, np.array(labels, np.int64)

    def _image(self, path: Path) -> NDArray[np.uint8]:
        """Return an image of bytes, (channels, height, width)."""
        from PIL import Image, ImageOps  # which a list of data sets needs not

        try:
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened)
                if image.mode not in _BYTES:
                    raise DataError(f"{path} is of mode {image.mode}: save it with 8 bits for each channel")
                image = image.convert(_MODES[self.config.colour])
                if self.config.size is not None:
                    height, width = self.config.size
                    image = image.resize((width, height), Image.Resampling.BILINEAR)
                array = np.asarray(image)
        except DataError:
            raise
        except Exception as error:  # Pillow's readers fail in many ways
            raise DataError(
                f"{path} cannot be read as an image: {shortened(error, MAX_SHOWN)}: mend it or take it out"
            ) from error
        return array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)


def _files(folder: Path) -> dict[str, list[Path]]:
    """Return the image files of each class, both sorted."""
    if not folder.is_dir():
        raise DataError(f"{shortened(folder, MAX_SHOWN)} is not a folder")
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        loose = any(map(_is_image, folder.iterdir()))
        problem = "has images, but no folders" if loose else "is empty"
        raise DataError(f"{folder} {problem}: make a folder in it for each class, with its images")
    files = {path.name: sorted(filter(_is_image, path.rglob("*"))) for path in classes}
    for name, images in files.items():
        if not images:
            endings = " ".join(ENDINGS)
            raise DataError(f"{folder / name} has no images ({endings}): add some, or remove the folder")
    return files


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()


PLUGIN = ImageFolder
