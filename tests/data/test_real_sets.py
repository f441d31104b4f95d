"""The real data sets, where there are any."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedsim.data import LoadContext, federate
from fedsim.data.fashion_mnist import FashionMnist
from fedsim.data.files import Files, FilesConfig
from fedsim.data.mnist import Mnist
from fedsim.data.partitions.dirichlet_class import DirichletClass, DirichletClassConfig
from fedsim.rng import Key
from fedsim.task import Task

pytestmark = pytest.mark.shared_data

ROOT = Path(os.environ.get("FEDSIM_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


def context(folder: str) -> LoadContext:
    if not (ROOT / folder).is_dir():
        pytest.skip(f"there is no {folder} in {ROOT}; set FEDSIM_DATA to a folder of data sets")
    return LoadContext(ROOT, 10, Key.root(0))


@pytest.mark.parametrize(("plugin", "folder"), [(Mnist, "MNIST"), (FashionMnist, "FashionMNIST")])
def test_the_mnist_family(plugin: type[Mnist] | type[FashionMnist], folder: str) -> None:
    there = context(folder)
    before = sorted(path.name for path in (ROOT / folder).rglob("*"))
    dataset = plugin(plugin.Config()).load(there)
    assert sorted(path.name for path in (ROOT / folder).rglob("*")) == before
    assert dataset.task == Task((1, 28, 28), 10)
    assert dataset.x is not None
    assert dataset.y is not None
    assert dataset.test_x is not None
    assert dataset.x.shape == (60_000, 1, 28, 28)
    assert dataset.test_x.shape == (10_000, 1, 28, 28)
    # The published means of the train parts.
    mean = {"MNIST": 0.1307, "FashionMNIST": 0.2860}[folder]
    assert dataset.x.mean(dtype=np.float64) == pytest.approx(mean, abs=1e-4)
    assert dataset.y[:3].tolist() == {"MNIST": [5, 0, 4], "FashionMNIST": [9, 0, 0]}[folder]


def test_a_subset_of_cifar10() -> None:
    part = "CIFAR10_subset/test"
    config = FilesConfig(images=f"{part}_images.npy.xz", labels=f"{part}_labels.npy")
    dataset = Files(config).load(context("CIFAR10_subset"))
    assert dataset.task == Task((3, 32, 32), 10)
    assert dataset.x is not None
    assert dataset.x.shape == (4000, 3, 32, 32)
    # Near the published means of the channels, in their order.
    assert dataset.x.mean(axis=(0, 2, 3)) == pytest.approx([0.491, 0.482, 0.447], abs=0.01)

    partition = DirichletClass(DirichletClassConfig(alpha=0.5))
    data = federate(
        dataset, partition, num_clients=10, shares=(0.6, 0.2, 0.2), key=Key.root(0), public_size=400
    )
    assert data.label_counts().sum() == 3600
