"""Batteries as a scenario gives them."""

from __future__ import annotations

import tomllib
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.errors import ScenarioError
from fedsim.fleet import Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.battery import PluggedChoice
from fedsim.rng import Key
from fedsim.scenario import build, load_scenario, resolved_toml


def fleet_of(*batteries: Any) -> Fleet:
    groups = [GroupConfig.model_validate({"count": 50, "battery": battery}) for battery in batteries]
    return build_fleet(groups, ServerConfig(), Key.root(3))


def test_a_group_without_a_battery_has_none() -> None:
    fleet = fleet_of(None, {"capacity": "10 Wh", "level": 0.5})
    assert fleet.has_batteries
    assert fleet.battery(49) is None
    assert fleet.battery(50) == (36_000.0, 18_000.0, 7200.0, 0.0)
    assert not fleet_of(None).has_batteries
    with pytest.raises(IndexError):
        fleet.battery(100)


def test_each_quantity_is_drawn_by_itself() -> None:
    law = {"distribution": "uniform", "low": 0.2, "high": 0.9}
    fleet = fleet_of({"capacity": "1 kJ", "level": law}, {"capacity": "1 kJ", "level": law, "floor": 0.0})
    levels = [battery.level_j for client in range(100) if (battery := fleet.battery(client)) is not None]
    first, second = levels[:50], levels[50:]
    assert len({*first, *second}) == 100
    assert 200 <= min(*first, *second) < 300 < 800 < max(*first, *second) <= 900
    other = {"distribution": "uniform", "low": "1 kJ", "high": "2 kJ"}
    again = fleet_of({"capacity": other, "level": law}).groups[0].batteries
    assert again is not None
    np.testing.assert_allclose(again.level * 1000, first)


def test_it_is_charged_as_the_client_comes_or_by_a_model_of_its_own() -> None:
    charge = {"capacity": "1 kJ", "charge_power": "7 W"}
    fleet = fleet_of(*({**charge, "plugged": plugged} for plugged in ("available", "away", "always")))
    assert [fleet.plugged(client, 5.0) for client in (0, 50, 100)] == [(True, inf), (False, inf), (True, inf)]
    assert fleet_of({"capacity": "1 kJ"}).plugged(0, 5.0) == (False, inf)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"capacity": "0 J"}, "energy above zero is wanted"),
        ({"capacity": "-5 J"}, "is negative"),
        ({"capacity": "4000 mA"}, "unknown unit"),
        (
            {"capacity": {"distribution": "normal", "mean": "5 J", "deviation": "1 J", "minimum": "-1 J"}},
            "negative",
        ),
        ({"level": 1.2}, "write a number of at most 1"),
        ({"level": -0.2}, "write a number of at least 0"),
        ({"floor": 1.2}, "write a number of at most 1"),
        ({"charge_power": "-1 W", "plugged": "away"}, "is negative"),
        ({"charge_power": "1 W"}, 'charge_power is given without plugged.*add plugged = "away", say'),
        ({"plugged": "away"}, 'plugged is given without charge_power.*add charge_power = "7 W", say'),
        ({"charge_power": "1 W", "plugged": "never"}, "leave out charge_power and plugged"),
        ({"charge_power": "1 W", "plugged": "awya"}, "no availability model is called 'awya'"),
    ],
)
def test_what_no_battery_is_is_refused(changes: dict[str, Any], why: str) -> None:
    fleet = [{"count": 2, "battery": {"capacity": "1 kJ", **changes}}]
    with pytest.raises(ScenarioError, match=rf"fleet\.0\.battery.*: .*{why}"):
        load_scenario({"run": {"rounds": 1}, "fleet": fleet})


def test_it_is_written_as_it_is_read_and_left_out_where_there_is_none() -> None:
    battery = {
        "capacity": "58 kJ",
        "level": {"distribution": "uniform", "low": 0.2, "high": 1.0},
        "charge_power": "7 W",
        "plugged": {"name": "duty_cycle", "params": {"period": "2 h"}},
    }
    scenario = load_scenario(
        {"run": {"rounds": 1}, "fleet": [{"battery": battery, "count": 2}, {"count": 2}]}
    )
    again = load_scenario(
        {"run": {"rounds": 1}, "fleet": [scenario.fleet[0].model_dump(mode="json"), {"count": 2}]}
    )
    assert again == scenario
    groups = tomllib.loads(resolved_toml(scenario))["fleet"]
    assert ["battery" in group for group in groups] == [True, False]
    plugged = scenario.fleet[0].battery and scenario.fleet[0].battery.plugged
    assert isinstance(plugged, PluggedChoice)
    assert plugged.params.model_dump()["on_share"] == 0.25


def test_a_file_of_the_model_that_cannot_be_used_has_the_path_of_the_battery(tmp_path: Path) -> None:
    file = tmp_path / "there.csv"
    file.write_text("client,on_at_s,off_at_s\nphone,5,3\n", "utf-8")
    battery = {
        "capacity": "1 kJ",
        "charge_power": "1 W",
        "plugged": {"name": "trace", "params": {"file": str(file)}},
    }
    tables = {"run": {"rounds": 1}, "fleet": [{"battery": battery, "count": 2}]}
    with pytest.raises(ScenarioError, match=r"fleet.0.battery.plugged.params: .*there.csv"):
        build(load_scenario(tables))
