"""CIFAR-10: 50,000 + 10,000 colour images of 32 by 32, animals and vehicles, read with torchvision."""

from fedsim.data.cifar import Cifar


class Cifar10(Cifar):
    """CIFAR-10, from the official files in ``cifar-10-batches-py`` below the root."""

    name = "CIFAR10"


PLUGIN = Cifar10
