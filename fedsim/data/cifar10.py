"""CIFAR-10: 50,000 + 10,000 colour images of 32 by 32, animals and vehicles, read with torchvision."""

from fedsim.config import Config
from fedsim.data import cifar
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext


class Cifar10(DatasetPlugin[Config]):
    """CIFAR-10, from the official files in ``cifar-10-batches-py`` below the root."""

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (3, 32, 32)."""
        return cifar.load("CIFAR10", context)


PLUGIN = Cifar10
