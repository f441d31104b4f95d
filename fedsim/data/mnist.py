"""MNIST: 60,000 + 10,000 grey images of 28 by 28, handwritten digits."""

from fedsim.data.mnist_family import Idx


class Mnist(Idx):
    """MNIST, from ``MNIST/raw`` below the root."""

    name = "MNIST"


PLUGIN = Mnist
