from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedsim.report import outlook
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
        ("high", "4", "linear", "96"),
        ("server (server)", "", "linear", ""),
    ]


def test_clients_without_samples_are_told(make_parts: Callable[..., Parts]) -> None:
    parts = make_parts()
    train = parts.data.holdings["train"]
    offsets = np.array([0, 24, 24, 48, 72])
    holdings = {**parts.data.holdings, "train": replace(train, offsets=offsets)}
    grid = outlook.data(replace(parts, data=replace(parts.data, holdings=holdings)))
    assert grid.notes[-1] == "never asked, for want of training samples: 1 client"
