from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.data import Dataset, FederatedData, Spreading, federate
from fedsim.data.federated import Holdings
from fedsim.data.fingerprints import differences, fingerprint
from fedsim.data.partitions.iid import PLUGIN as IID
from fedsim.rng import Key
from fedsim.task import Task

NO_SAMPLES = "d38202d2561d276cb085ff3263cf1a71"
NO_LABELS = "299526d6aee1137097fb811969edd457"
HELD = "6334346b40d5f27d9b61ab87a58679d6"
PUBLIC = "231b92f231216238245a7d56b93d8f75"


def spread(seed: int = 0) -> FederatedData:
    x = np.arange(120, dtype=np.float32).reshape(60, 2)
    y = np.arange(60) % 3
    return federate(
        Dataset(Task((2,), 3), x, y),
        IID(IID.Config()),
        Spreading(num_clients=4, shares=(0.6, 0.2, 0.2), public_size=6, global_test_share=0.1),
        Key.root(seed),
    )


def counts(*sizes: int) -> FederatedData:
    return federate(
        Dataset(Task((2,), 3), sizes=np.array(sizes)),
        None,
        Spreading(num_clients=len(sizes), shares=(1.0, 0.0, 0.0), public_size=6),
        Key.root(0),
    )


def altered(array: Any) -> Any:
    """Return an array with its last value changed."""
    changed = array.copy()
    changed.reshape(-1)[-1] += 1
    return changed


def names(found: list[str]) -> list[str]:
    return [phrase.partition(" (")[0] for phrase in found]


def test_equal_data_have_equal_fingerprints() -> None:
    assert fingerprint(spread()) == fingerprint(spread())
    assert fingerprint(counts(3, 4)) == fingerprint(counts(3, 4))
    assert not differences(fingerprint(spread()), fingerprint(spread()))


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    assert fingerprint(counts(3, 4)) == {
        "task": "classification, 2 to 3 #",
        "samples": "0 of float32 #" + NO_SAMPLES,
        "labels": "0 of int64 #" + NO_LABELS,
        "who holds what": "2 clients, 7 train, 0 val, 0 test #" + HELD,
        "public set": "6 samples, labelled, there from the start #" + PUBLIC,
        "global test set": "0 samples #" + NO_LABELS,
    }


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("task", lambda data: {"task": Task((2,), 4)}),
        ("samples", lambda data: {"x": altered(data.x)}),
        ("labels", lambda data: {"y": altered(data.y)}),
        ("public set", lambda data: {"public": data.public[::-1]}),
        ("public set", lambda data: {"public_at_clients": False}),
        ("public set", lambda data: {"public_labelled": False}),
        ("global test set", lambda data: {"global_test": data.global_test[1:]}),
        ("who holds what", lambda data: {"holdings": other_holdings(data, flat=True)}),
        ("who holds what", lambda data: {"holdings": other_holdings(data, flat=False)}),
    ],
)
def test_what_differs_is_named_alone(part: str, change: Any) -> None:
    data = spread()
    found = differences(fingerprint(data), fingerprint(replace(data, **change(data))))
    assert names(found) == [part]


def other_holdings(data: FederatedData, *, flat: bool) -> Mapping[Any, Holdings]:
    """Return what clients hold if one more sample goes to another, or is held by the next client."""
    one = data.holdings["val"]
    assert one.flat is not None
    offsets = one.offsets.copy()
    offsets[1] -= not flat
    return {**data.holdings, "val": Holdings(offsets, altered(one.flat) if flat else one.flat)}


def test_counts_alone_differ_in_who_holds_what() -> None:
    found = differences(fingerprint(counts(3, 4)), fingerprint(counts(4, 4)))
    assert found == [
        "who holds what (2 clients, 7 train, 0 val, 0 test here, 2 clients, 8 train, 0 val, 0 test there)"
    ]
    swapped = differences(fingerprint(counts(3, 4)), fingerprint(counts(4, 3)))
    assert swapped == ["who holds what (2 clients, 7 train, 0 val, 0 test both, with other values)"]


def test_samples_that_are_drawn_otherwise() -> None:
    assert names(differences(fingerprint(spread(0)), fingerprint(spread(1)))) == [
        "who holds what",
        "public set",
        "global test set",
    ]


def test_what_one_side_does_not_know_differs() -> None:
    assert differences({"task": "a #"}, {"labels": "b #1"}) == [
        "task (a here, unknown there)",
        "labels (unknown here, b there)",
    ]
