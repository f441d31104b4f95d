"""Centralized: the specification's sanity checks (5.A.2)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.centralized import SamplesUp
from fedsim.data import Spreading, federate
from fedsim.data.base import Dataset
from fedsim.engine.executors.base import ExecutorConfig
from fedsim.engine.executors.null import PLUGIN as NULL
from fedsim.rng import Key


def test_nobody_is_asked_and_nothing_travels_but_time_passes(world: Any) -> None:
    result = world.run(world.algorithm("centralized"))
    assert [(row.round, row.asked) for row in result.rounds] == [(1, 0), (2, 0), (3, 0)]
    assert (result.totals.frames_up, result.totals.frames_down) == (0, 0)
    assert result.simulated_s > 0


def test_who_holds_which_sample_makes_no_difference(world: Any) -> None:
    data = world.data()
    held = [data.indices(client, "train") for client in range(4)]
    everything = np.concatenate(held)
    others = [[held[3], held[0], held[2], held[1]], np.array_split(everything[::-1], 4)]
    expected = world.run(world.algorithm("centralized")).model_hash
    for partition in others:
        changed = world.holding(data, "train", partition)
        assert world.run(world.algorithm("centralized"), data=changed).model_hash == expected
        assert world.run(world.algorithm("fedavg"), data=changed).model_hash != expected


def test_uploaded_samples_count_as_data_alone(world: Any) -> None:
    result = world.run(world.algorithm("centralized", upload=True))
    opening, totals = result.rounds[0], result.totals
    num_samples = int(world.data().sizes("train").sum())
    assert (opening.round, opening.asked, opening.merged) == (0, 4, 4)
    payload = num_samples * (4 * 64 + 8)  # digits are no images of eight bits: float32, and an int64 label
    assert payload < totals.data_up < payload + 4 * 300
    assert (totals.bytes_up, totals.parameters_up, totals.bytes_down, totals.data_down) == (0, 0, 0, 0)
    assert totals == opening.traffic
    there = world.run(world.algorithm("centralized"))
    assert result.model_hash == there.model_hash
    assert result.simulated_s > there.simulated_s


def test_images_of_eight_bits_travel_as_bytes(world: Any) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    client = SimpleNamespace(own_values=lambda split: (pixels.astype(np.float32) / 255, np.arange(3)))
    _, message = asyncio.run(world.algorithm("centralized").upload(client, None, None))
    assert message.values.dtype == np.uint8
    assert message.values.tolist() == pixels.tolist()


def test_the_server_trains_on_the_samples_that_arrived(world: Any) -> None:
    # Client 1's upload is lost: the same as if client 1 had nothing.
    data = world.data()
    held = [data.indices(client, "train") for client in range(4)]
    without = world.holding(data, "train", [held[0], [], held[2], held[3]])
    expected = world.run(world.algorithm("centralized"), data=without)
    lost = world.run(
        world.algorithm("centralized", upload=True),
        lost=lambda parcel, ordinal: parcel.sender == 1,
        client_timeout_s=60.0,
    )
    assert lost.model_hash == expected.model_hash
    assert lost.by_client["dropped"].tolist() == [0, 1, 0, 0]


def test_without_any_upload_the_model_stays_as_it_was(world: Any) -> None:
    algorithm = world.algorithm("centralized", upload=True)
    seen = world.watched(algorithm)
    world.run(algorithm, lost=lambda parcel, ordinal: True, client_timeout_s=60.0)
    initial = world.parts(algorithm).initial()("mlp")
    assert {one["global"].digest() for one in seen.values()} == {initial.digest()}


def test_samples_of_another_shape_are_refused(world: Any) -> None:
    for shape, types, label_type, reason in (
        ((64,), ("float32", "int64"), "int64", None),
        ((64,), ("uint8", "int64"), "int64", None),
        ((63,), ("float32", "int64"), "int64", "shape (63,)"),
        ((64,), ("float64", "int64"), "int64", "samples of float64, not float32 or uint8"),
        ((64,), ("float32", "float32"), "int64", "labels of float32, not int64"),
        ((64,), ("float32", "int64"), "float32", "labels of int64, not float32"),
    ):
        task = SimpleNamespace(input_shape=(64,), dtype="float32", label_dtype=label_type)
        message = SamplesUp(np.zeros((2, *shape), types[0]), np.zeros(2, types[1]))
        reply = Reply(0, 0, "upload", 0, 0, 1.0, message)
        found = world.algorithm("centralized").vet(SimpleNamespace(task=task), None, reply)
        assert found is reason if reason is None else reason in found
    texts = SimpleNamespace(input_shape=(64,), dtype="int64", label_dtype="int64")
    message = SamplesUp(np.zeros((2, 64), np.uint8), np.zeros(2, np.int64))
    reply = Reply(0, 0, "upload", 0, 0, 1.0, message)
    found = world.algorithm("centralized").vet(SimpleNamespace(task=texts), None, reply)
    assert found == "samples of uint8, not int64"
    with pytest.raises(ValueError, match="one label for each sample"):
        SamplesUp(np.zeros((2, 63), np.float32), np.zeros(3, np.int64))


@pytest.mark.parametrize("passes", [0, 2, "chosen"])
def test_every_client_may_tune_the_model(passes: Any, world: Any) -> None:
    plain = world.run(world.algorithm("centralized"))
    algorithm = world.algorithm("centralized", finetune=True, finetune_epochs=passes)
    seen = world.watched(algorithm)
    tuned = world.run(algorithm)
    assert tuned.final.others == {"untuned": plain.final.mean}
    assert tuned.final.global_ == plain.final.global_
    assert tuned.rounds[-1].traffic.parameters_down == 4 * (64 * 16 + 16 + 16 * 10 + 10)
    personal = {one["personal"].digest() for one in seen.values()}
    (common,) = {one["global"].digest() for one in seen.values()}
    assert (personal == {common}) is (passes == 0)


def test_counts_of_samples_are_uploaded_as_so_many_zeros(world: Any) -> None:
    counts = Dataset(world.data().task, sizes=np.array([4, 7, 3, 5]))
    data = federate(counts, None, Spreading(num_clients=4, shares=(1, 0, 0)), Key.root(0))
    algorithm = world.algorithm("centralized", upload=True)
    result = world.run(algorithm, data=data, executor=NULL(ExecutorConfig()))
    assert 19 * (64 + 8) < result.totals.data_up < 19 * (64 + 8) + 4 * 300  # zeros are images of eight bits


def test_it_keeps_its_optimiser_where_clients_do(world: Any) -> None:
    momentum = {"momentum": 0.9, "epochs": 1}
    anew = world.run(world.algorithm("centralized"), num_clients=1, training=momentum)
    keeping = {**momentum, "keep_optimiser": True}
    kept = world.run(world.algorithm("centralized"), num_clients=1, training=keeping)
    assert kept.model_hash != anew.model_hash
    assert kept.model_hash == world.run(world.algorithm("fedavg"), num_clients=1, training=keeping).model_hash
