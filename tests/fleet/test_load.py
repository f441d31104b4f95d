import json
from math import erf, exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fedsim.engine.cost import Effort, duration_s, load_of
from fedsim.errors import DataError
from fedsim.fleet import Device, GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.device_table import parse_table
from fedsim.fleet.load import AnyLoad, ExponentialLoad, HalfNormalLoad, Load, LogNormalLoad
from fedsim.models.flops import Operations
from fedsim.rng import Key
from fedsim.scenario import json_schema, load_scenario

LAWS = (LogNormalLoad(sigma=0.8), ExponentialLoad(), HalfNormalLoad())
READ = TypeAdapter[Load](AnyLoad)


def _device(**changes: Any) -> Device:
    return Device(1e9, 1e9, 1e6, 1e6, 0.0, overhead_s=0.25, **changes)


def _takes_s(key: Key | None, **changes: Any) -> float:
    device = _device(**changes)
    load = device.mean_load if key is None else load_of(device.variation, device.load, key)
    return float(duration_s(device, Effort.of([(1, Operations(2e9))]), load))


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_is_what_it_says(law: Load) -> None:
    draws = [law.factor(Key.root(number)) for number in range(20_000)]
    assert min(draws) > 0
    assert np.mean(draws) == pytest.approx(1, abs=0.03)
    tripled = law.model_copy(update={"mean": 3.0})
    assert tripled.factor(Key.root(5)) == pytest.approx(3 * draws[5])


def test_each_has_the_shape_of_its_name() -> None:
    number = 20_000
    lognormal, exponential, half_normal = (
        np.array([law.factor(Key.root(seed)) for seed in range(number)]) for law in LAWS
    )
    # Medians: exp(-sigma^2 / 2), ln 2, and 0.6745 sqrt(pi / 2).
    assert np.median(lognormal) == pytest.approx(exp(-0.32), rel=0.03)
    assert np.std(np.log(lognormal)) == pytest.approx(0.8, rel=0.03)
    assert np.median(exponential) == pytest.approx(log(2), rel=0.03)
    assert np.mean(exponential > 3) == pytest.approx(exp(-3), rel=0.1)
    assert np.median(half_normal) == pytest.approx(0.6745 * 1.2533, rel=0.03)
    assert np.mean(half_normal < 1.2533) == pytest.approx(erf(1 / sqrt(2)), rel=0.03)


def test_a_load_multiplies_the_work_and_leaves_the_overhead() -> None:
    key, law = Key.root(7), ExponentialLoad()
    draw = -log(key.child("law").uniform())
    # 2 GFLOP at 1 GFLOP/s.
    assert _takes_s(key, load=law) == pytest.approx(0.25 + 2 * draw)
    varied = _takes_s(key, variation=0.5) - 0.25
    assert _takes_s(key, load=law, variation=0.5) == pytest.approx(0.25 + varied * draw)
    # What a client expects beforehand.
    assert _takes_s(None, load=ExponentialLoad(mean=1.5), variation=0.5) == 0.25 + 3
    assert _takes_s(None, variation=0.5) == 2.25


@given(st.integers(0, 2**64), st.sampled_from(LAWS))
def test_a_draw_is_a_function_of_its_key(seed: int, law: Load) -> None:
    assert law.factor(Key.root(seed)) == law.factor(Key.root(seed))
    assert law.factor(Key.root(seed)) != law.factor(Key.root(seed).child("other"))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("octet", [b"\x00", b"\xff"])
def test_the_rarest_draws_are_finite(law: Load, octet: bytes) -> None:
    assert 0 <= law.factor(Key(octet * 16)) < 1e3


@pytest.mark.parametrize(
    "table",
    [
        {"distribution": "lognormal", "sigma": 0.5},
        {"distribution": "exponential"},
        {"distribution": "half_normal", "mean": 1.5},
    ],
)
def test_a_table_is_read_and_written(table: dict[str, Any]) -> None:
    read = READ.validate_python(table)
    assert READ.dump_python(read, mode="json") == {"mean": 1.0, **table}
    assert READ.validate_python(READ.dump_python(read, mode="json")) == read


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (2.0, "2.0 is no table"),
        ({}, "no 'distribution' is named"),
        (
            {"distribution": "exponental"},
            "no distribution is called 'exponental'; did you mean 'exponential'",
        ),
        ({"distribution": "lognormal"}, "it is missing, and has no default (Standard deviation"),
        ({"distribution": "lognormal", "sigma": 4.0}, "less than or equal to 3"),
        ({"distribution": "exponential", "mean": 0.0}, "greater than or equal to 0.001"),
        ({"distribution": "exponential", "sigma": 1.0}, "no key is called 'sigma' here"),
    ],
)
def test_what_is_no_load_is_refused(table: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        READ.validate_python(table)
    assert message in str(caught.value)


def test_a_scenario_gives_a_group_its_load_and_names_the_path_of_a_fault() -> None:
    tables: dict[str, Any] = {
        "run": {"rounds": 1},
        "fleet": [{"count": 2, "load": {"distribution": "exponential"}}],
    }
    scenario = load_scenario(tables)
    assert dict(scenario.fleet[0])["load"] == ExponentialLoad()
    assert load_scenario(scenario) == scenario
    tables["fleet"][0]["load"] = {"distribution": "half"}
    with pytest.raises(Exception, match=r"fleet.0.load.distribution: no distribution is called 'half'"):
        load_scenario(tables)


def test_the_json_schema_has_the_three_of_them() -> None:
    text = json.dumps(json_schema())
    assert all(f'"const": "{law.distribution}"' in text for law in LAWS)


def test_a_fleet_gives_each_device_the_law_of_its_group() -> None:
    table = {"distribution": "half_normal"}
    groups = [GroupConfig(count=2), GroupConfig.model_validate({"count": 3, "load": table})]
    fleet = build_fleet(groups, ServerConfig(), Key.root(0))
    assert [fleet.device(client).load for client in range(5)] == [None] * 2 + [HalfNormalLoad()] * 3
    assert fleet.is_loaded
    assert not build_fleet(groups[:1], ServerConfig(), Key.root(0)).is_loaded
    loaded = build_fleet(groups, ServerConfig.model_validate({"load": table}), Key.root(0))
    assert (fleet.server.load, loaded.server.load) == (None, HalfNormalLoad())


HEADER = "speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms,load,load_mean,load_sigma\n"
ROW = "1,1,1,1,0,"


def test_rows_of_a_file_have_loads_of_their_own(tmp_path: Any) -> None:
    text = HEADER + "".join(f"{ROW}{cells}\n" for cells in ("exponential,2,", ",,", "lognormal,,0.5"))
    laws = (ExponentialLoad(mean=2.0), None, LogNormalLoad(sigma=0.5))
    assert parse_table(text, "phones.csv").loads == laws
    (tmp_path / "phones.csv").write_text(text)
    group = {"count": 3, "file": str(tmp_path / "phones.csv")}
    fleet = build_fleet([GroupConfig.model_validate(group)], ServerConfig(), Key.root(0))
    assert tuple(fleet.device(client).load for client in range(3)) == laws
    # The entry's replaces those of all rows.
    group["load"] = {"distribution": "half_normal"}
    fleet = build_fleet([GroupConfig.model_validate(group)], ServerConfig(), Key.root(0))
    assert {fleet.device(client).load for client in range(3)} == {HalfNormalLoad()}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("expo,,", "column 'load': no distribution is called 'expo'"),
        (",1,", "column 'load_mean': no load has no mean: leave the cell empty"),
        ("exponential,,1", "column 'load_sigma': 'exponential' has no sigma: leave the cell empty"),
        ("lognormal,,", "column 'load': 'lognormal' needs a sigma: give it in column 'load_sigma'"),
        ("lognormal,,9", "column 'load_sigma': '9' is too large: write zero or a number from 0 to 3"),
        ("exponential,0,", "column 'load_mean': '0' is zero: write a number above zero"),
    ],
)
def test_a_load_of_a_file_that_is_none_is_told_with_line_and_column(cells: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_table(f"{HEADER}{ROW}{cells}\n", "phones.csv")
    assert str(caught.value).startswith("phones.csv, line 2, ")
    assert message in str(caught.value)


def test_parameters_without_a_distribution_are_refused() -> None:
    with pytest.raises(
        DataError, match="column 'load_mean': no column 'load' names the distribution: add it"
    ):
        parse_table("load_mean\n1\n", "phones.csv")
