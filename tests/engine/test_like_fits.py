"""Fits of like clients, one after the other and together."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.engine.jobs import ClientSamples, Fitted, InlineSamples, Samples, Stream
from fedsim.engine.like_fits import FitList, LikeFits, LikeFitted
from fedsim.params import Model
from fedsim.task import Task
from tests.engine.batched import worlds
from tests.engine.conftest import MakeFit, Start


def test_like_fits_differ_in_seeds_and_in_own_samples(make_fit: MakeFit) -> None:
    shared = Stream(InlineSamples(np.zeros((2, 6), np.float32), np.zeros(2, np.int64)), 2)
    own = Stream(ClientSamples(4, "val"), 3, shuffled=False)
    fit = make_fit(streams={"train": own, "public": shared}, seed=9)
    fits = LikeFits(fit, [4, 5], [9, 10])
    assert fits[0] is fit
    other = fits[1]
    assert other.streams == {"train": Stream(ClientSamples(5, "val"), 3, shuffled=False), "public": shared}
    assert (other.seed, len(fits)) == (10, 2)
    for name in ("step", "models", "trained", "optimisers", "num_steps", "extras", "outputs", "like"):
        assert getattr(other, name) is getattr(fit, name) or getattr(other, name) == getattr(fit, name)


def test_a_list_of_fits_makes_those_that_are_asked_for(make_fit: MakeFit) -> None:
    worker = worlds.world(Task((6,), 3), (4, 4, 2, 4), {})
    streams = [{"train": Stream(ClientSamples(client), 2)} for client in range(4)]
    alone, first = make_fit(streams=streams[2], seed=5), make_fit(streams=streams[1], seed=6)
    fits = FitList.of([alone, LikeFits(first, [1, 3], [6, 7])])
    assert [fit.seed for fit in fits] == [5, 6, 7] == list(fits.seeds)
    assert fits[0] is alone
    assert [fit.streams["train"].samples for fit in fits] == fits.samples("train")
    assert fits.samples("train") == [ClientSamples(client) for client in (2, 1, 3)]
    assert fits.counts(worker.resources) == [(2,), (4,), (4,)]
    data = worker.resources.data
    rows = fits.rows("train", worker.resources)
    assert rows is not None
    assert rows.tolist() == [row for client in (2, 1, 3) for row in data.indices(client, "train").tolist()]
    assert fits.chosen([2, 0]).seeds == [7, 5]
    assert [fit.seed for fit in fits[1:]] == [6, 7]


def test_rows_are_those_of_clients_of_one_split_alone(make_fit: MakeFit) -> None:
    worker = worlds.world(Task((6,), 3), (4, 4), {})
    inline = InlineSamples(np.zeros((2, 6), np.float32), np.zeros(2, np.int64))
    kinds: list[list[Samples]] = [
        [inline, inline],
        [ClientSamples(0), ClientSamples(1, "val")],
        [ClientSamples(0), inline],
    ]
    for samples in kinds:
        fits = FitList.of([make_fit(streams={"train": Stream(its, 2)}) for its in samples])
        assert fits.rows("train", worker.resources) is None


def test_results_are_trees_and_errors(make_fit: MakeFit, start: Start) -> None:
    fits, error = LikeFits(make_fit(), [0, 1], [1, 2]), KeyError("x")
    model = start()
    fitted = Fitted({"model": model}, 0.5, 3)
    results = LikeFitted.of(fits, [fitted, error])
    assert results.errors == {1: error}
    assert not results.are_in_range
    assert results.of_fit(fits, 0).model.digest() == model.digest()
    with pytest.raises(KeyError):
        results.of_fit(fits, 1)
    assert LikeFitted.of(fits, [fitted, fitted]).are_in_range
    infinite = Model(
        model.architecture, {name: array * np.float32(np.inf) for name, array in model.params.items()}
    )
    assert not LikeFitted.of(fits, [fitted, Fitted({"model": infinite}, 0.5, 3)]).are_in_range
