"""Numbers are read alike wherever a user writes them as text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim import numerals
from fedsim.cli.run_commands import compare
from fedsim.cli.values import whole_number
from fedsim.csv_rows import Row
from fedsim.errors import DataError, UnitError, UserError
from fedsim.fleet.availability.trace import PLUGIN as TRACE
from fedsim.fleet.device_table import parse_table
from fedsim.network.capacity_trace import read_capacity
from fedsim.processes.addresses_and_tls import address
from fedsim.scenario.load import apply_override, parse_override
from fedsim.units import parse as quantity

Read = Callable[[str, Path], object]


def file_of(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def seeds(text: str, folder: Path) -> object:
    return compare.make_context("compare", ["s.toml", "--algorithms", "fedavg", "--seeds", text])


def entry(text: str, folder: Path) -> object:
    override = parse_override(f'fleet."{text}".count=1')
    fault = apply_override({"fleet": [{}] * 13}, override)  # type: ignore[arg-type]
    if fault is not None:
        raise UserError(str(fault))
    return fault


READERS: dict[str, Read] = {
    "units": lambda text, _: quantity(f"{text} s", "time"),
    "rows": lambda text, _: Row("f.csv", 1, (text,)).number(0, "a"),
    "devices": lambda text, _: parse_table(
        f"speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms\n{text},1,1,1,1\n", "f.csv"
    ),
    "availability": lambda text, folder: TRACE(
        TRACE.Config(file=str(file_of(folder, "a.csv", f"client,on_at_s,off_at_s\na,0,{text}\n")))
    ).read(),
    "capacity": lambda text, folder: read_capacity(str(file_of(folder, "c.csv", f"at_s,bps\n0,{text}\n"))),
    "mahimahi": lambda text, folder: read_capacity(str(file_of(folder, "m.up", f"{text}\n"))),
    "port": lambda text, _: address(f"localhost:{text}"),
    "workers": lambda text, _: whole_number(text, "Workers"),
    "seeds": seeds,
    "entries of lists": entry,
}

FOREIGN = [
    *("\uff11\uff12", "\u0661\u0662", "\u0967\u0968", "\u00b2"),  # digits of other scripts
    *("1_2", "0x1", "1e", "", "1 2"),
    *("infinity", "Infinity", "inf", "NaN", "nan"),
]


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_plain_digits(reader: str, tmp_path: Path) -> None:
    READERS[reader]("12", tmp_path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", FOREIGN)
def test_no_reader_takes_anything_else(reader: str, text: str, tmp_path: Path) -> None:
    if reader == "seeds" and text == "":
        return  # which is a list of none
    with pytest.raises((DataError, UnitError, UserError, click.UsageError)):
        READERS[reader](text, tmp_path)


@given(st.floats(allow_nan=False))
def test_every_float_is_read_as_python_spells_it(value: float) -> None:
    assert numerals.number(repr(value)) == value


@given(st.integers(-(10**200), 10**200))
def test_every_whole_number_is_read(value: int) -> None:
    assert numerals.parse_whole(str(value)) == value


@given(st.text(st.characters(categories=["Nd", "Nl", "No"], exclude_characters="0123456789"), min_size=1))
def test_other_digits_are_none(text: str) -> None:
    assert numerals.number(text) is None
    assert numerals.parse_whole(text) is None


def test_more_digits_than_python_reads() -> None:
    most = numerals.parse_whole("9" * 100_000)
    assert most is not None and most > 2**64  # noqa: PT018
    assert numerals.number("9" * 100_000) == float("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.array(True), True),
        (torch.tensor(2.0), 2.0),
        (float("nan"), None),
        (np.float64("-inf"), None),
        ("text", "text"),
        (None, None),
        (False, False),
    ],
)
def test_scalars_become_plain(value: Any, expected: Any) -> None:
    found = numerals.scalar(value)
    assert type(found) is type(expected)
    assert found == expected


def test_what_is_no_scalar_stays_itself() -> None:
    values: list[Any] = [[1.0], np.arange(1), {}]
    for value in values:
        assert numerals.scalar(value) is value
