from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from fedsim.config import Config
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.distributions import Distribution, Fixed, Spread, choice, lognormal
from fedsim.plugins import load
from fedsim.rng import Key


def default(written: object) -> Any:
    return Field(default=written, validate_default=True)


class Link(Config):
    up: Annotated[Distribution, Spread("bit rate", positive=True)] = default(lognormal("20 Mbit/s", 0.5))
    latency: Annotated[Distribution, Spread("time")] = default("50 ms")
    load: Annotated[Distribution, Spread(None)] = Fixed(0.0)


def draw(value: object, num: int = 20_000, field: str = "up") -> np.ndarray[Any, np.dtype[np.float64]]:
    law: Distribution = getattr(Link.model_validate({field: value}), field)
    return law.draw(num, Key.root(5).numpy())


MISSING = (
    "it is missing, and has no default (Standard deviation of the logarithm, 0 to 3; at 0.3 two thirds are "
    "within a factor of 1.35)"
)


def faults(values: dict[str, object]) -> dict[tuple[int | str, ...], str]:
    with pytest.raises(ValidationError) as caught:
        Link.model_validate(values)
    return {error["loc"]: error["msg"] for error in caught.value.errors()}


def test_a_string_is_the_same_for_every_device() -> None:
    assert draw("3 Mbit/s", 4).tolist() == [3e6] * 4
    assert draw(0.25, 2, "load").tolist() == [0.25] * 2


def test_a_default_may_be_a_choice() -> None:
    class Shelf(Config):
        memory: Annotated[Distribution, Spread("data size")] = default(choice({"2 GB": 3, "4 GB": 1}))

    written = {"distribution": "choice", "values": ["2 GB", "4 GB"], "weights": [3.0, 1.0]}
    assert Shelf().model_dump(mode="json")["memory"] == written
    assert np.mean(Shelf().memory.draw(4000, Key.root(0).numpy()) == 2e9) == pytest.approx(0.75, abs=0.03)


def test_defaults_are_written_as_in_a_scenario() -> None:
    link = Link()
    assert link.latency == Fixed(0.05)
    assert np.median(link.up.draw(20_000, Key.root(1).numpy())) == pytest.approx(20e6, rel=0.02)


def test_log_normal() -> None:
    values = draw({"distribution": "lognormal", "median": "2 Mbit/s", "sigma": 0.3})
    logs = np.log(values / 2e6)
    assert logs.mean() == pytest.approx(0, abs=0.01)
    assert logs.std() == pytest.approx(0.3, rel=0.02)


def test_uniform() -> None:
    values = draw({"distribution": "uniform", "low": "1 Mbit/s", "high": "3 Mbit/s"})
    assert values.min() >= 1e6
    assert values.max() <= 3e6
    assert np.quantile(values, [0.25, 0.75]) == pytest.approx([1.5e6, 2.5e6], rel=0.02)


def test_normal_raises_low_values_to_its_minimum() -> None:
    table = {"distribution": "normal", "mean": "50 ms", "deviation": "20 ms", "minimum": "30 ms"}
    values = draw(table, field="latency")
    assert values.min() == 0.03
    assert np.mean(values == 0.03) == pytest.approx(0.1587, abs=0.01)  # one deviation below the mean
    assert np.median(values) == pytest.approx(0.05, rel=0.02)


def test_choice_follows_its_weights() -> None:
    values = draw({"distribution": "choice", "values": ["1 Mbit/s", "9 Mbit/s"], "weights": [3, 1]})
    assert sorted(set(values.tolist())) == [1e6, 9e6]
    assert np.mean(values == 9e6) == pytest.approx(0.25, abs=0.01)
    equal = draw({"distribution": "choice", "values": ["1 Mbit/s", "9 Mbit/s"]})
    assert np.mean(equal == 9e6) == pytest.approx(0.5, abs=0.015)


@given(st.integers(0, 3), st.integers(1, 40))
def test_every_law_gives_as_many_values_as_asked_and_repeats_itself(kind: int, num: int) -> None:
    table = [
        {"distribution": "lognormal", "median": "2 Mbit/s", "sigma": 1},
        {"distribution": "uniform", "low": "1 Mbit/s", "high": "1 Mbit/s"},
        {"distribution": "normal", "mean": "1 Mbit/s", "deviation": "5 Mbit/s", "minimum": "1 kbit/s"},
        {"distribution": "choice", "values": ["1 Mbit/s"]},
    ][kind]
    values = draw(table, num)
    assert values.shape == (num,)
    assert (values > 0).all()
    assert np.array_equal(values, draw(table, num))


@pytest.mark.parametrize("sign", [-1, 1])
def test_what_is_drawn_beyond_the_range_becomes_its_end(sign: int) -> None:
    name, end = ("efficiency", 1.0) if sign > 0 else ("up", 0.001)
    laws: dict[str, object] = {
        "efficiency": {"distribution": "lognormal", "median": 0.9, "sigma": 1},
        "up": {"distribution": "lognormal", "median": "0.002 bit/s", "sigma": 3},
        "latency": {"distribution": "choice", "values": ["0 s", "1 s"]},
    }
    config = load("fedsim.fleet.devices", "mid").Config.model_validate(laws)
    drawn = QUANTITIES[name].spread.draw(getattr(config, name), 1000, Key.root(0))
    assert isinstance(drawn, np.ndarray)
    assert (sign * drawn).max() == sign * end
    assert 0.3 < np.mean(drawn == end) < 0.6
    latencies = QUANTITIES["latency"].spread.draw(dict(config)["latency"], 100, Key.root(0))
    assert set(np.atleast_1d(latencies).tolist()) == {0.0, 1.0}


def test_faults_carry_the_path_into_the_table() -> None:
    assert faults(
        {
            "up": {"distribution": "lognormal", "median": "20 s", "sigma": 9, "mean": "1 bit/s"},
            "latency": {"distribution": "choice", "values": ["1 s", 2]},
            "load": "much",
        }
    ) == {
        ("up", "median"): "'20 s' is a time; a bit rate is wanted, for example '20 Mbit/s'",
        ("up", "sigma"): "Input should be less than or equal to 3",
        ("up", "mean"): "no key is called 'mean' here",
        ("latency", "values", 1): "2 has no unit; a time is wanted, for example '150 ms'",
        ("load",): "Input should be a valid number",
    }


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (3, (), "3 has no unit; a bit rate is wanted, for example '20 Mbit/s'"),
        ("0 bit/s", (), "'0 bit/s' is zero; a bit rate above zero is wanted, for example '20 Mbit/s'"),
        (
            {"median": "1 bit/s"},
            ("distribution",),
            "no 'distribution' is named; there are: lognormal, uniform, normal, choice",
        ),
        (
            {"distribution": "log-normal"},
            ("distribution",),
            "no distribution is called 'log-normal'; did you mean 'lognormal'? "
            "there are: lognormal, uniform, normal, choice",
        ),
        (
            {"distribution": ["normal"]},
            ("distribution",),
            "no distribution is called ['normal']; did you mean 'normal'? "
            "there are: lognormal, uniform, normal, choice",
        ),
        ({"distribution": "lognormal", "median": "1 bit/s"}, ("sigma",), MISSING),
        (
            {"distribution": "uniform", "low": "2 bit/s", "high": "1 bit/s"},
            (),
            "low is above high: exchange them",
        ),
        (
            {"distribution": "normal", "mean": "1 bit/s", "deviation": "1 bit/s", "minimum": "2 bit/s"},
            (),
            "minimum is above mean: most devices would have the minimum",
        ),
        (
            {"distribution": "choice", "values": ["1 bit/s"], "weights": [1, 2]},
            (),
            "1 values and 2 weights: give one weight for each value",
        ),
        (
            {"distribution": "choice", "values": ["1 bit/s"], "weights": [0]},
            (),
            "weights are all zero: give at least one above zero",
        ),
        (
            # Their sum would be infinite.
            {"distribution": "choice", "values": ["1 bit/s", "2 bit/s"], "weights": [1e308, 1]},
            ("weights", 0),
            "Input should be less than or equal to 1000000000000",
        ),
    ],
)
def test_a_fault_teaches(value: object, path: tuple[str, ...], message: str) -> None:
    assert faults({"up": value}) == {("up", *path): message}


@pytest.mark.parametrize(
    "value",
    [
        "3 Mbit/s",
        {"distribution": "lognormal", "median": "3 Mbit/s", "sigma": 0.2},
        {"distribution": "choice", "values": ["1 Mbit/s", "2 Mbit/s"]},
    ],
)
def test_settings_are_written_back_as_they_were(value: object) -> None:
    link = Link.model_validate({"up": value})
    written = link.model_dump(mode="json")
    assert written["up"] == value
    assert Link.model_validate(written) == link


def test_the_json_schema_offers_a_string_or_a_table_and_shows_the_default() -> None:
    schema = Link.model_json_schema()
    up = schema["properties"]["up"]
    assert up["default"] == {"distribution": "lognormal", "median": "20 Mbit/s", "sigma": 0.5}
    assert up["anyOf"][0]["type"] == "string"
    assert [entry["$ref"].rpartition("/")[2] for entry in up["anyOf"][1:]] == [
        f"{kind}_bit_rate_above_zero" for kind in ("LogNormal", "Uniform", "Normal", "Choice")
    ]
    assert all(entry["$ref"].rpartition("/")[2] in schema["$defs"] for entry in up["anyOf"][1:])
