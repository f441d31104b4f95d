import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.errors import DataError
from fedsim.network.capacity_trace import Capacity
from fedsim.network.link_traces import LinkTraceConfig, LinkTraces, read_npz
from fedsim.rng import Key

S = 1_000_000_000
STEPS = Capacity([0, S, 3 * S], [8e6, 0.0, 4e6], 4 * S)


def csv(folder: Path, name: str, *rates_mbps: float) -> str:
    path = folder / name
    lines = [f"{second},{rate}" for second, rate in enumerate(rates_mbps)]
    path.write_text("\n".join(["# made up", "at_s,Mbps", *lines]) + "\n")
    return str(path)


def npz(folder: Path, **changes: Any) -> Path:
    arrays = {
        "name": np.array(["bus", "tram"]),
        "offset": np.array([0, 2, 5]),
        "duration_ms": np.array([1000, 500, 1000, 1000, 2000]),
        "kbps": np.array([800.0, 0.0, 100.0, 200.0, 300.0]),
    } | changes
    path = folder / "many.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def config(**keys: Any) -> LinkTraceConfig:
    return LinkTraceConfig.model_validate(keys)


@pytest.mark.parametrize("ahead_ns", [0, 1, S, 2 * S + 7, 4 * S - 1])
def test_a_shifted_capacity_is_ahead_of_its_own(ahead_ns: int) -> None:
    shifted = STEPS.ahead(ahead_ns)
    for at_ns in (0, 1, S - 1, S, 5 * S + 3, 40 * S):
        assert shifted.rate_at(at_ns) == STEPS.rate_at(at_ns + ahead_ns)
        change_ns = shifted.next_change_ns(at_ns)
        assert change_ns is not None
        assert change_ns > at_ns
        assert STEPS.next_change_ns(at_ns + ahead_ns) == change_ns + ahead_ns
    assert shifted.bytes_between(7, 4 * S + 7) == pytest.approx(STEPS.lap_bytes)
    assert shifted.bytes_between(7, S) == STEPS.bytes_between(ahead_ns + 7, ahead_ns + S)
    assert Capacity([0], [1.0], S).ahead(ahead_ns).next_change_ns(5) is None


def test_clients_share_one_trace_and_are_elsewhere_in_it(tmp_path: Path) -> None:
    traces = LinkTraces.draw(config(file=csv(tmp_path, "a.csv", 8, 0, 4)), 1000, Key.root(1))
    assert (len(traces.capacities), traces.numbers.nbytes + traces.turns.nbytes) == (1, 8000)
    assert traces.numbers.tolist() == [0] * 1000
    ahead = traces.turns / 2**32
    assert np.histogram(ahead, 10, (0, 1))[0].min() > 60
    again = LinkTraces.draw(config(file=csv(tmp_path, "a.csv", 8, 0, 4)), 1000, Key.root(1))
    np.testing.assert_array_equal(traces.turns, again.turns)
    assert not np.array_equal(
        traces.turns, LinkTraces.draw(config(file=again_file(tmp_path)), 1000, Key.root(2)).turns
    )
    for client in range(20):
        begun_ns = int(ahead[client] * 3 * S)
        assert traces.of(client).rate_at(0) == traces.capacities[0].rate_at(begun_ns)
    assert traces.mean_bps() == pytest.approx(4e6)


def again_file(folder: Path) -> str:
    return str(folder / "a.csv")


def test_without_a_shift_all_start_at_its_beginning(tmp_path: Path) -> None:
    traces = LinkTraces.draw(config(file=csv(tmp_path, "a.csv", 8, 2), shift=False), 3, Key.root(1))
    assert not traces.turns.any()
    assert [traces.of(client).rate_at(0) for client in range(3)] == [8e6] * 3


def test_of_several_files_each_is_used_equally_often(tmp_path: Path) -> None:
    files = [csv(tmp_path, f"{rate}.csv", rate) for rate in (1, 2, 4)]
    traces = LinkTraces.draw(config(file=files), 20, Key.root(3))
    assert sorted(np.bincount(traces.numbers)) == [6, 7, 7]
    means = np.array([1e6, 2e6, 4e6])[traces.numbers]
    np.testing.assert_allclose(np.asarray(traces.mean_bps()), means)


def test_a_file_of_many_traces(tmp_path: Path) -> None:
    path = npz(tmp_path)
    bus, tram = read_npz(path)
    assert bus.period_ns == 1_500_000_000
    assert bus.lap_bytes == pytest.approx(100_000)
    assert [tram.rate_at(at_s * S) for at_s in (0, 1, 2, 3, 4)] == [1e5, 2e5, 3e5, 3e5, 1e5]
    assert len(config(file=[str(path), csv(tmp_path, "a.csv", 1)]).read()) == 3
    assert [one.period_ns for one in read_npz(path, "tram")] == [4 * S]
    assert config(file=str(path), name="tram").read()[0].period_ns == 4 * S


@pytest.mark.parametrize(
    ("changes", "name", "message"),
    [
        ({}, "tramp", r"many.npz: no trace is called 'tramp': did you mean 'tram'\? there are: bus, tram"),
        (
            {"kbps": None},
            None,
            "is no file of traces: it needs the arrays name, offset, duration_ms and kbps",
        ),
        ({"offset": np.array([0, 2, 6])}, None, "do not fit together"),
        ({"offset": np.array([0, 5])}, None, "2 names, 2 offsets, 5 durations and 5 rates do not fit"),
        ({"offset": np.array([0, 0, 5])}, None, "2 names, 3 offsets, 5 durations and 5 rates do not fit"),
        ({"kbps": np.array([0.0, 0, 1, 1, 1])}, None, "trace 'bus': the capacity is never above 0"),
        (
            {"duration_ms": np.array([1, 0, 1, 1, 1])},
            None,
            "trace 'bus': a step lasts from 1000000 ns to 1000000 ns: each step is at least 1 ms long",
        ),
        ({"duration_ms": np.array([1, 1, 1e-6, 1, 1])}, None, "trace 'tram': a step lasts from 0 ns to 1 ns"),
        ({"kbps": np.array([1, np.nan, 1, 1, 1])}, None, "trace 'bus': a rate of nan bit/s"),
        ({"offset": np.array([1, 2, 5])}, None, "do not fit together: .* begins with 0, rises"),
        ({"offset": np.array([0, 6, 5])}, None, "do not fit together"),
        (
            {"offset": np.array([0.0, 2, 5])},
            None,
            "offset is float64 of shape .3,.: it is a row of whole num",
        ),
        ({"offset": np.array(5)}, None, "offset is int64 of shape ..: it is a row"),
        ({"kbps": np.array(["a"] * 5)}, None, "kbps is <U1 of shape .5,.: it is a row of numbers"),
        ({"duration_ms": np.ones((5, 1))}, None, "duration_ms is float64 of shape .5, 1.: it is a row"),
        ({"name": np.array([b"bus", b"tram"])}, None, "name is .S4 of shape .2,.: it is a row of texts"),
        (
            {"duration_ms": np.array([1, np.nan, 1, 1, 1])},
            None,
            "trace 'bus': the least of duration_ms is nan, and",
        ),
        (
            {"duration_ms": np.array([1, 1, -1, 1, 1])},
            None,
            "trace 'tram': the least of duration_ms is -1, and",
        ),
        (
            {"duration_ms": np.array([1, 1e300, 1, 1, 1])},
            None,
            "they add up to 1e.297 s: .*within 8.64e.08 s",
        ),
    ],
)
def test_a_file_of_traces_that_cannot_be_used(
    tmp_path: Path, changes: dict[str, Any], name: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_npz(npz(tmp_path, **changes), name)


def test_what_is_no_file_of_traces(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("at_s,bps\n")
    with pytest.raises(DataError, match=r"text.npz: is no file of traces"):
        read_npz(tmp_path / "text.npz")
    with pytest.raises(DataError, match=r"none.npz: cannot be read: No such file or directory"):
        read_npz(tmp_path / "none.npz")
    np.savez(tmp_path / "object.npz", name=np.array([object()], dtype=object))
    with pytest.raises(DataError, match=r"object.npz: is no file of traces"):
        read_npz(tmp_path / "object.npz")


def test_a_damaged_archive(tmp_path: Path) -> None:
    content = npz(tmp_path).read_bytes()
    path = tmp_path / "damaged.npz"
    np.savez_compressed(tmp_path / "packed.npz", **dict(np.load(tmp_path / "many.npz")))
    packed = bytearray((tmp_path / "packed.npz").read_bytes())
    packed[50:60] = b"\xff" * 10
    swapped = bytearray(content)
    swapped[len(content) // 2] ^= 0xFF
    for damaged in (b"", b"PK\x03\x04", content[:100], content[:-30], bytes(packed), bytes(swapped)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"damaged.npz: "):
            read_npz(path)


def test_a_config_names_its_files_and_reads_them_when_asked(tmp_path: Path) -> None:
    good, never = csv(tmp_path, "a.csv", 1), csv(tmp_path, "b.csv", 0, 0)
    assert config(file=good).file == (good,)
    for nothing in (list[str](), ""):
        with pytest.raises(ValidationError, match="at least 1") as caught:
            config(file=nothing)
        assert caught.value.errors()[0]["loc"][0] == "file"
    for keys, message in (
        ({"file": [good, never]}, "b.csv: the capacity is never above 0"),
        ({"file": good, "name": "tram"}, "'name' picks a trace of an .npz file"),
        ({"file": str(tmp_path / "no.csv")}, "there is no .*/no.csv"),
    ):
        asked = config(**keys)
        with pytest.raises(DataError, match=message):
            asked.read()


@pytest.mark.shared_data
def test_real_traces() -> None:
    root = os.environ.get("FEDSIM_DATA")
    path = Path(root or "") / "traces" / "bandwidth_lte_4g_ghent.npz"
    if not root or not path.is_file():
        pytest.skip("FEDSIM_DATA has no traces/bandwidth_lte_4g_ghent.npz")
    capacities = read_npz(path)
    assert len(capacities) == 40
    assert sum(capacity.period_ns for capacity in capacities) / 3600e9 == pytest.approx(5.0, abs=0.05)
    assert 15e6 < np.median([capacity.mean_bps for capacity in capacities]) < 45e6
