"""Which clients meet a batch together, and with how many rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fedsim.data import FederatedData
from fedsim.data.federated import Holdings
from fedsim.engine.batched.feed import BatchedFeed, CanPad
from fedsim.engine.jobs import ClientSamples, Fit, GlobalTest, Samples, Stream
from fedsim.engine.like_fits import FitList
from fedsim.engine.losses import TRAIN
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent
from fedsim.engine.worker_state import Resources
from fedsim.task import Task

Step = list[tuple[int, list[int]]]
"""Of each batch of a step how many rows it has, and how many of them are each client's own."""


def resources_of(counts: tuple[int, ...]) -> Resources:
    """Return what clients with so many samples train on; one after the other has the next ones."""
    total = sum(counts)
    none = Holdings(np.zeros(len(counts) + 1, np.int64), np.arange(0))
    data = FederatedData(
        Task((1,), 2),
        np.arange(total, dtype=np.float32)[:, None],
        np.zeros(total, np.int64),
        public=np.arange(0),
        global_test=np.arange(min(total, 1)),
        num_clients=len(counts),
        holdings={"train": Holdings(np.cumsum([0, *counts]), np.arange(total)), "val": none, "test": none},
    )
    return Resources.of(data, {}, "cpu")


def steps(counts: tuple[int, ...], can_pad: CanPad | None, num_steps: int = 1) -> Iterator[Step]:
    """Yield what clients with so many samples meet in batches of 4."""
    jobs = [
        Fit(
            step=Descent(),
            models={},
            trained=(),
            streams={TRAIN: Stream(ClientSamples(client), 4, shuffled=False)},
            optimisers={"model": Sgd(0.1)},
            num_steps=num_steps,
            seed=client,
        )
        for client in range(len(counts))
    ]
    feed = BatchedFeed(FitList.of(jobs), [(count,) for count in counts], resources_of(counts))
    for step in range(num_steps):
        feed.num_at_work(step)
        met: Step = []
        for batches in feed.at(step, can_pad):
            own = [size for places, size in batches.own_rows for _ in range(places.start, places.stop)]
            its = batches.by_stream[TRAIN].x[..., 0].tolist()
            first = batches.clients.start
            for client, (rows, size) in enumerate(zip(its, own, strict=True), first):
                begin = sum(counts[:client]) + 4 * step % counts[client]
                assert rows[:size] == list(range(begin, begin + size))
                assert len(rows) == batches.sizes[0]
            spans = [(first + places.start, first + places.stop) for places, _ in batches.own_rows]
            assert [stop for _, stop in spans[:-1]] == [start for start, _ in spans[1:]]
            met.append((batches.sizes[0], own))
        yield met


def test_without_padding_neighbours_with_one_size_meet() -> None:
    (step,) = steps((9, 6, 3, 3, 2), None)
    assert step == [(4, [4, 4]), (3, [3, 3]), (2, [2])]


def test_smaller_batches_are_padded_to_the_largest() -> None:
    first, second = steps((9, 6, 6, 5, 4), lambda clients, size, padded: True, 2)
    assert first == [(4, [4] * 5)]
    assert second == [(4, [4, 2, 2, 1, 4])]


@pytest.mark.parametrize(
    ("refused", "wanted"),
    [
        ((1, 2, 4), [(4, [4]), (2, [2]), (1, [1])]),
        ((1, 1, 4), [(4, [4, 2]), (1, [1])]),
        ((1, 2, 3), [(4, [4, 2, 1])]),
    ],
)
def test_what_cannot_be_padded_is_kept_apart(
    refused: tuple[int, int, int], wanted: list[tuple[int, list[int]]]
) -> None:
    (step,) = steps((4, 2, 1), lambda *asked: asked != refused and asked != (1, 1, 2))
    assert step == wanted


def test_those_before_are_padded_too() -> None:
    (_, second) = steps((5, 6, 7), lambda clients, size, padded: size > 1, 2)
    assert second == [(1, [1]), (3, [2, 3])]


@pytest.mark.parametrize(
    ("samples", "counts", "met"),
    [
        ([ClientSamples(2), ClientSamples(0)], [2, 3], [3, 4, 0, 1, 2]),
        ([ClientSamples(2), GlobalTest()], [2, 1], [3, 4, 0]),
    ],
)
def test_samples_are_found_in_any_order_and_of_any_kind(
    samples: list[Samples], counts: list[int], met: list[int]
) -> None:
    resources = resources_of((3, 0, 2))
    jobs = [
        Fit(
            step=Descent(),
            models={},
            trained=(),
            streams={TRAIN: Stream(some, 4, shuffled=False)},
            optimisers={},
            num_steps=1,
            seed=0,
        )
        for some in samples
    ]
    feed = BatchedFeed(FitList.of(jobs), [(count,) for count in counts], resources)
    assert [x for one in feed.at(0) for x in one.by_stream[TRAIN].x.flatten().tolist()] == met
