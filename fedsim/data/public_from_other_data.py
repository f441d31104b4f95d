"""Public sets: converting samples of another data set to the form of the task, and transforming images.

A public set from another label space (MNIST for Fashion-MNIST, CIFAR-100 for CIFAR-10) is for predictions
only. Images of another size are resized, bilinearly with antialiasing. A grey image becomes a colour image by
repeating its channel, and a colour image becomes grey by averaging its channels.

A public set of texts comes from the task's own data set only: each file numbers its own words or characters,
so the tokens of another file have other meanings.

Fed-ET transforms its public images, but its text does not list the transformations. Those of specification
6.3 are used here: random crop with padding 4, horizontal flip, colour jitter 0.4, rotation by up to 15
degrees, applied once, so that all models see the same image.

Letters for shapes: p public samples, C channels, H and W height and width.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Dataset, Samples
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module

Augment: TypeAlias = Literal["none", "fedet"]

PADDING = 4
"""Black pixels around an image before it is cropped to its size again."""

JITTER = 0.4
"""Brightness, contrast and saturation are multiplied by uniform(1 - JITTER, 1 + JITTER)."""

HUE = 0.1
"""Hue is shifted by at most this part of the colour circle, as is usual with a jitter of 0.4."""

DEGREES = 15.0
"""Largest rotation."""


def drawn_from(source: Dataset, task: Task, size: int, key: Key) -> Samples:
    """Return (size, *input_shape) samples of another data set, in the form that the task has, shuffled."""
    if source.x is None:
        raise DataError(
            "the public set's source has sample counts only: draw it from a data set with samples",
            setting="public_source",
        )
    if fault := form_fault(source.task, task):
        raise DataError(fault, setting="public_source")
    if size > len(source.x):
        raise DataError(
            f"{size} public samples, but their source has {len(source.x)}: write {len(source.x)} or fewer",
            setting="public_size",
        )
    return _formed(source.x[key.numpy().permutation(len(source.x))[:size]], task)


def form_fault(source: Task, task: Task) -> str:
    """Return why samples of one task cannot be converted to the form of another; empty if they can."""
    own, wanted = source.input_shape, task.input_shape
    if bool(source.vocabulary) != bool(task.vocabulary):
        return (
            f"the public set's source has {_what(source)}, but the task has {_what(task)}: "
            "draw it from a data set of the same kind"
        )
    if task.vocabulary:
        return (
            "texts cannot come from another data set, because each data set numbers its own words or "
            "characters: leave out the source, so that the public set is held out of the data set itself"
        )
    are_images = len(own) == len(wanted) == 3
    if own == wanted or (are_images and (own[0] == wanted[0] or 1 in (own[0], wanted[0]))):
        return ""
    return (
        f"samples of the public set's source have the shape {_shape(own)}, but the task's have "
        f"{_shape(wanted)}: only images (channels, height, width) can be converted to another shape, and "
        "their channels can only be repeated from one or averaged to one"
    )


def augmented(images: Samples, key: Key) -> Samples:
    """Return (p, C, H, W) images with each one cropped, flipped, jittered and rotated at random, once.

    Saturation and hue are changed only in images of three channels.
    """
    least, most = (float(images.min()), float(images.max())) if images.size else (0.0, 0.0)
    if images.ndim != 4 or images.dtype != np.float32 or not 0 <= least <= most <= 1:
        raise DataError(
            f"only images with values in [0, 1] can be transformed, but these samples are {images.dtype} of "
            f"shape {_shape(images.shape[1:])} with values from {least:g} to {most:g}: write augment = "
            '"none", or scale them',
            setting="public_augment",
        )
    import torch

    change = torchvision_module("transforms.functional")
    num, (channels, height, width) = len(images), images.shape[1:]
    generator = key.numpy()
    # Everything is drawn for all images, also what grey images do not use, so that the draws of one
    # transformation do not depend on the others.
    corners = generator.integers(0, 2 * PADDING + 1, (num, 2)).tolist()
    flips = (generator.random(num) < 0.5).tolist()
    factors = generator.uniform(1 - JITTER, 1 + JITTER, (num, 3)).tolist()
    hues = generator.uniform(-HUE, HUE, num).tolist()
    angles = generator.uniform(-DEGREES, DEGREES, num).tolist()
    result = np.empty_like(images)
    for i, (top, left) in enumerate(corners):
        image = change.pad(torch.from_numpy(images[i].copy()), [PADDING] * 4)
        image = change.crop(image, top, left, height, width)
        if flips[i]:
            image = change.hflip(image)
        brightness, contrast, saturation = factors[i]
        if channels == 3:
            image = change.adjust_brightness(image, brightness)
            image = change.adjust_contrast(image, contrast)
            image = change.adjust_saturation(image, saturation)
            image = change.adjust_hue(image, hues[i])
        else:
            image = (image * brightness).clamp(0, 1)
            image = (image * contrast + image.mean() * (1 - contrast)).clamp(0, 1)
        image = change.rotate(image, angles[i], interpolation=change.InterpolationMode.BILINEAR)
        result[i] = image.clamp(0, 1).numpy()
    return result


def _formed(samples: Samples, task: Task) -> Samples:
    if samples.shape[1:] == task.input_shape:
        return samples
    channels, *size = task.input_shape
    images: NDArray[np.float32] = samples.astype(np.float32, copy=False)
    if channels == 1:
        images = images.mean(axis=1, keepdims=True, dtype=np.float32)
    if list(images.shape[2:]) != size:
        import torch
        from torch.nn.functional import interpolate

        images = interpolate(
            torch.from_numpy(images.copy()), size=size, mode="bilinear", align_corners=False, antialias=True
        ).numpy()
    return np.repeat(images, channels, axis=1) if images.shape[1] != channels else images


def _what(task: Task) -> str:
    return "texts" if task.vocabulary else "images or numbers"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
