"""Fashion-MNIST: 60,000 + 10,000 grey images of 28 by 28, ten kinds of clothing."""

from fedsim.data.mnist_family import Idx


class FashionMnist(Idx):
    """Fashion-MNIST, from ``FashionMNIST/raw`` below the root."""

    name = "FashionMNIST"
    class_names = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


PLUGIN = FashionMnist
