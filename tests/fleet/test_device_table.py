from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from fedsim.errors import DataError
from fedsim.fleet import Device, Fleet, GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.device_table import COLUMNS, parse_table
from fedsim.fleet.distributions import Distribution
from fedsim.fleet.power import ALL_QUANTITIES as QUANTITIES
from fedsim.rng import Key
from fedsim.units import spell

PHONES = """# made up
label,speed_gflops,memory_gb,up_mbps,down_kbps,latency_ms,overhead_s,variation
old,0.6,2,10,40000,50,1,0.5
new,6,8,26.4,34400,20,0,0
"""
SHARED = """share,speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms
3,1,2,10,40,50
1,6,8,26,34,20
0,9,9,9,9,9
"""


@pytest.fixture
def phones(tmp_path: Path) -> str:
    (tmp_path / "phones.csv").write_text(PHONES)
    return str(tmp_path / "phones.csv")


@pytest.fixture
def shared(tmp_path: Path) -> str:
    (tmp_path / "shared.csv").write_text(SHARED)
    return str(tmp_path / "shared.csv")


def fleet_of(**entry: object) -> Fleet:
    return build_fleet([GroupConfig.model_validate(entry)], ServerConfig(), Key.root(1))


def test_columns_are_quantities_in_units() -> None:
    assert {quantity for quantity, _ in COLUMNS.values()} == set(QUANTITIES)
    assert COLUMNS["up_mbps"] == ("up", 1e6)
    assert COLUMNS["memory_gb"] == ("memory", 1e9)
    assert COLUMNS["latency_ms"] == ("latency", 1e-3)
    assert COLUMNS["variation"] == ("variation", 1)


def test_without_shares_each_row_is_a_device(phones: str) -> None:
    fleet = fleet_of(count=2, file=phones)
    exact = np.float32
    assert fleet.device(0) == Device(
        float(exact(0.6e9)), 2e9, 10e6, 40e6, float(exact(0.05)), 1.0, 0.5, label="old"
    )
    assert fleet.device(1) == Device(6e9, 8e9, 26.4e6, 34.4e6, float(exact(0.02)), 0.0, 0.0, label="new")
    assert fleet.groups[0].label == "phones"
    assert fleet.groups[0].rows.itemsize == 4


def test_with_shares_any_number_is_drawn(shared: str) -> None:
    fleet = fleet_of(count=8000, file=shared, name="ward")
    speeds = fleet.values("speed")
    assert set(speeds) == {1e9, 6e9}
    assert np.mean(speeds == 1e9) == pytest.approx(0.75, abs=0.02)
    # What is in a row stays together, and the rest is zero.
    assert np.array_equal(speeds == 6e9, fleet.values("memory") == 8e9)
    assert np.array_equal(speeds == 6e9, fleet.values("up") == 26e6)
    assert set(fleet.values("overhead")) == {0}
    assert fleet.device(5).label == "ward"
    assert fleet.device(5) == fleet_of(count=9000, file=shared, name="ward").device(5)


def test_the_entry_replaces_a_column_or_gives_what_none_does(tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text("speed_mflops\n1\n2\n3\n")
    given = {"memory": "1 GB", "up": "1 Mbit/s", "down": "1 Mbit/s"}
    latency = {"distribution": "uniform", "low": "1 ms", "high": "9 ms"}
    file = str(tmp_path / "speeds.csv")
    fleet = fleet_of(count=3, file=file, latency=latency, **given)
    assert fleet.values("speed").tolist() == [1e6, 2e6, 3e6]
    assert fleet.values("memory").tolist() == [1e9] * 3
    assert len(set(fleet.values("latency"))) == 3
    replaced = fleet_of(count=3, file=file, latency=latency, speed="5 MFLOP/s", **given)
    assert replaced.values("speed").tolist() == [5e6] * 3


def test_an_entry_with_a_file_is_written_back_and_read_again(phones: str) -> None:
    group = GroupConfig.model_validate({"count": 2, "file": phones, "up": "1 Mbit/s"})
    written = group.model_dump(mode="json", exclude_none=True)
    assert written == {"device": "table", "up": "1 Mbit/s", "count": 2, "file": phones}
    assert GroupConfig.model_validate(written) == group
    assert group.label == "phones"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("speed_gflops\n", "line 1: no row follows the header"),
        (
            "speed_gflop\n1\n",
            "line 1, column 'speed_gflop': there is no such column: did you mean 'speed_gflops'",
        ),
        ("speed\n1\n", "line 1, column 'speed': there is no such column"),
        ("up_mbps,up_bps\n1,1\n", "line 1, column 'up_bps': column 'up_mbps' gives the up already"),
        ("share,share\n1,1\n", "line 1, column 'share': column 'share' gives the share already"),
        ("up_mbps,down_mbps\n1\n", "line 2: 1 cells, but the header has 2 columns"),
        ("up_mbps\n1\n# no\nfast\n", "line 4, column 'up_mbps': 'fast' is not a number"),
        ("up_mbps\n0\n", "line 2, column 'up_mbps': '0' is zero: write a number above zero"),
        ("label,up_mbps\n,1\n", "line 2, column 'label': the cell is empty"),
        ("share,up_mbps\n1e308,1\n1e308,1\n", "line 2, column 'share': '1e308' is too large"),
        ("share,up_mbps\n0,1\n", "line 1, column 'share': all shares are zero"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_table(text, "phones.csv")
    assert str(caught.value).startswith("phones.csv")
    assert message in str(caught.value)


def test_a_file_may_say_what_a_scenario_may_and_no_more() -> None:
    for column, (quantity, factor) in COLUMNS.items():
        spread = QUANTITIES[quantity].spread
        law = TypeAdapter(Annotated[Distribution, spread])
        ends = (spread.limits.least, spread.limits.most)
        for value, fits in (
            (ends[0], True),
            (ends[1], True),
            (ends[0] * 0.9, not ends[0]),
            (ends[1] * 1.1, False),
        ):
            cell = float(f"{value / factor:.9g}") if fits else value / factor
            written = value if spread.dimension is None else spell(cell * factor, spread.dimension)
            if fits:
                parse_table(f"{column}\n{cell!r}\n", "phones.csv")
                law.validate_python(written)
            else:
                with pytest.raises(DataError, match=f"line 2, column '{column}': .* is too"):
                    parse_table(f"{column}\n{cell!r}\n", "phones.csv")
                with pytest.raises(ValidationError):
                    law.validate_python(written)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"file": ""}, "at least 1 character"),
        ({"file": "phones.csv", "device": "low"}, "device class 'low' reads no file"),
        ({"device": "table"}, "device class 'table' reads a file"),
    ],
)
def test_faults_of_an_entry_are_at_its_file(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        GroupConfig.model_validate({"count": 2, **entry})
    (error,) = caught.value.errors()
    assert error["loc"] == ("file",)
    assert message in error["msg"]


def test_an_entry_is_read_without_its_files() -> None:
    entry = {"count": 2, "file": "none.csv", "up_trace": "none.csv"}
    assert GroupConfig.model_validate(entry).file == f"{Path.cwd()}/./none.csv"


def test_a_file_that_changed_since_is_told_when_the_fleet_is_built(phones: str) -> None:
    group = GroupConfig.model_validate({"count": 2, "file": phones})
    Path(phones).write_text(PHONES + "third,1,1,1,1,1,1,1\n")
    with pytest.raises(DataError, match="2 devices are wanted, and each of its 3 rows is one"):
        build_fleet([group], ServerConfig(), Key.root(0))


def test_a_server_is_no_table() -> None:
    with pytest.raises(ValidationError, match="'table' is for groups"):
        ServerConfig(device="table")


@pytest.mark.parametrize("name", ["benchmark_phones", "cellular_phones", "flash_phones"])
def test_files_of_fedsim_are_classes(name: str) -> None:
    fleet = fleet_of(count=20_000, device=name)
    assert fleet.groups[0].label == name
    assert 2e9 <= fleet.values("memory").min() <= fleet.values("memory").max() <= 8e9
    assert (fleet.values("up") < fleet.values("down")).all()
    assert fleet.device(0).label.split()[1] == "phone"
    slower = fleet_of(count=9, device=name, speed="1 MFLOP/s")
    assert slower.values("speed").tolist() == [1e6] * 9


def test_phones_of_flash_have_its_mix_speeds_and_links() -> None:
    fleet = fleet_of(count=40_000, device="flash_phones")
    speeds, shares = np.unique(fleet.values("speed"), return_counts=True)
    assert speeds == pytest.approx([0.63e9, 1.8e9, 5.8e9], rel=1e-6)
    assert shares / 40_000 == pytest.approx([0.533, 0.463, 0.004], abs=0.01)
    assert np.quantile(fleet.values("down"), [0.2, 0.5, 0.8]) == pytest.approx([29.6e6, 34.4e6, 57.6e6])
    assert np.quantile(fleet.values("up"), [0.2, 0.5, 0.8]) == pytest.approx([21.6e6, 26.4e6, 40e6])


def test_phones_of_the_benchmark_are_spread_as_it_is() -> None:
    speeds = fleet_of(count=40_000, device="benchmark_phones").values("speed")
    assert np.median(speeds) == pytest.approx(1.8e9)
    assert speeds.max() / speeds.min() == pytest.approx(3691 / 218, rel=0.03)
    assert np.log(speeds).std() == pytest.approx(0.93, abs=0.1)
