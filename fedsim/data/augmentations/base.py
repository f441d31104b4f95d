"""Augmentations: random transformations of training images, drawn anew each time that an image is met.

Only the training split is transformed, and only in a training; predictions, evaluations and public samples
are not. The draws are those of the training job, in the order of its batches.

Letters for shapes: b samples, C channels, H and W height and width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fedsim.errors import DataError
from fedsim.plugins import C, Plugin, name_of
from fedsim.task import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Augmentation(Plugin[C], ABC):
    """Transforms images at random."""

    @abstractmethod
    def transformed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return new images ``[b, C, H, W]``, each transformed by draws of its own.

        The cost is counted on images without values, so nothing but draws may depend on values.

        Args:
            images: float32 ``[b, C, H, W]``, on any device; not to be written into.
            generator: For all draws; it is on the CPU.
        """

    def fault(self, height: int, width: int) -> str:
        """Return why images of this size cannot be transformed; empty if they can."""
        return ""


Augmentations: TypeAlias = Sequence[Augmentation[Any]]


def check_images(augmentations: Augmentations, task: Task) -> None:
    """Raise a DataError unless a task's samples are images that the augmentations can transform."""
    for augmentation in augmentations:
        shape = task.input_shape
        if len(shape) != 3 or task.vocabulary:
            what = "texts" if task.vocabulary else f"of the shape {' x '.join(map(str, shape))}"
            problem = f"it transforms images (channels, height, width), and the samples are {what}"
            problem += ": leave it out, or take images (such as digits with params.shape = 'image')"
        elif not (problem := augmentation.fault(*shape[1:])):
            continue
        raise DataError(f"{name_of(augmentation)!r}: {problem}", setting="augmentations")


def transformed(augmentations: Augmentations, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images ``[b, C, H, W]`` after one augmentation after the other."""
    for augmentation in augmentations:
        images = augmentation.transformed(images, generator)
    return images
