from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.engine.batches import Pass, order_stream, shuffled, size_counts
from fedsim.rng import SeededStream

passes = st.builds(Pass, st.integers(0, 30), st.integers(1, 9), st.booleans())


def positions_of(one: Pass, numbers: SeededStream | None) -> Iterator[torch.Tensor]:
    """Cut a stream's passes into batches."""
    for order in one.orders(numbers):
        yield from torch.split(order, list(one.sizes))


@pytest.mark.parametrize(
    ("one", "sizes"),
    [
        (Pass(10, 4), (4, 4, 2)),
        (Pass(8, 4), (4, 4)),
        (Pass(9, 4), (4, 4, 1)),
        (Pass(9, 4, skip_single=True), (4, 4)),
        (Pass(10, 4, skip_single=True), (4, 4, 2)),
        (Pass(3, 4), (3,)),
        (Pass(1, 4), (1,)),
        (Pass(1, 4, skip_single=True), ()),
        (Pass(0, 4), ()),
        (Pass(3, 1, skip_single=True), (1, 1, 1)),  # asked for: not a last batch that is left over
    ],
)
def test_a_pass_is_cut_into_batches(one: Pass, sizes: tuple[int, ...]) -> None:
    assert one.sizes == sizes
    assert len(one) == len(sizes)


@given(passes)
def test_a_pass_meets_each_sample_once_but_a_skipped_one(one: Pass) -> None:
    for numbers in (None, order_stream("train", 1)):
        batches = list(islice(positions_of(one, numbers), len(one)))
        assert tuple(len(batch) for batch in batches) == one.sizes
        met = [position for batch in batches for position in batch.tolist()]
        assert len(set(met)) == len(met)
        skipped = one.num_samples - len(met)
        assert skipped in ({0, 1} if one.skip_single else {0})
        assert set(met) <= set(range(one.num_samples))


def test_a_stream_in_order_begins_again_with_each_pass() -> None:
    batches = [batch.tolist() for batch in islice(positions_of(Pass(5, 2), None), 5)]
    assert batches == [[0, 1], [2, 3], [4], [0, 1], [2, 3]]


def test_each_pass_is_shuffled_anew_by_the_seed_alone() -> None:
    def two_passes(seed: int) -> list[list[int]]:
        batches = positions_of(Pass(20, 20), order_stream("train", seed))
        return [batch.tolist() for batch in islice(batches, 2)]

    first, second = two_passes(1)
    assert first != second
    assert two_passes(1) == [first, second]
    assert two_passes(2) != [first, second]


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    list(islice(positions_of(Pass(20, 3), order_stream("train")), 20))
    assert torch.equal(before, torch.get_rng_state())


def test_orders_are_the_ranks_of_the_draws() -> None:
    draws = np.array([[3, 1, 2**63], [7, 7, 0]], np.uint64)
    assert shuffled(draws).tolist() == [[1, 0, 2], [2, 0, 1]]  # of equal draws the first


def test_all_orders_are_equally_likely_in_each_pass_whatever_the_pass_before() -> None:
    numbers, num_seeds = order_stream("train"), 14_400
    pairs: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for seed in range(num_seeds):
        numbers.start(seed)
        pairs[tuple(map(tuple, shuffled(numbers.draw(6).reshape(2, 3)).tolist()))] += 1
    # 36 pairs of orders, 400 of each: chi-squared with 35 degrees of freedom, 99.99% below 76.
    assert len(pairs) == 36
    assert sum((count - 400) ** 2 / 400 for count in pairs.values()) < 76


def test_streams_of_one_fit_have_orders_of_their_own() -> None:
    draws = [order_stream(name, 3).draw(1000).astype(float) for name in ("train", "public")]
    assert abs(np.corrcoef(draws)[0, 1]) < 0.15


def test_no_batches_end_at_once() -> None:
    assert list(positions_of(Pass(1, 2, skip_single=True), None)) == []


@pytest.mark.parametrize(
    ("num_steps", "counts"),
    [
        (0, {}),
        (2, {(4,): 2}),
        (3, {(4,): 2, (2,): 1}),
        (7, {(4,): 5, (2,): 2}),  # two whole passes and a batch
    ],
)
def test_sizes_of_one_stream_are_counted(num_steps: int, counts: dict[tuple[int, ...], int]) -> None:
    assert size_counts([Pass(10, 4)], num_steps) == counts


def test_streams_side_by_side_wrap_around_at_their_own_pace() -> None:
    # 2, 1 | 2, 1 | 2    beside    3, 3, 2 | 3, 3
    counts = size_counts([Pass(3, 2), Pass(8, 3)], 5)
    assert counts == {(2, 3): 2, (1, 3): 2, (2, 2): 1}


@given(st.lists(passes.filter(len), min_size=1, max_size=3), st.integers(0, 200))
def test_counts_are_those_of_an_actual_walk(streams: list[Pass], num_steps: int) -> None:
    walks = [positions_of(one, None) for one in streams]
    steps = islice(zip(*walks, strict=True), num_steps)
    walked = Counter(tuple(len(batch) for batch in batches) for batches in steps)
    counts = size_counts(streams, num_steps)
    assert counts == walked
    assert counts.total() == num_steps
