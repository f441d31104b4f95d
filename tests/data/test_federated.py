"""A pool of samples and who holds what."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.data.base import Dataset, Indices
from fedsim.data.client_split import SPLITS, Shares
from fedsim.data.federated import FederatedData, federate
from fedsim.data.partitions.base import PartitionPlugin, Pool
from fedsim.data.partitions.by_user import ByUser, ByUserConfig
from fedsim.data.partitions.dirichlet import DirichletClient, DirichletClientConfig
from fedsim.data.partitions.iid import Iid
from fedsim.data.spreading_settings import Spreading
from fedsim.errors import DataError, InvariantError
from fedsim.rng import Key
from fedsim.task import Task

TASK = Task((1,), 3)
KEY = Key.root(0)
IID = Iid(Config())


def pool(size: int, start: int = 0) -> tuple[Any, Any]:
    """Samples that carry their own number, so that a copy can be told from another."""
    return np.arange(start, start + size, dtype=np.float32)[:, None], np.arange(size) % 3


def dataset(size: int = 60, num_tested: int = 0) -> Dataset:
    x, y = pool(size)
    if not num_tested:
        return Dataset(TASK, x, y)
    return Dataset(TASK, x, y, *pool(num_tested, start=1000))


def federated(held: Dataset, partition: Any = IID, *, key: Key = KEY, **settings: Any) -> FederatedData:
    return federate(held, partition, Spreading(**{"shares": (1.0, 0.0, 0.0)} | settings), key)


def spread(size: int = 60, **settings: Any) -> FederatedData:
    split: dict[str, Any] = {"num_clients": 3, "shares": (0.6, 0.2, 0.2)}
    return federated(dataset(size), **split | settings)


def everything(data: FederatedData) -> list[Any]:
    """All that a federated data set says, as plain lists."""
    held = [data.indices(k, split).tolist() for k in range(data.num_clients) for split in SPLITS]
    return [held, data.public.tolist(), data.global_test.tolist(), data.x.tolist()]


def test_by_hand() -> None:
    data = spread(public_size=6, global_test_share=0.1)
    assert data.task is TASK
    assert (len(data.public), len(data.global_test)) == (6, 6)
    assert data.sizes("train").tolist() == [10, 10, 10]
    assert data.sizes("val").tolist() == [3, 3, 3]
    assert data.sizes("test").tolist() == [3, 3, 3]
    assert data.num_samples(2, "val") == 3
    assert data.has_samples


def test_samples_are_those_of_the_data_set() -> None:
    data = spread()
    indices = data.indices(1, "train")
    assert data.x[indices, 0].tolist() == indices.tolist()
    assert data.y[indices].tolist() == (indices % 3).tolist()


def test_samples_of_several_clients_follow_each_other() -> None:
    data = spread()
    for clients in ([2, 0, 2], [1]):
        its = [data.indices(client, "train").tolist() for client in clients]
        assert data.sizes_of(np.array(clients), "train").tolist() == [len(rows) for rows in its]
        assert data.indices_of(np.array(clients), "train").tolist() == [row for rows in its for row in rows]


def test_pooled_samples_ascend_whoever_holds_them() -> None:
    data = spread()
    everything = np.concatenate([data.indices(client, "train") for client in range(3)])
    assert data.pooled("train").tolist() == sorted(everything.tolist())
    two = np.concatenate([data.indices(client, "val") for client in (2, 0)])
    assert data.pooled("val", (2, 0)).tolist() == sorted(two.tolist())
    assert data.pooled("test", ()).tolist() == []


def test_all_arrays_are_read_only() -> None:
    data = spread(public_size=2, global_test_share=0.1)
    for array in (data.x, data.y, data.public, data.global_test, data.indices(0, "train")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_clients_have_their_samples_in_the_order_of_the_data_set_and_not_of_classes() -> None:
    data = spread(600)
    indices = data.indices(0, "train")
    assert indices.tolist() == sorted(indices.tolist())
    # 120 samples of three classes in a random order change class some 80 times, in order of classes twice.
    assert np.count_nonzero(np.diff(data.y[indices])) > 60


def test_the_own_test_part_is_the_global_test_set() -> None:
    # The share applies only where there is no test part.
    data = federated(dataset(30, 6), num_clients=2, global_test_share=0.5)
    assert data.x[data.global_test, 0].tolist() == [1000, 1001, 1002, 1003, 1004, 1005]
    assert data.sizes("train").tolist() == [15, 15]


def test_a_limit_shrinks_the_pool_and_the_own_test_part() -> None:
    data = federated(dataset(40, 20), num_clients=2, limit=10)
    assert data.x.shape == (15, 1)
    assert data.sizes("train").tolist() == [5, 5]
    assert len(data.global_test) == 5
    assert (data.x[data.global_test] >= 1000).all()
    assert (data.x[data.indices(0, "train")] < 40).all()
    assert np.diff(data.x[:10, 0]).max() > 1, "the first ten are no random sample"
    # Equally many of each of three classes; one has one more.
    assert sorted(np.bincount(data.y[:10]).tolist()) == [3, 3, 4]
    assert sorted(np.bincount(data.y[10:]).tolist()) == [1, 2, 2]


def test_a_limit_takes_equally_many_of_each_class_as_far_as_there_are() -> None:
    y = np.repeat([0, 1, 2], [3, 10, 40])
    x = np.arange(53, dtype=np.float32)[:, None]

    def counts(limit: int, seed: int = 0) -> list[int]:
        only = federated(Dataset(TASK, x.copy(), y), num_clients=1, limit=limit, key=Key.root(seed))
        assert only.y.tolist() == y[only.x[:, 0].astype(int)].tolist()
        return [int((only.y == label).sum()) for label in range(3)]

    assert counts(9) == [3, 3, 3]
    assert counts(15) == [3, 6, 6]
    assert counts(30) == [3, 10, 17]
    assert counts(52) == [3, 10, 39]
    # What does not divide goes to classes that are drawn.
    assert {tuple(counts(1, seed)) for seed in range(20)} == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}
    assert {tuple(counts(16, seed)) for seed in range(20)} == {(3, 7, 6), (3, 6, 7)}


def test_a_limit_leaves_users_as_they_are() -> None:
    users = np.repeat([4, 7], [90, 10])
    x, y = np.arange(100, dtype=np.float32)[:, None], np.repeat([0, 1, 2], [80, 10, 10])
    by_user = ByUser(ByUserConfig())
    data = federated(Dataset(TASK, x, y, users=users), by_user, num_clients=2, limit=50)
    # A random half, and each client's samples are one user's.
    assert sorted(data.sizes("train").tolist()) == pytest.approx([5, 45], abs=4)
    assert np.bincount(data.y)[0] == pytest.approx(40, abs=6)
    for client in range(2):
        numbers = data.x[data.indices(client, "train"), 0].astype(int)
        assert len(set(users[numbers].tolist())) == 1


def test_users_stay_with_their_samples_when_others_are_held_out() -> None:
    users = np.arange(60) % 5
    x, y = pool(60)
    data = federated(
        Dataset(TASK, x, y, *pool(6, start=1000), users=users),
        ByUser(ByUserConfig()),
        num_clients=5,
        shares=(0.6, 0.2, 0.2),
        public_size=20,
    )
    held = [np.concatenate([data.indices(k, split) for split in SPLITS]) for k in range(5)]
    assert sorted(np.concatenate([*held, data.public]).tolist()) == list(range(60))
    assert sorted(users[some[0]] for some in held) == list(range(5))
    assert all(len(set(users[some].tolist())) == 1 for some in held)


def regression(size: int = 40) -> Dataset:
    x = np.arange(size, dtype=np.float32)[:, None]
    return Dataset(Task((1,), 1, kind="regression"), x, np.sin(x[:, 0]))


def test_a_regression_is_spread_limited_and_split() -> None:
    data = federated(regression(), num_clients=3, shares=(0.6, 0.2, 0.2), public_size=4, limit=34)
    assert data.y.dtype == np.float32
    assert data.y.tolist() == np.sin(data.x[:, 0]).tolist()
    assert [data.sizes(split).tolist() for split in SPLITS] == [[6] * 3, [2] * 3, [2] * 3]


def test_a_public_set_of_another_data_set() -> None:
    other = Dataset(Task((1,), 9), *pool(30, start=500))
    plain, data = (
        spread(global_test_share=0.1),
        spread(global_test_share=0.1, public_size=8, public_source=other, public_at_clients=False),
    )
    # Nothing is taken out of the pool, and clients hold what they would without it.
    assert [data.indices(k, split).tolist() for k in range(3) for split in SPLITS] == everything(plain)[0]
    assert data.global_test.tolist() == plain.global_test.tolist()
    assert data.public.tolist() == list(range(60, 68))
    numbers = data.x[data.public, 0]
    assert len(set(numbers.tolist())) == 8
    assert (numbers >= 500).all()
    # There are no labels, and what stands for them is none of the task's.
    assert not data.public_labelled
    assert data.y[data.public].tolist() == [-1] * 8
    assert (plain.public_labelled, plain.public_at_clients, data.public_at_clients) == (True, True, False)
    assert not data.x.flags.writeable


def test_a_public_set_for_a_regression_has_no_targets() -> None:
    data = federated(regression(), num_clients=3, public_size=8, public_source=dataset())
    assert np.isnan(data.y[data.public]).all()
    assert np.isfinite(data.y[:40]).all()


def test_only_the_public_images_are_transformed() -> None:
    x = KEY.numpy().random((40, 1, 8, 8), np.float32)

    def draw(augment: Any) -> FederatedData:
        return federated(
            Dataset(Task((1, 8, 8), 3), x.copy(), np.arange(40) % 3),
            num_clients=3,
            public_size=10,
            public_augment=augment,
        )

    plain, changed = draw("none"), draw("fedet")
    assert changed.public_labelled
    assert changed.public.tolist() == plain.public.tolist()
    others = np.setdiff1d(np.arange(40), plain.public)
    assert np.array_equal(plain.x, x)
    assert np.array_equal(changed.x[others], x[others])
    assert all((changed.x[one] != x[one]).any() for one in plain.public)
    assert np.array_equal(changed.x, draw("fedet").x)


def test_a_limit_beyond_the_pool_changes_nothing() -> None:
    assert everything(spread(limit=60)) == everything(spread()) == everything(spread(limit=1000))


@given(
    size=st.integers(20, 120),
    num_clients=st.integers(1, 8),
    shares=st.sampled_from([(1.0, 0.0, 0.0), (0.75, 0.0, 0.25), (0.6, 0.2, 0.2), (0.5, 0.5, 0.0)]),
    public_size=st.integers(0, 6),
    global_test_share=st.sampled_from([0.0, 0.1, 0.25]),
    num_tested=st.sampled_from([0, 7]),
    seed=st.integers(0, 2**32),
)
def test_laws(
    size: int,
    num_clients: int,
    shares: Shares,
    public_size: int,
    global_test_share: float,
    num_tested: int,
    seed: int,
) -> None:
    def draw(key: Key) -> FederatedData:
        return federated(
            dataset(size, num_tested),
            DirichletClient(DirichletClientConfig(alpha=0.3)),
            num_clients=num_clients,
            shares=shares,
            public_size=public_size,
            global_test_share=global_test_share,
            key=key,
        )

    data = draw(Key.root(seed))
    held = [data.indices(k, split) for k in range(num_clients) for split in SPLITS]
    # Every sample is in exactly one place.
    assert sorted(np.concatenate([*held, data.public, data.global_test]).tolist()) == list(range(len(data.y)))
    assert len(data.public) == public_size
    assert len(data.global_test) == (num_tested or int(global_test_share * size + 0.5))
    for split, share in zip(SPLITS, shares, strict=True):
        assert data.sizes(split).tolist() == [data.num_samples(k, split) for k in range(num_clients)]
        if share == 0:
            assert data.sizes(split).sum() == 0
    assert data.sizes("train").min() >= 1
    # Equal keys give equal results, other keys others.
    assert everything(data) == everything(draw(Key.root(seed)))
    if num_clients > 1 or public_size > 1:  # a client that has all there is has it in one order
        assert everything(data) != everything(draw(Key.root(seed + 1)))


class Fixed(PartitionPlugin[Config]):
    def __init__(self, *parts: list[int]) -> None:
        super().__init__(Config())
        self.parts = parts

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        return [np.array(part, np.int64) for part in self.parts]


def test_a_clients_split_does_not_depend_on_the_other_clients() -> None:
    one = federated(dataset(9), Fixed([0, 1, 2, 3], [4, 5, 6]), num_clients=2, shares=(0.5, 0.0, 0.5))
    other = federated(dataset(9), Fixed([3, 2, 1, 0], [8]), num_clients=2, shares=(0.5, 0.0, 0.5))
    assert one.indices(0, "train").tolist() == other.indices(0, "train").tolist()


def test_each_client_draws_one_of_several_splits() -> None:
    several = ((0.3, 0.35, 0.35), (0.5, 0.25, 0.25), (0.7, 0.15, 0.15))
    data = spread(6000, num_clients=60, shares=several)
    sizes = np.stack([data.sizes(split) for split in SPLITS], axis=1).tolist()
    of_100 = [[round(100 * share) for share in shares] for shares in several]
    assert all(own in of_100 for own in sizes)
    counts = [sizes.count(own) for own in of_100]
    assert sum(counts) == 60
    # Each is the split of a third of the clients, give or take three standard deviations.
    assert min(counts) >= 9
    assert everything(data) == everything(spread(6000, num_clients=60, shares=several))


def test_one_split_in_a_list_is_the_split_itself() -> None:
    assert everything(spread(shares=((0.6, 0.2, 0.2),))) == everything(spread())


def test_a_client_may_have_nothing() -> None:
    data = federated(dataset(4), Fixed([], [0, 1]), num_clients=2, shares=(0.5, 0.0, 0.5))
    assert data.sizes("train").tolist() == [0, 1]
    assert data.indices(0, "train").tolist() == []
    assert [data.num_samples(0, split) for split in SPLITS] == [0, 0, 0]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (([0], [0]), "gave out a sample twice"),
        (([0], [4]), "do not exist"),
        (([0], [-1]), "do not exist"),
        (([0],), "has samples for 1 clients instead of 2"),
    ],
)
def test_a_partition_that_breaks_its_promise(parts: tuple[list[int], ...], problem: str) -> None:
    with pytest.raises(InvariantError, match=problem):
        federated(dataset(4), Fixed(*parts), num_clients=2)


@pytest.mark.parametrize(
    ("settings", "blamed", "problem"),
    [
        ({"public_size": 58}, "public_size", "58 are .* 0 for the global test set, which leaves 2 for 3"),
        ({"public_size": 100}, "public_size", "leaves 0 for 3 clients"),
        ({"public_size": 30, "global_test_share": 0.5}, "public_size", "leaves 0"),
        ({"public_size": 1, "global_test_share": 0.95}, "global_test_share", "57 for the global test set"),
        ({"limit": 2, "public_size": 2}, "limit", "of 2 samples"),
        ({"num_clients": 61}, "num_clients", "leaves 60 for 61 clients"),
        ({"num_clients": 61, "limit": 1000}, "num_clients", "leaves 60"),
    ],
)
def test_the_setting_that_leaves_too_few_samples_is_named(
    settings: dict[str, Any], blamed: str, problem: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        spread(**settings)
    assert caught.value.setting == blamed


def test_samples_need_a_partition() -> None:
    with pytest.raises(DataError, match="needs a partition, such as iid"):
        federated(dataset(), None, num_clients=2)


def counts(*sizes: int, **settings: Any) -> FederatedData:
    settings = {"num_clients": len(sizes), "partition": None} | settings
    only = Dataset(TASK, sizes=np.array(sizes))
    return federate(only, settings.pop("partition"), Spreading(shares=(0.6, 0.2, 0.2), **settings), KEY)


def test_counts_only() -> None:
    data = counts(4, 0, 9, public_size=5)
    assert data.sizes("train").tolist() == [4, 0, 9]
    assert data.num_samples(2, "train") == 9
    assert data.sizes("test").tolist() == [0, 0, 0]
    assert data.x.shape == (0, 1)
    assert data.public.tolist() == [0, 1, 2, 3, 4]
    assert not data.has_samples
    assert data.public_at_clients
    assert not counts(4, public_size=5, public_at_clients=False).public_at_clients


def test_counts_have_no_samples() -> None:
    data = counts(4, 0)
    with pytest.raises(DataError, match=r"sample counts only.*null executor"):
        data.indices(0, "train")
    with pytest.raises(DataError, match=r"sample counts only.*null executor"):
        data.pooled("train")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"partition": IID}, "leave out the partition"),
        ({"num_clients": 3}, "has counts for 2 clients, but the run has 3"),
    ],
)
def test_counts_are_not_spread(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        counts(4, 5, **settings)


def test_a_million_clients_are_arrays_only() -> None:
    num_clients = 1_000_000
    only = Dataset(TASK, sizes=np.ones(num_clients, np.int64))
    data = federated(only, None, num_clients=num_clients)
    held = [holdings.offsets for holdings in data.holdings.values()]
    assert (
        sum(array.base.nbytes if array.base is not None else array.nbytes for array in held)
        < 8.1 * num_clients
    )
    assert data.num_samples(num_clients - 1, "train") == 1


@pytest.mark.parametrize("client", [-1, 3])
def test_a_client_that_does_not_exist(client: int) -> None:
    with pytest.raises(IndexError, match=f"client {client} does not exist: clients are numbered 0 to 2"):
        spread().indices(client, "train")
