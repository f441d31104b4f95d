"""CIFAR-100: 50,000 + 10,000 colour images of 32 by 32, a hundred kinds of things, read with torchvision."""

from fedsim.config import Config
from fedsim.data import cifar
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext


class Cifar100(DatasetPlugin[Config]):
    """CIFAR-100, from the official files in ``cifar-100-python`` below the root."""

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, fine labels, samples of shape (3, 32, 32)."""
        return cifar.load("CIFAR100", context)


PLUGIN = Cifar100
