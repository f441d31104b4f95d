import math
import re
from typing import Annotated, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from fedsim.config import Config
from fedsim.errors import UnitError
from fedsim.units import MAX_TIME_S, Dimension, Seconds, Unit, format_quantity, parse, range_of, span, spell

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


class Settings(Config):
    wait: Seconds = Field(default="90 s", validate_default=True)
    memory: Annotated[float, Unit("data size")] = 0.0
    up: Annotated[float, Unit("bit rate")] = 0.0
    speed: Annotated[float, Unit("compute")] = 0.0
    power: Annotated[float, Unit("power")] = 0.0
    battery: Annotated[float, Unit("energy")] = 0.0
    down: Annotated[float, Unit("bit rate", positive=True)] = 1.0


READ: dict[Dimension, dict[str, float]] = {
    "time": dict.fromkeys(("5 us", "5 \u00b5s", "5 \u03bcs"), 5e-6)
    | dict.fromkeys(("0 s", "1e-99999999999999999999 s"), 0)
    | {"7 ns": 7e-9, "150ms": 0.15, " 2.5 s ": 2.5, "1.5 min": 90, "2 h": 7200, "1 d": 86400},
    "data size": {"1e3 B": 1000, "0.5 MB": 500_000, "4 GiB": 4 * 2**30, "1 KiB": 1024},
    "bit rate": {"20 Mbit/s": 20e6, "20 Mbps": 20e6, "4.3 MB/s": 34.4e6, "1 B/s": 8},
    "compute": {".6 GFLOP/s": 0.6e9, "2 PFLOP/s": 2e15},
    "data rate": {"10 GB/s": 10e9, "1 EB/s": 1e18},
    "hazard": {"0.5 /h": 0.5 / 3600, "2 /s": 2},
    "power": {"250 mW": 0.25, "+1 kW": 1000},
    "energy": {"10 mWh": 36, "58 kJ": 58_000},
}


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [(text, dimension, number) for dimension, numbers in READ.items() for text, number in numbers.items()],
)
def test_a_number_with_a_unit_is_read(text: str, dimension: Dimension, expected: float) -> None:
    assert parse(text, dimension) == expected


WANTED = {
    "time": "a time is wanted, for example '150 ms'",
    "bit rate": "a bit rate is wanted, for example '20 Mbit/s'",
    "data rate": "a data rate is wanted, for example '10 GB/s'",
    "data size": "a data size is wanted, for example '4 GiB'",
    "compute": "a computing speed is wanted, for example '60 GFLOP/s'",
    "hazard": "a number of events per time is wanted, for example '0.1 /h'",
}


@pytest.mark.parametrize(
    ("value", "dimension", "problem"),
    [
        (20, "bit rate", "20 has no unit"),
        ("20", "bit rate", "'20' has no unit"),
        (True, "time", "True has no unit"),
        ("20 s", "bit rate", "'20 s' is a time"),
        ("1 B", "bit rate", "'1 B' is a data size"),
        ("20 mbit/s", "bit rate", "'20 mbit/s' has the unknown unit 'mbit/s' (did you mean 'Mbit/s'?)"),
        ("3 mins", "time", "'3 mins' has the unknown unit 'mins' (did you mean 'min'?)"),
        ("3 furlong", "time", "'3 furlong' has the unknown unit 'furlong'"),
        ("fast", "compute", "'fast' is not a number with a unit"),
        ("", "time", "'' is not a number with a unit"),
        ("-1 s", "time", "'-1 s' is negative"),
        ("1e99999999999999999999 s", "time", "'1e99999999999999999999 s' is not finite"),
        ("1e999 s", "time", "'1e999 s' is not finite"),
        ("nan s", "time", "'nan s' is not finite"),
        ("inf B", "data size", "'inf B' is not finite"),
        ("8 Mbit/s", "data rate", "'8 Mbit/s' is a bit rate"),
        ("0.5 h", "hazard", "'0.5 h' is a time"),
        ("1 2 s", "time", "'1 2 s' has the unknown unit '2 s'"),
        ("1 ubit/s", "bit rate", "'1 ubit/s' has the unknown unit 'ubit/s' (did you mean 'bit/s'?)"),
    ],
)
def test_a_mistake_is_told_with_its_value_the_rule_and_an_example(
    value: object, dimension: Dimension, problem: str
) -> None:
    with pytest.raises(UnitError, match=f"^{re.escape(f'{problem}; {WANTED[dimension]}')}$"):
        parse(value, dimension)


def test_what_is_beyond_a_range_is_told_with_the_range() -> None:
    message = "'1e12 s' is more than 10000 d; a time is wanted, zero or from 1 ns to 10000 d"
    with pytest.raises(UnitError, match=f"^{message}$"):
        parse("1e12 s", "time")


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_ends_of_a_range_are_in_it_and_what_lies_beyond_is_told(dimension: Dimension) -> None:
    limits = range_of(dimension)
    words = re.fullmatch(r"from (.+) to (.+)", span(dimension, positive=True))
    assert words is not None
    for text, end in zip(words.groups(), (limits.least, limits.most), strict=True):
        assert parse(text, dimension, positive=True) == end
    for value, problem in (
        (limits.most * 1.01, f"more than {words[2]}"),
        (limits.least / 2, f"less than {words[1]}"),
    ):
        with pytest.raises(UnitError) as caught:
            parse(spell(value, dimension), dimension)
        assert f"is {problem}; " in str(caught.value)
        assert str(caught.value).endswith(f" is wanted, zero or {words[0]}")
    assert parse(spell(0, dimension), dimension) == 0


def test_what_is_computed_from_the_ends_of_ranges_is_finite() -> None:
    # Instants in 64 bits of nanoseconds, for a client's and the server's latency together.
    assert 2 * MAX_TIME_S * 1e9 < 2**63
    for dimension in DIMENSIONS:
        limits = range_of(dimension)
        assert np.isfinite(np.float32(limits.most))
        assert np.float32(limits.least) > 0
        assert math.isfinite(limits.most / limits.least * 1e9)


def test_zero_is_refused_where_only_more_makes_sense() -> None:
    with pytest.raises(
        UnitError, match="'0 B/s' is zero; a bit rate above zero is wanted, for example '20 Mbit/s'"
    ):
        parse("0 B/s", "bit rate", positive=True)


@pytest.mark.parametrize(
    ("value", "dimension", "expected"),
    [
        (20e6, "bit rate", "20 Mbit/s"),
        (1e18, "data rate", "1 EB/s"),
        (0.0001, "hazard", "8.64 /d"),
        (0.1, "hazard", "6 /min"),
        (1_234_567, "bit rate", "1.23 Mbit/s"),
        (999_600, "bit rate", "1 Mbit/s"),
        (999_400, "bit rate", "999 kbit/s"),
        (0, "bit rate", "0 bit/s"),
        (0.25, "bit rate", "0.25 bit/s"),
        (0.15, "time", "150 ms"),
        (59.99, "time", "1 min"),
        (5400, "time", "1.5 h"),
        (123_456_789, "time", "1430 d"),
        (2e-6, "time", "2 µs"),
        (math.inf, "time", "inf s"),
        (-2, "time", "-2 s"),
        (2**32, "data size", "4.29 GB"),
        (1.8e9, "compute", "1.8 GFLOP/s"),
        (4.5, "power", "4.5 W"),
        (58_000, "energy", "58 kJ"),
    ],
)
def test_a_value_is_shown_to_three_digits(value: float, dimension: Dimension, expected: str) -> None:
    assert format_quantity(value, dimension) == expected


@given(st.floats(0, 1), st.sampled_from(DIMENSIONS))
def test_what_is_shown_is_near_and_what_is_spelt_is_exact(place: float, dimension: Dimension) -> None:
    limits = range_of(dimension)
    # Every size is as likely as any other; what is shown is rounded, and stays in the range in between.
    value = 1.01 * limits.least * (0.98 * limits.most / limits.least) ** place
    assert parse(format_quantity(value, dimension), dimension) == pytest.approx(value, rel=0.0051)
    assert parse(spell(value, dimension), dimension) == value


@pytest.mark.parametrize(
    ("value", "dimension", "expected"),
    [
        (0.0, "time", "0 s"),
        (90.0, "time", "90 s"),
        (0.15, "time", "150 ms"),
        (34.4e6, "bit rate", "34.4 Mbit/s"),
    ],
)
def test_a_spelling_is_short(value: float, dimension: Dimension, expected: str) -> None:
    assert spell(value, dimension) == expected


def test_settings_read_strings_and_write_them_back() -> None:
    settings = Settings.model_validate({"wait": "2 min", "memory": "4 GiB", "up": "3.3 MB/s"})
    assert (settings.wait, settings.memory, settings.up) == (120, 4 * 2**30, 26.4e6)
    written = settings.model_dump(mode="json")
    assert (written["wait"], written["up"]) == ("2 min", "26.4 Mbit/s")
    assert Settings.model_validate(written) == settings


def test_settings_report_every_mistake_with_its_path_and_the_same_words() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"wait": 20, "up": "20 s", "down": "0 bit/s", "power": None})
    errors = {error["loc"]: error["msg"] for error in caught.value.errors()}
    assert errors == {
        ("wait",): "20 has no unit; a time is wanted, for example '150 ms'",
        ("up",): "'20 s' is a time; a bit rate is wanted, for example '20 Mbit/s'",
        ("power",): "None has no unit; a power is wanted, for example '4.5 W'",
        ("down",): "'0 bit/s' is zero; a bit rate above zero is wanted, for example '20 Mbit/s'",
    }


def test_the_json_schema_is_a_string_whose_pattern_knows_the_units() -> None:
    properties = Settings.model_json_schema()["properties"]
    wait = properties["wait"]
    assert wait["type"] == "string"
    assert wait["default"] == "90 s"
    assert wait["examples"] == ["150 ms"]
    assert all(re.search(wait["pattern"], text) for text in ["150 ms", "1.5min", "2e-3 s", "0 µs"])
    assert not any(re.search(wait["pattern"], text) for text in ["150", "150 MB", "-1 s", "1 sec"])
    for schema in properties.values():
        assert re.search(schema["pattern"], schema["examples"][0])
