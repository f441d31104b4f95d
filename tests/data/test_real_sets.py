"""The real data sets, where there are any."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedsim.data import SPLITS, LoadContext, Spreading, federate
from fedsim.data.files import Files, FilesConfig
from fedsim.data.mnist import FashionMnist, IdxConfig, Mnist
from fedsim.data.partitions.dirichlet import DirichletClass, DirichletClassConfig
from fedsim.data.shakespeare import Shakespeare, ShakespeareConfig
from fedsim.data.texts import Texts, TextsConfig
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

pytestmark = pytest.mark.shared_data

ROOT = Path(os.environ.get("FEDSIM_DATA") or Path(__file__).parents[2].parent / "shared" / "data")


def context(folder: str) -> LoadContext:
    if not (ROOT / folder).is_dir():
        pytest.skip(f"there is no {folder} in {ROOT}; set FEDSIM_DATA to a folder of data sets")
    return LoadContext(ROOT, 10, Key.root(0))


@pytest.mark.parametrize(("plugin", "folder"), [(Mnist, "MNIST"), (FashionMnist, "FashionMNIST")])
def test_the_mnist_family(plugin: type[Mnist] | type[FashionMnist], folder: str) -> None:
    place = context(folder)
    before = sorted(path.name for path in (ROOT / folder).rglob("*"))
    dataset = plugin(plugin.Config()).load(place)
    assert sorted(path.name for path in (ROOT / folder).rglob("*")) == before
    assert dataset.task == Task((1, 28, 28), 10)
    x = held(dataset.x)
    assert x.shape == (60_000, 1, 28, 28)
    assert held(dataset.test_x).shape == (10_000, 1, 28, 28)
    # The published means of the train parts.
    mean = {"MNIST": 0.1307, "FashionMNIST": 0.2860}[folder]
    assert x.mean(dtype=np.float64) == pytest.approx(mean, abs=1e-4)
    assert held(dataset.y)[:3].tolist() == {"MNIST": [5, 0, 4], "FashionMNIST": [9, 0, 0]}[folder]


def test_a_subset_of_cifar10() -> None:
    part = "CIFAR10_subset/test"
    config = FilesConfig(images=f"{part}_images.npy.xz", labels=f"{part}_labels.npy")
    dataset = Files(config).load(context("CIFAR10_subset"))
    assert dataset.task == Task((3, 32, 32), 10)
    x = held(dataset.x)
    assert x.shape == (4000, 3, 32, 32)
    # Near the published means of the channels, in their order.
    assert x.mean(axis=(0, 2, 3)) == pytest.approx([0.491, 0.482, 0.447], abs=0.01)

    partition = DirichletClass(DirichletClassConfig(alpha=0.5))
    data = federate(
        dataset, partition, Spreading(num_clients=10, shares=(0.6, 0.2, 0.2), public_size=400), Key.root(0)
    )
    assert sum(int(data.sizes(split).sum()) for split in SPLITS) == 3600


def test_writers_of_mnist() -> None:
    config = IdxConfig(users="MNIST/writers.npz", user_key="train_writer")
    users = Mnist(config).load(context("MNIST")).users
    counts = np.bincount(there(users))
    counts = counts[counts > 0]
    assert (len(counts), counts.min(), counts.max()) == (539, 19, 131)
    assert np.median(counts) == 116


def test_a_subset_of_emnist_in_idx_files() -> None:
    part = "EMNIST_byclass_subset/raw/t10k"
    config = FilesConfig(images=f"{part}-images-idx3-ubyte.gz", labels=f"{part}-labels-idx1-ubyte.gz")
    dataset = Files(config).load(context("EMNIST_byclass_subset"))
    assert dataset.task == Task((1, 28, 28), 62)
    x = held(dataset.x)
    assert len(x) == 4000
    # Upright, a one is high and narrow.
    ones = x[held(dataset.y) == 1].mean(axis=(0, 1))
    assert (ones.mean(axis=1) > 0.05).sum() > 1.5 * (ones.mean(axis=0) > 0.05).sum()


def test_a_play_of_shakespeare() -> None:
    dataset = Shakespeare(ShakespeareConfig(stride=20)).load(context("shakespeare"))
    assert dataset.task == Task((80,), 90, vocabulary=90)
    x = held(dataset.x)
    # The file has 65 different characters.
    assert x.max() == 65
    assert x.min() > 0
    assert there(dataset.users).max() + 1 <= 309
    assert 45_000 < len(x) < 1_115_394 / 20


def test_tweets_by_user() -> None:
    dataset = Texts(TextsConfig(file="twitter_airline/tweets.csv.gz")).load(context("twitter_airline"))
    assert dataset.task == Task((32,), 3, vocabulary=5000)
    assert np.bincount(held(dataset.y).astype(np.int64)).tolist() == [9178, 3099, 2363]
    texts = np.bincount(there(dataset.users))
    assert [(texts >= least).sum() for least in (1, 2, 3, 5, 10)] == [7701, 3000, 1458, 474, 77]
