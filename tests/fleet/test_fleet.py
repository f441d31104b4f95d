from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsim.errors import InvariantError
from fedsim.fleet import Device, DevicePlugin, Fleet, GroupConfig, ServerConfig, build_fleet, devices
from fedsim.fleet.availability.base import AvailabilityPlugin
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.distributions import Values
from fedsim.fleet.fleet import assign
from fedsim.plugins import load
from fedsim.rng import Key
from tests.conftest import there

KEY = Key.root(1)
SLOW = {
    "device": "mid",
    "name": "slow",
    "model": "small",
    "speed": "1 GFLOP/s",
    "memory": "1 GB",
    "up": "1.1 Mbit/s",
    "down": "2 Mbit/s",
    "latency": "70 ms",
    "overhead": "0.3 s",
    "variation": 0.1,
}


OPEN = {name: value for name, value in SLOW.items() if name not in ("up", "down")}


def nbytes(fleet: Fleet) -> int:
    """Return the bytes of the arrays that describe devices; one that repeats a number holds it once."""
    arrays: list[Any] = []
    for group in fleet.groups:
        arrays += [*group.columns.values(), group.rows, group.places]
        arrays += [array for traces in group.link_traces.values() for array in (traces.numbers, traces.turns)]
    return sum(one.nbytes for one in arrays if isinstance(one, np.ndarray) and one.strides != (0,))


def fleet_of(*entries: Mapping[str, object], key: Key = KEY) -> Fleet:
    return build_fleet([GroupConfig.model_validate(entry) for entry in entries], ServerConfig(), key)


def test_a_fleet_of_fixed_quantities_is_exact() -> None:
    fleet = fleet_of(
        {"count": 2, **SLOW}, {"count": 3, **SLOW, "name": "fast", "speed": "3.3 GFLOP/s", "model": None}
    )
    slow = Device(1e9, 1e9, 1.1e6, 2e6, 0.07, 0.3, 0.1, "slow")
    fast = Device(3.3e9, 1e9, 1.1e6, 2e6, 0.07, 0.3, 0.1, "fast")
    assert len(fleet) == 5
    assert [fleet.device(i) for i in range(5)] == [slow, slow, fast, fast, fast]
    assert [fleet.group(i) for i in range(5)] == [0, 0, 1, 1, 1]
    assert [fleet.model(i) for i in range(5)] == ["small", "small", "model", "model", "model"]
    assert fleet.values("speed").tolist() == [1e9, 1e9, 3.3e9, 3.3e9, 3.3e9]
    assert nbytes(fleet) == 0
    assert fleet.server_model == "model"


def test_labels_come_from_the_entry_or_from_the_default() -> None:
    server = ServerConfig(model="large")
    fleet = build_fleet([GroupConfig(count=1)], server, KEY, default_model="cnn")
    assert (fleet.model(0), fleet.server_model) == ("cnn", "large")


@pytest.mark.parametrize("client", [-1, 2])
def test_a_client_outside_the_fleet_is_an_error(client: int) -> None:
    with pytest.raises(IndexError, match=f"no client {client}: the fleet has 0 to 1"):
        fleet_of({"count": 2}).device(client)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_every_client_is_in_the_group_of_its_place(counts: list[int]) -> None:
    fleet = fleet_of(*({"count": count, "name": str(i)} for i, count in enumerate(counts)))
    expected = [i for i, count in enumerate(counts) for _ in range(count)]
    assert [fleet.group(client) for client in range(len(fleet))] == expected
    fields = [field for field in Device._fields if field not in ("label", "load")]
    for quantity, field in zip(QUANTITIES, fields, strict=True):
        devices = [getattr(fleet.device(client), field) for client in range(len(fleet))]
        assert fleet.values(quantity).tolist() == devices


def test_draws_follow_from_the_key_and_from_nothing_else() -> None:
    first, again, other = (
        fleet_of({"count": 50}),
        fleet_of({"count": 50}),
        fleet_of({"count": 50}, key=Key.root(2)),
    )
    assert np.array_equal(first.values("speed"), again.values("speed"))
    assert not np.array_equal(first.values("speed"), other.values("speed"))
    # Fixing one quantity, or adding a group after it, leaves the other draws alone.
    more = fleet_of({"count": 50, "speed": "1 GFLOP/s"}, {"count": 9})
    assert np.array_equal(first.values("up"), more.values("up")[:50])
    # Groups and quantities are independent of one another.
    twins = fleet_of({"count": 50}, {"count": 50}).values("up")
    assert not np.array_equal(twins[:50], twins[50:])
    assert abs(np.corrcoef(np.log(first.values("up")), np.log(first.values("down")))[0, 1]) < 0.5


DRAWN = {"distribution": "lognormal", "median": "1 GFLOP/s", "sigma": 0.5}


@pytest.mark.parametrize(
    "others", [{"speed": "3 GFLOP/s"}, {"speed": DRAWN, "load": {"distribution": "exponential"}}]
)
def test_devices_are_given_as_one(others: Mapping[str, object]) -> None:
    fleet, clients = fleet_of({**SLOW, "count": 3}, {**SLOW, **others, "count": 3}), [5, 0, 3, 4, 1]
    together, singly = fleet.speeds(np.array(clients)), [fleet.device(client) for client in clients]
    for name in ("speed_flops", "efficiency", "memory_bandwidth_bytes_per_s", "overhead_s", "variation"):
        assert getattr(together, name).tolist() == [getattr(device, name) for device in singly]
    laws = [None] * 5 if together.load is None else list(cast(Any, together.load))
    assert laws == [device.load for device in singly]
    assert fleet.models(clients) == [fleet.model(client) for client in clients]


def test_a_million_clients_cost_arrays_of_few_bytes() -> None:
    spread = {"distribution": "lognormal", "sigma": 0.1}
    medians = {"memory": "1 GB", "latency": "1 ms", "overhead": "1 s"}
    drawn = {name: {**spread, "median": median} for name, median in medians.items()}
    variation = {"distribution": "uniform", "low": 0, "high": 1}
    fleet = fleet_of({"count": 1_000_000, "device": "low", "variation": variation, **drawn})
    assert nbytes(fleet) == 28 * len(fleet)
    assert fleet.device(999_999).speed_flops > 0


def test_arrays_of_a_fleet_cannot_be_written() -> None:
    column = fleet_of({"count": 3}).groups[0].columns["speed"]
    assert isinstance(column, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


class Measured(DevicePlugin):
    """A private class that knows more of its devices."""

    Config = load("fedsim.fleet.devices", "mid").Config

    def draw(self, num: int, key: Key) -> dict[str, float | Values]:
        return {**super().draw(num, key), "efficiency": 0.25, "drop_out": np.arange(num, dtype=np.float64)}


def test_further_quantities_have_defaults_and_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fleet_of({"count": 2}).device(1)
    assert (plain.efficiency, plain.memory_bandwidth_bytes_per_s, plain.drop_out_per_s) == (1.0, 1e18, 0.0)
    monkeypatch.setitem(devices.PLUGINS, "mid", Measured)
    fleet = fleet_of({"count": 3}, {"count": 1, "device": "low"})
    device = fleet.device(2)
    assert (device.efficiency, device.drop_out_per_s) == (0.25, 2.0)
    assert fleet.values("drop_out").tolist() == [0, 1, 2, 0]
    assert fleet.values("memory_bandwidth").tolist() == [1e18] * 4


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("efficiency", 0.0, "1e-06 to 1, in"),
        ("efficiency", 5.0, "1e-06 to 1, in"),
        ("memory_bandwidth", -1.0, r"1 to 1e\+18, in"),
        ("drop_out", float("nan"), r"1.15741e-11 to 1000 or zero, in"),
        ("latency", np.array([0.0, 1e300]), r"1e-09 to 8.64e\+08 or zero, in"),
        ("up", np.zeros(2), r"0.001 to 1e\+15, in"),
        ("up", np.array([1e-300, 1.0]), r"0.001 to 1e\+15, in"),
    ],
)
def test_further_quantities_are_checked(
    name: str, value: float | Values, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(DevicePlugin):
        Config = load("fedsim.fleet.devices", "mid").Config

        def draw(self, num: int, key: Key) -> dict[str, float | Values]:
            return {**super().draw(num, key), name: value}

    monkeypatch.setitem(devices.PLUGINS, "mid", Wrong)
    with pytest.raises(InvariantError, match=f"draws {name} values that are not from {rule}"):
        fleet_of({"count": 2})


def presence(name: str, **settings: object) -> AvailabilityPlugin[Any]:
    plugin = load("fedsim.fleet.availability", name)
    return cast(AvailabilityPlugin[Any], plugin(plugin.Config.model_validate(settings)))


def test_clients_are_always_there_unless_something_else_is_said() -> None:
    fleet = fleet_of({"count": 2}, {"count": 1})
    assert fleet.availability.available(np.array([2, 0]), 1e6).tolist() == [True, True]
    assert fleet.availability.look(2, 0.0)[1] == float("inf")
    with pytest.raises(IndexError, match="no client 3"):
        fleet.availability.available(np.array([3]), 0.0)


def test_each_group_comes_and_goes_in_its_own_way() -> None:
    entries = [GroupConfig(count=2000), GroupConfig(count=3), GroupConfig(count=2000)]
    models = [presence("duty_cycle", on_share=0.5), presence("always"), presence("duty_cycle", on_share=0.5)]
    fleet = build_fleet(entries, ServerConfig(), KEY, availability=models)
    there = fleet.availability.available(np.arange(4003), 7e5)
    assert there[2000:2003].all()
    assert there[:2000].mean() == pytest.approx(0.5, abs=0.04)
    # The third group's phases are its own.
    assert (there[:2000] == there[2003:]).mean() == pytest.approx(0.5, abs=0.04)
    assert fleet.availability.look(4002, 7e5)[0] == there[4002]
    again = build_fleet(entries, ServerConfig(), KEY, availability=models)
    assert np.array_equal(again.availability.available(np.arange(4003), 7e5), there)
    # Devices are the same, whenever they are there.
    plain = build_fleet(entries, ServerConfig(), KEY)
    assert np.array_equal(plain.values("speed"), fleet.values("speed"))


def test_availability_models_that_change_are_known_with_their_times() -> None:
    names = ("always", "duty_cycle", "duty_cycle", "renewal")
    models = [load("fedsim.fleet.availability", name) for name in names]
    plugins = [cast(AvailabilityPlugin[Any], model(model.Config())) for model in models]
    groups = [GroupConfig.model_validate({"count": 2, **SLOW}) for _ in plugins]
    fleet = build_fleet(groups, ServerConfig(), KEY, availability=plugins)
    assert [name for name, _ in fleet.time_scales] == ["duty_cycle", "renewal"]
    # Medians of 2 h and 6 h; means of log-normal times are exp(1/2) times as long.
    assert [s for _, s in fleet.time_scales] == pytest.approx([86400, 8 * 3600 * 1.6487], rel=1e-4)
    assert fleet.without_traces().time_scales == fleet.time_scales
    assert fleet_of({"count": 2, **SLOW}).time_scales == ()


def test_links_that_follow_traces_are_arrays_and_means(tmp_path: Path) -> None:
    files = []
    for rate in (2, 6):
        files.append(str(tmp_path / f"{rate}.csv"))
        Path(files[-1]).write_text(f"at_s,Mbps\n0,{rate}\n1,0\n")
    fleet = fleet_of(
        {"count": 2, **SLOW},
        {"count": 100_000, **OPEN, "up_trace": files, "down_trace": {"file": files[0], "shift": False}},
    )
    assert fleet.is_traced
    assert fleet.trace_of("speed") is None
    up_of, down_of = there(fleet.trace_of("up")), there(fleet.trace_of("down"))
    assert (up_of(1), down_of(0)) == (None, None)
    up, down = fleet.groups[1].link_traces["up"], fleet.groups[1].link_traces["down"]
    assert len(up.capacities) == 2
    assert sorted(np.bincount(up.numbers)) == [50_000, 50_000]
    assert not down.turns.any()
    # Two numbers for each link, and a float32 for the mean where means differ.
    assert nbytes(fleet) == 100_000 * (8 + 8 + 4)
    for client in (2, 3, 777):
        shifted = there(up_of(client))
        mean_bps = up.capacities[up.numbers[client - 2]].mean_bps
        assert shifted.bytes_between(0, 2_000_000_000) == pytest.approx(mean_bps * 2 / 8)
        assert fleet.device(client).up_bps == fleet.values("up")[client] == mean_bps
    assert set(fleet.values("down")[2:]) == {1e6}
    constant = fleet.without_traces()
    assert not constant.is_traced
    assert constant.trace_of("up") is None
    np.testing.assert_array_equal(constant.values("up"), fleet.values("up"))
    again = (
        fleet_of({"count": 1, **SLOW}, {"count": 100_000, **OPEN, "up_trace": files})
        .groups[1]
        .link_traces["up"]
    )
    # A group's draws depend on its place, not on the groups before it.
    np.testing.assert_array_equal(again.numbers, up.numbers)
    np.testing.assert_array_equal(again.turns, up.turns)


SHARES_KEY = Key.root(0)
MANY = [{f"{part}.{number}": 1.0 for number in range(64)} for part in range(5)]
"""Shares of 320 architectures, more than a byte counts."""


def test_shares_hold_exactly_and_who_gets_which_is_drawn() -> None:
    labels, places = assign([{"small": 3.0, "large": 1.0}], np.zeros(40, np.int64), SHARES_KEY)
    assert labels == ("small", "large")
    assert np.bincount(places).tolist() == [30, 10]
    _, others = assign([{"small": 3.0, "large": 1.0}], np.zeros(40, np.int64), Key.root(1))
    assert (places != others).any()


def test_any_number_of_architectures() -> None:
    assert GroupConfig.model_validate({"count": 2, "models_by_size": MANY}).shares == tuple(MANY)
    labels, places = assign(MANY, np.zeros(1280, np.int64), SHARES_KEY)
    assert len(labels) == 320
    assert sorted(set(places.tolist())) == list(range(320))


def test_the_more_data_the_larger_the_architecture() -> None:
    # Nine clients in three parts of three; the sizes fall, so the last three are the smallest.
    sizes = np.arange(9, 0, -1)
    labels, places = assign([{"a": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 1.0}], sizes, SHARES_KEY)
    chosen = np.array(labels)[places]
    assert chosen[:3].tolist() == ["b"] * 3
    assert sorted(chosen[3:6]) == ["a", "b", "b"]
    assert chosen[6:].tolist() == ["a"] * 3


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 4), st.integers(0, 9))
def test_everybody_gets_one_and_each_part_its_shares(sizes: list[int], num_parts: int, seed: int) -> None:
    parts = [{"x": 1.0, "y": 1.0 + number} for number in range(num_parts)]
    labels, places = assign(parts, np.array(sizes), Key.root(seed))
    assert labels == ("x", "y")
    assert len(places) == len(sizes)
    cut = np.array_split(np.argsort(np.array(sizes), kind="stable"), num_parts)
    for number, clients in enumerate(cut):
        wanted = len(clients) / (2 + number)
        assert abs(np.count_nonzero(places[clients] == 0) - wanted) < 1


def test_a_fleet_knows_each_clients_architecture() -> None:
    groups = [
        GroupConfig(count=2, model="tiny"),
        GroupConfig(count=4, models_by_size=({"tiny": 1.0}, {"huge": 1.0})),
    ]
    fleet = build_fleet(groups, ServerConfig(), SHARES_KEY, sizes=np.array([1, 1, 8, 2, 9, 3]))
    assert [fleet.model(client) for client in range(6)] == ["tiny", "tiny", "huge", "tiny", "huge", "tiny"]
    assert fleet.groups[1].models == ("tiny", "huge")
    assert [(label, own.tolist()) for label, own in fleet.groups[0].shares()] == [("tiny", [True, True])]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "a", "models": {"a": 1.0}}, "model and models both say which architecture"),
        (
            {"models": {"a": 1.0}, "models_by_size": [{"a": 1.0}]},
            "models and models_by_size both say which architecture",
        ),
        ({"models": {}}, r"models\n  Dictionary should have at least 1 item"),
        ({"models": {"a": 0.0}}, r"models\.a\n  Input should be greater than 0"),
        ({"models_by_size": []}, r"models_by_size\n  Value should have at least 1 item"),
    ],
)
def test_faults_are_told(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GroupConfig.model_validate({"count": 2, **settings})
