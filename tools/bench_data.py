"""Generated samples as a data set for benches."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedsim.config import AsTuple, Config
from fedsim.data import Dataset, DatasetPlugin, LoadContext
from fedsim.task import Task


class GeneratedConfig(Config):
    """Settings of generated samples."""

    shape: Annotated[tuple[int, ...], AsTuple]
    """Of one sample."""
    each: int
    """Samples of each client."""


class GeneratedTextsConfig(GeneratedConfig):
    """Settings of generated texts."""

    vocabulary: int
    """Different characters; one of them follows each text."""


class GeneratedTexts(DatasetPlugin[GeneratedTextsConfig]):
    """Random texts."""

    def load(self, context: LoadContext) -> Dataset:
        """Return equally many texts for every client."""
        count, vocabulary = context.num_clients * self.config.each, self.config.vocabulary
        generator = context.key.numpy()
        x, y = (generator.integers(0, vocabulary, size) for size in ((count, *self.config.shape), count))
        return Dataset(Task(self.config.shape, vocabulary, vocabulary=vocabulary), x, y)


class Generated(DatasetPlugin[GeneratedConfig]):
    """Random samples of ten classes."""

    def load(self, context: LoadContext) -> Dataset:
        """Return equally many samples for every client."""
        count, shape = context.num_clients * self.config.each, self.config.shape
        generator = context.key.numpy()
        x = generator.standard_normal((count, *shape), dtype=np.float32)
        return Dataset(Task(shape, 10), x, generator.integers(0, 10, count))
