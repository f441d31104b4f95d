import math
import os
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DataError
from fedsim.network.capacity_trace import Capacity, read_capacity

MS, S = 1_000_000, 1_000_000_000
# 8 Mbit/s (1000 bytes a millisecond) for 2 ms, nothing for 1, half of it for 1.
STEPS = Capacity([0, 2 * MS, 3 * MS], [8e6, 0.0, 4e6], 4 * MS)


@pytest.mark.parametrize(
    ("at_ns", "rate", "next_ns"),
    [
        (0, 8e6, 2 * MS),
        (2 * MS - 1, 8e6, 2 * MS),
        (2 * MS, 0.0, 3 * MS),
        (3 * MS, 4e6, 4 * MS),
        (4 * MS, 8e6, 6 * MS),
        (4 * MS * 10**9 + 3 * MS, 4e6, 4 * MS * 10**9 + 4 * MS),
    ],
)
def test_steps_repeat_in_every_lap(at_ns: int, rate: float, next_ns: int) -> None:
    assert STEPS.rate_at(at_ns) == rate
    assert STEPS.next_change_ns(at_ns) == next_ns


def test_steps_that_change_nothing_are_none() -> None:
    constant = Capacity([0, 5 * MS, 9 * MS], [7.0, 7.0, 7.0], 10 * MS)
    assert constant.next_change_ns(3) is None
    assert constant.rate_at(99 * MS) == 7.0
    assert Capacity([0, 5 * MS, 9 * MS], [7.0, 7.0, 8.0], 10 * MS).next_change_ns(3) == 9 * MS


def test_bytes_add_up() -> None:
    assert STEPS.lap_bytes == 2500
    assert [STEPS.bytes_between(0, at * MS) for at in (0, 1, 2, 3, 4, 5)] == [0, 1000, 2000, 2000, 2500, 3500]
    assert [STEPS.bytes_between(at * MS, 9 * MS) for at in (9, 8, 7, 6, 5)] == [0, 1000, 1500, 1500, 2500]


def made(steps: list[tuple[int, int]]) -> Capacity:
    """Return the capacity of steps, each a length in ns and a rate, one of which is above 0 in any case."""
    rates = [float(rate) for _, rate in steps]
    if not any(rates):
        rates[0] = 1e6
    ends = list(accumulate(length for length, _ in steps))
    return Capacity([0, *ends[:-1]], rates, ends[-1])


steps_of = st.lists(
    st.tuples(st.integers(MS, 10**9), st.just(0) | st.integers(1, 10**9)), min_size=1, max_size=8
)


@given(steps_of, st.integers(0, 2**62), st.floats(0, 3) | st.just(1e-9))
def test_the_bytes_of_a_span_are_exact_however_late(
    steps: list[tuple[int, int]], from_ns: int, num_laps: float
) -> None:
    capacity = made(steps)
    to_ns = from_ns + math.ceil(num_laps * capacity.period_ns)
    exact, at_ns = Fraction(0), from_ns
    while at_ns < to_ns:
        change_ns = min(capacity.next_change_ns(at_ns) or to_ns, to_ns)
        exact += Fraction(capacity.rate_at(at_ns)) * (change_ns - at_ns) / 8_000_000_000
        at_ns = change_ns
    assert abs(Fraction(capacity.bytes_between(from_ns, to_ns)) - exact) <= exact * Fraction(1e-14)


@pytest.mark.parametrize(
    ("starts", "rates", "period", "message"),
    [
        ([0, 2 * MS, 2 * MS], [1.0] * 3, 3 * MS, "from 2000000 ns to 2000000 ns: each step is at least 1 ms"),
        ([0, MS - 1], [1.0] * 2, 2 * MS, "from 0 ns to 999999 ns: each step is at least 1 ms long, so join"),
        ([0, MS], [1.0] * 2, 2 * MS - 1, "from 1000000 ns to 1999999 ns: each step is at least 1 ms"),
        ([0], [1.0], 1, "from 0 ns to 1 ns: each step is at least 1 ms long"),
        ([0], [-1.0], MS, "it must be zero or from 0.001 bit/s to 1000 Tbit/s"),
        ([0], [float("nan")], MS, "it must be zero or from 0.001 bit/s to 1000 Tbit/s"),
        ([0], [1e-4], MS, "it must be zero or from 0.001 bit/s to 1000 Tbit/s"),
        ([0], [1e15 + 1], MS, "it must be zero or from 0.001 bit/s to 1000 Tbit/s"),
        ([0, MS], [0.0, 0.0], 2 * MS, "never above 0"),
    ],
)
def test_what_is_no_capacity_is_refused(
    starts: list[int], rates: list[float], period: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Capacity(starts, rates, period)


# Mahimahi


def write(folder: Path, text: str, name: str = "trace.up") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_packet_each_millisecond_is_12_mbps(tmp_path: Path) -> None:
    capacity = read_capacity(write(tmp_path, "1\n"))
    assert (capacity.rate_at(0), capacity.next_change_ns(0), capacity.period_ns) == (12e6, None, MS)


def test_packets_are_counted_over_bins_the_last_of_which_is_shorter(tmp_path: Path) -> None:
    # Bins end at 100, 200 and 250 ms and hold 3 (0, 40, 100), 0 and 2 packets.
    capacity = read_capacity(write(tmp_path, "0\n40\n100\n250\n250\n"))
    assert [capacity.rate_at(at * MS) for at in (0, 100, 200, 250)] == [3.6e5, 0, 4.8e5, 3.6e5]
    assert capacity.period_ns == 250 * MS


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=40), st.integers(1, 200))
def test_a_lap_passes_what_the_file_lets_pass(
    tmp_path_factory: pytest.TempPathFactory, stamps: list[int], more_ms: int
) -> None:
    stamps = [*sorted(stamps), 1500 + more_ms]
    path = write(tmp_path_factory.mktemp("mahimahi"), "\n".join(map(str, stamps)))
    capacity = read_capacity(path)
    assert capacity.lap_bytes == pytest.approx(1500 * len(stamps), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.up: it is empty"),
        ("1\n-2\n", "trace.up, line 2: '-2' is not a whole number of milliseconds"),
        ("1\n\n2.5\n", "trace.up, line 3: '2.5' is not a whole number"),
        ("1\n5\n4\n", "trace.up, line 3: 4 comes after 5: the instants must not decrease"),
        ("0\n0\n", "trace.up, line 2: the last line is the length of a lap"),
        (
            "1700000000000\n1700000000012\n",
            "trace.up, line 1: 1700000000000 ms are more than 1000000 bins of 100 ms",
        ),
        (
            "1\n100000001\n",
            "trace.up, line 2: .*times count from the start of the lap, so subtract the first",
        ),
        ("9" * 5000, "trace.up, line 1: 9+ ... ms are more than"),
    ],
)
def test_a_wrong_mahimahi_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_capacity(write(tmp_path, text))


# CSV


@pytest.mark.parametrize(
    "text",
    [
        "at_s,bps\n0,8000000\n0.002,0\n0.003,4e6\n",
        "at_ms,kbps\n0,8000\n2,0\n3,4000\n",
        "at_us , Mbps\r\n0.0 , 8\r\n2000 , 0\r\n3000 , 4\r\n\r\n",
    ],
)
def test_csv_with_units_in_its_header(tmp_path: Path, text: str) -> None:
    capacity = read_capacity(write(tmp_path, text, "trace.csv"))
    # The last step lasts as long as the one before it.
    assert capacity.period_ns == STEPS.period_ns
    assert [capacity.rate_at(at * MS) for at in range(5)] == [STEPS.rate_at(at * MS) for at in range(5)]


def test_a_byte_order_mark_is_none_of_the_text(tmp_path: Path) -> None:
    for name, text in (("a.csv", "at_s,Mbps\n0,12\n"), ("a.up", "1\n")):
        (tmp_path / name).write_text(text, "utf-8-sig")
        assert read_capacity(str(tmp_path / name)).rate_at(0) == 12e6


def test_csv_of_one_line_is_constant(tmp_path: Path) -> None:
    capacity = read_capacity(write(tmp_path, "at_s,Gbps\n0,1\n", "trace.csv"))
    assert (capacity.rate_at(5), capacity.next_change_ns(5)) == (1e9, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv: it is empty"),
        ("at_s,bps\n", "trace.csv, line 1: no step follows the header"),
        (
            "time,bps\n0,1\n",
            "trace.csv, line 1: 'time,bps' is no header of a capacity: .* such as 'at_s,bps'",
        ),
        ("at_s,furlongs\n0,1\n", "trace.csv, line 1: .*rates: bps, kbps, Mbps, Gbps"),
        ("0,1\n1,2\n", "trace.csv, line 1: '0,1' is no header"),
        ("at_s,bps\n0,1\n1\n", "trace.csv, line 3: 1 cells, but the header has 2 columns"),
        ("at_s,bps\n0,fast\n", "trace.csv, line 2: 'fast bps' is not a number"),
        ("at_s,bps\n1,5\n", "trace.csv, line 2: the first step begins at 1000000000 ns: it must begin at 0"),
        (
            "at_s,bps\n0,5\n2,5\n1,6\n",
            "trace.csv, line 4: it begins at 1000000000 ns, the step before it at 2000000000",
        ),
        (
            "at_ns,bps\n0,5\n1,6\n",
            "trace.csv, line 3: it begins at 1 ns, the step before it at 0 ns: each step is at least 1 ms",
        ),
        ("at_s,bps\n0,0\n2,0\n", "trace.csv: the capacity is never above 0"),
        ("at_ms,bps\n1700000000000,1\n", "trace.csv, line 2: .* is more than 10000 d; .* .times count"),
    ],
)
def test_a_wrong_csv_file_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_capacity(write(tmp_path, text, "trace.csv"))


def test_the_name_tells_the_format(tmp_path: Path) -> None:
    assert read_capacity(write(tmp_path, "at_s,bps\n0,5\n", "trace.CSV")).rate_at(0) == 5
    assert read_capacity(write(tmp_path, "2\n", "trace.down")).rate_at(0) == 6e6


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*/nowhere\.csv"):
        read_capacity(str(tmp_path / "nowhere.csv"))
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"bytes\.csv: it is not text in UTF-8"):
        read_capacity(str(tmp_path / "bytes.csv"))


# Real ones


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["bandwidth_lte_nyc", "bandwidth_hsdpa_3g_norway"])
def test_measured_bandwidth_as_csv(tmp_path: Path, name: str) -> None:
    root = Path(os.environ.get("FEDSIM_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
    if not (root / "traces" / f"{name}.npz").is_file():
        pytest.skip(f"there is no traces/{name}.npz in {root}; set FEDSIM_DATA to a folder of data sets")
    with np.load(root / "traces" / f"{name}.npz") as traces:
        first, after = traces["offset"][:2]
        durations_ms, kbps = traces["duration_ms"][first:after], traces["kbps"][first:after]
    starts_ms = np.concatenate([[0], np.cumsum(durations_ms)[:-1]])
    lines = [f"{start},{rate}" for start, rate in zip(starts_ms, kbps, strict=True)]
    capacity = read_capacity(write(tmp_path, "\n".join(["at_ms,kbps", *lines]), "trace.csv"))
    durations_ms[-1] = durations_ms[-2]  # what the reader takes it to be
    assert capacity.lap_bytes == pytest.approx((durations_ms * kbps).sum() / 8, rel=1e-9)
    middle_ns = int(starts_ms[len(starts_ms) // 2]) * MS
    assert capacity.rate_at(middle_ns) == pytest.approx(1000 * kbps[len(starts_ms) // 2])


@pytest.mark.parametrize(
    ("name", "lines"),
    [("a.csv", ["# measured", "at_s,Mbps", "  # why", "0,12"]), ("a.up", ["# one", "1", "# a lap"])],
)
def test_lines_may_be_comments(tmp_path: Path, name: str, lines: list[str]) -> None:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    capacity = read_capacity(str(path))
    assert (capacity.rate_at(0), capacity.mean_bps) == (12e6, 12e6)


def test_the_mean_is_that_of_a_lap() -> None:
    assert Capacity([0, 10 * MS, 40 * MS], [8e6, 0.0, 2e6], 100 * MS).mean_bps == pytest.approx(2e6)
