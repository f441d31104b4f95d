"""Flower's names of partitions."""

import re
import tomllib

import numpy as np
import pytest

import fedsim
from fedsim.data.partitions.base import Pool
from fedsim.errors import ScenarioError
from fedsim.rng import Key
from fedsim.scenario.choices import FLOWER_NAMES, PARTITION


@pytest.mark.parametrize("name", FLOWER_NAMES)
def test_a_name_of_flowers_is_told_what_to_write(name: str) -> None:
    for partition in (name, {"name": name, "params": {"alpha": 0.5}}):
        scenario = {"run": {"rounds": 1}, "data": {"partition": partition}, "fleet": [{"count": 2}]}
        with pytest.raises(ScenarioError, match=r"data\.partition.*: no partition is called ") as caught:
            fedsim.load(scenario)
        assert FLOWER_NAMES[name] in str(caught.value)


@pytest.mark.parametrize("mend", FLOWER_NAMES.values(), ids=FLOWER_NAMES)
def test_what_is_to_be_written_is_there(mend: str) -> None:
    tables = re.findall(r"\{ name = .*? \} \}", mend)
    choices = [tomllib.loads("it = " + table.replace("...", "1"))["it"] for table in tables]
    choices += [{"name": name, "params": {}} for name in re.findall(r'partition = "(\w+)"', mend)]
    assert choices
    for choice in choices:
        fields = PARTITION.find(choice["name"]).Config.model_fields
        assert choice["params"].keys() <= fields.keys()


def test_two_classes_without_spread_are_flowers_deterministic_ones() -> None:
    plugin = PARTITION.find("two_class")
    labels = np.repeat(np.arange(4), 10)
    held = plugin(plugin.Config.model_validate({"spread": 0.0})).split(Pool(labels, 4), 4, Key.root(0))
    assert [np.bincount(labels[own], minlength=4).tolist() for own in held] == [
        [5, 5, 0, 0],
        [0, 5, 5, 0],
        [0, 0, 5, 5],
        [5, 0, 0, 5],
    ]
