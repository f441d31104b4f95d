from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedsim.errors import UserError
from fedsim.rng import Key


def test_a_fleet_is_as_large_as_the_population(world: Any) -> None:
    parts = world.make_parts(world.Scripted(), sizes=(1, 1, 1))
    with pytest.raises(UserError, match="the fleet has 3 devices and the data 2 clients"):
        replace(parts, data=world.make_data([1, 1]))


def test_start_values_are_made_once_and_depend_on_seed_and_label_alone(world: Any) -> None:
    parts = world.make_parts(world.Scripted())
    initial = parts.initial()
    assert initial("linear") is initial("linear")
    assert parts.initial()("linear").digest() == initial("linear").digest()
    assert replace(parts, seed=1).initial()("linear").digest() != initial("linear").digest()
    assert parts.key == Key.root(0)


def test_who_has_samples_is_eligible(world: Any) -> None:
    eligible = world.make_parts(world.Scripted(), sizes=(0, 2, 0, 1)).eligible()
    assert eligible.dtype == np.int64
    assert eligible.tolist() == [1, 3]
