import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.architecture_assignment import assign
from fedsim.rng import Key

KEY = Key.root(0)
MANY = [{f"{part}.{number}": 1.0 for number in range(64)} for part in range(5)]
"""Shares of 320 architectures, more than a byte counts."""


def test_shares_hold_exactly_and_who_gets_which_is_drawn() -> None:
    labels, places = assign([{"small": 3.0, "large": 1.0}], np.zeros(40, np.int64), KEY)
    assert labels == ("small", "large")
    assert np.bincount(places).tolist() == [30, 10]
    _, others = assign([{"small": 3.0, "large": 1.0}], np.zeros(40, np.int64), Key.root(1))
    assert (places != others).any()


def test_any_number_of_architectures() -> None:
    assert GroupConfig.model_validate({"count": 2, "models_by_size": MANY}).shares == tuple(MANY)
    labels, places = assign(MANY, np.zeros(1280, np.int64), KEY)
    assert len(labels) == 320
    assert sorted(set(places.tolist())) == list(range(320))


def test_the_more_data_the_larger_the_architecture() -> None:
    # Nine clients in three parts of three; the sizes fall, so the last three are the smallest.
    sizes = np.arange(9, 0, -1)
    labels, places = assign([{"a": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 1.0}], sizes, KEY)
    chosen = np.array(labels)[places]
    assert chosen[:3].tolist() == ["b"] * 3
    assert sorted(chosen[3:6]) == ["a", "b", "b"]
    assert chosen[6:].tolist() == ["a"] * 3


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 4), st.integers(0, 9))
def test_everybody_gets_one_and_each_part_its_shares(sizes: list[int], num_parts: int, seed: int) -> None:
    parts = [{"x": 1.0, "y": 1.0 + number} for number in range(num_parts)]
    labels, places = assign(parts, np.array(sizes), Key.root(seed))
    assert labels == ("x", "y")
    assert len(places) == len(sizes)
    cut = np.array_split(np.argsort(np.array(sizes), kind="stable"), num_parts)
    for number, clients in enumerate(cut):
        wanted = len(clients) / (2 + number)
        assert abs(np.count_nonzero(places[clients] == 0) - wanted) < 1


def test_a_fleet_knows_each_clients_architecture() -> None:
    groups = [
        GroupConfig(count=2, model="tiny"),
        GroupConfig(count=4, models_by_size=({"tiny": 1.0}, {"huge": 1.0})),
    ]
    fleet = build_fleet(groups, ServerConfig(), KEY, sizes=np.array([1, 1, 8, 2, 9, 3]))
    assert [fleet.model(client) for client in range(6)] == ["tiny", "tiny", "huge", "tiny", "huge", "tiny"]
    assert fleet.groups[1].models == ("tiny", "huge")
    assert [(label, own.tolist()) for label, own in fleet.groups[0].shares()] == [("tiny", [True, True])]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "a", "models": {"a": 1.0}}, "model and models both say which architecture"),
        (
            {"models": {"a": 1.0}, "models_by_size": [{"a": 1.0}]},
            "models and models_by_size both say which architecture",
        ),
        ({"models": {}}, r"models\n  Dictionary should have at least 1 item"),
        ({"models": {"a": 0.0}}, r"models\.a\n  Input should be greater than 0"),
        ({"models_by_size": []}, r"models_by_size\n  Value should have at least 1 item"),
    ],
)
def test_faults_are_told(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GroupConfig.model_validate({"count": 2, **settings})
