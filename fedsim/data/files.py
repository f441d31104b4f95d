"""Your own images: an array of images and one of labels, as .npz, .npy, .npy.xz or idx files.

Images are (n, h, w), (n, h, w, c) or (n, c, h, w), as uint8 in 0..255 or as floats in [0, 1]; labels, and
users if there are any, are integers from 0. Nothing is ever unpickled. A compressed array may unpack to
2 GiB; plain files may have any size.
"""

from typing import Literal

import numpy as np
from pydantic import model_validator

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, Labels, LoadContext, Samples, blamed
from fedsim.data.file_readers import read_array, read_numbers, read_users, scaled
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.params import Array
from fedsim.ranges import Classes
from fedsim.task import Task

_CHANNELS = (1, 3, 4)


class FilesConfig(Config):
    """Settings of images from files."""

    images: DataPath
    """File of the images: .npz, .npy, .npy.xz, or an idx file (its name ends in -ubyte or -ubyte.gz)."""
    labels: DataPath
    """File of the labels; it may be the same .npz."""
    test_images: DataPath | None = None
    """File of the images of a test part."""
    test_labels: DataPath | None = None
    """File of the labels of a test part."""
    image_key: str = "images"
    """Name of the array of images in a .npz."""
    label_key: str = "labels"
    """Name of the array of labels in a .npz."""
    test_image_key: str | None = None
    """Name of the array of test images in a .npz; without it, that of the images."""
    test_label_key: str | None = None
    """Name of the array of test labels in a .npz; without it, that of the labels."""
    layout: Literal["auto", "channels_last", "channels_first"] = "auto"
    """Where 4-dimensional images have their channels; ``auto`` finds the axis of length 1, 3 or 4."""
    users: DataPath | None = None
    """File of integers from 0: the user who made each image of the train part, for a natural partition."""
    user_key: str = "users"
    """Name of the array of users in a .npz."""
    num_classes: Classes | None = None
    """Classes; without it, one more than the largest label."""
    standardise: bool = False
    """Whether each value of an image is shifted and scaled to mean 0 and standard deviation 1 over all
    clients' training samples, and all other images alike. A value that is the same in all of them is only
    shifted."""

    @model_validator(mode="after")
    def _test_part_is_whole(self) -> "FilesConfig":
        if (self.test_images is None) != (self.test_labels is None):
            raise ValueError("test_images and test_labels come together: give both or neither")
        if self.test_images is None and (self.test_image_key or self.test_label_key):
            raise ValueError(
                "test_image_key and test_label_key are of a test part: give test_images and test_labels too"
            )
        return self


class Files(DatasetPlugin[FilesConfig]):
    """Images and labels from files."""

    origin = ("images",)

    def load(self, context: LoadContext) -> Dataset:
        """Return the arrays, images scaled to [0, 1] and channels first."""
        config = self.config
        x, y = _part(context, config)
        test_x, test_y = (None, None) if config.test_images is None else _part(context, config, "test_")
        if test_x is not None and test_x.shape[1:] != x.shape[1:]:
            raise DataError(f"test images have the shape {test_x.shape[1:]}, but the others {x.shape[1:]}")
        users = read_users(context, config.users, config.user_key, len(x))
        num_classes = config.num_classes or _num_classes(y, test_y)
        task = Task(x.shape[1:], num_classes)
        return Dataset(task, x, y, test_x, test_y, users=users, standardise=config.standardise)


def _part(context: LoadContext, config: FilesConfig, prefix: str = "") -> tuple[Samples, Labels]:
    labels = getattr(config, f"{prefix}labels")
    with blamed(f"{prefix}images"):
        images = context.path(getattr(config, f"{prefix}images"))
        key = getattr(config, f"{prefix}image_key") or config.image_key
        x = _images(read_array(images, key, f"{prefix}image_key"), str(images), config.layout)
    key = getattr(config, f"{prefix}label_key") or config.label_key
    y = read_numbers(context, labels, key, f"{prefix}labels")
    if len(x) != len(y):
        raise DataError(
            f"{images} holds {len(x)} images and {context.path(labels)} {len(y)} labels: "
            "give one label for each image"
        )
    if not len(x):
        raise DataError(f"{images} holds no images")
    return x, y


def _images(array: Array, name: str, layout: str) -> Samples:
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim != 4:
        raise DataError(
            f"{name} holds an array of shape {array.shape}; "
            "images are (n, h, w), (n, h, w, c) or (n, c, h, w)"
        )
    elif layout == "channels_last" or (layout == "auto" and _channels_are_last(array.shape, name)):
        array = np.moveaxis(array, -1, 1)
    if array.dtype == np.uint8:
        return scaled(array)
    if array.dtype.kind != "f":
        raise DataError(f"{name} holds {array.dtype}; images are uint8 in 0..255 or floats in [0, 1]")
    x = array.astype(np.float32, order="C")
    if x.size and not (np.isfinite(x).all() and x.min() >= 0 and x.max() <= 1):
        raise DataError(
            f"{name} holds floats from {x.min():g} to {x.max():g}; float images lie in [0, 1]: "
            "scale them, or save them as uint8"
        )
    return x


def _channels_are_last(shape: tuple[int, ...], name: str) -> bool:
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if first == last:
        raise DataError(
            f"{name} has the shape {shape}, which does not say where the channels are: "
            'set layout = "channels_last" or layout = "channels_first"'
        )
    return last


def _num_classes(y: Labels, test_y: Labels | None) -> int:
    largest = max(int(labels.max()) for labels in (y, test_y) if labels is not None)
    if largest >= len(y):
        raise DataError(
            f"labels go up to {largest}, but there are only {len(y)} samples: "
            "number the classes from 0 without gaps, or set num_classes"
        )
    return largest + 1


PLUGIN = Files
