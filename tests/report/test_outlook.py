from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.report import outlook
from fedsim.rng import Key
from fedsim.runtime.parts import Parts


def test_the_tables_of_a_scenario(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    assert outlook.fleet(parts).title == "Fleet: 4 clients"
    assert [row[0] for row in outlook.fleet(parts).rows][:2] == ["speed", "memory"]
    train, val, test = outlook.data(parts).rows
    assert train == ("train", "24", "24", "24", "24", "24", "96")
    assert (val[-1], test[-1]) == ("16", "48")
    assert outlook.data(parts).notes[0] == "public set: 20 samples; global test set: 20 samples"
    assert outlook.models(parts).rows == [("linear", "linear", "650", "2.6 kB", "4")]
    assert outlook.groups(parts).rows == [
        ("high", "4", "4", "linear", "96"),
        ("server (server)", "", "", "linear", ""),
    ]
    assert not outlook.groups(parts).notes


def test_clients_that_are_never_asked_are_told(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    groups = [
        GroupConfig.model_validate({"count": 1, "device": "mid", "name": "roomy"}),
        GroupConfig.model_validate({"count": 3, "name": "tiny", "memory": "1 kB"}),
    ]
    fleet = build_fleet(groups, ServerConfig(), Key.root(0), default_model="linear")
    train = parts.data.holdings["train"]
    offsets = np.array([0, 24, 24, 48, 72])
    holdings = {**parts.data.holdings, "train": replace(train, offsets=offsets)}
    grid = outlook.groups(replace(parts, fleet=fleet, data=replace(parts.data, holdings=holdings)))
    assert [row[:3] for row in grid.rows[:2]] == [("roomy", "1", "1"), ("tiny", "3", "0")]
    # 650 parameters with a gradient, and 32 samples of 64 numbers, a label and 10 logits: 5200 + 9728 B.
    assert grid.notes == [
        "tiny: 3 clients never asked: 'linear' needs 14.9 kB of memory, they have 1 kB at most",
        "tiny: 1 client never asked: no training samples",
    ]


def test_where_the_public_set_is_from_and_who_holds_it(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    data = replace(parts.data, public_labelled=False, public_at_clients=False)
    assert outlook.data(replace(parts, data=data)).notes[0] == (
        "public set: 20 samples of another data set, held by the server alone; global test set: 20 samples"
    )
