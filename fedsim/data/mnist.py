"""MNIST: 60,000 + 10,000 grey images of 28 by 28, handwritten digits, read with torchvision."""

from fedsim.data import idx
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext


class Mnist(DatasetPlugin[idx.IdxConfig]):
    """MNIST, from ``MNIST/raw`` below the root."""

    Config = idx.IdxConfig
    origin = ()

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (1, 28, 28)."""
        return idx.load("MNIST", context, self.config)


PLUGIN = Mnist
