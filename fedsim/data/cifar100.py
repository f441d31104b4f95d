"""CIFAR-100: 50,000 + 10,000 colour images of 32 by 32, a hundred kinds of things, read with torchvision."""

from fedsim.data.cifar import Cifar


class Cifar100(Cifar):
    """CIFAR-100, from the official files in ``cifar-100-python`` below the root; fine labels."""

    name = "CIFAR100"


PLUGIN = Cifar100
