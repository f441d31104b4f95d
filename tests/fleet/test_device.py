import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.fleet import DevicePlugin, GroupConfig, ServerConfig, build_fleet, devices
from fedsim.fleet.device import QUANTITIES, Device
from fedsim.fleet.device_class import quantities
from fedsim.rng import Key

CLASSES = [
    "benchmark_phones",
    "cellular_phones",
    "edge_gpu",
    "flash_phones",
    "high",
    "laptop",
    "low",
    "mcu",
    "mid",
    "population",
    "server",
    "table",
]


def test_the_folder_holds_the_built_in_classes() -> None:
    assert list(devices.PLUGINS) == CLASSES
    for name, plugin in devices.PLUGINS.items():
        assert issubclass(plugin, DevicePlugin)
        # Every class says where its figures come from, or that they have no source.
        assert "without a source" in " ".join((plugin.__doc__ or "").split()) or name == "table"


@pytest.mark.parametrize(
    ("name", "speed_flops", "memory_bytes", "sigma"),
    [
        ("mcu", 0.01e9, 0.5e6, 0.3),
        ("low", 0.6e9, 2e9, 0.3),
        ("mid", 1.8e9, 4e9, 0.3),
        ("high", 6e9, 8e9, 0.3),
        ("laptop", 50e9, 16e9, 0.3),
        ("edge_gpu", 500e9, 16e9, 0.3),
        ("server", 10e12, 256e9, 0),
    ],
)
def test_a_class_has_the_speed_and_memory_of_the_table(
    name: str, speed_flops: float, memory_bytes: float, sigma: float
) -> None:
    fleet = build_fleet([GroupConfig(count=4000, device=name)], ServerConfig(), Key.root(3))
    logs = np.log(fleet.values("speed") / speed_flops)
    assert np.median(logs) == pytest.approx(0, abs=0.02)
    assert logs.std() == pytest.approx(sigma, rel=0.05)
    assert set(fleet.values("memory")) == {memory_bytes}


def test_phones_on_wifi_have_the_rates_that_were_measured() -> None:
    fleet = build_fleet([GroupConfig(count=4000, device="mid")], ServerConfig(), Key.root(3))
    assert np.median(fleet.values("down")) == pytest.approx(4.3e6 * 8, rel=0.04)
    assert np.median(fleet.values("up")) == pytest.approx(3.3e6 * 8, rel=0.04)


def test_a_population_is_spread_wider_than_any_class() -> None:
    fleet = build_fleet([GroupConfig(count=20_000, device="population")], ServerConfig(), Key.root(3))
    logs = np.log(fleet.values("speed") / 1.8e9)
    assert np.median(logs) == pytest.approx(0, abs=0.03)
    assert logs.std() == pytest.approx(0.9, rel=0.03)
    sizes, counts = np.unique(fleet.values("memory"), return_counts=True)
    assert sizes.tolist() == [2e9, 4e9, 8e9]
    assert counts / 20_000 == pytest.approx([0.533, 0.463, 0.004], abs=0.01)
    assert np.median(fleet.values("down")) == pytest.approx(4.3e6 * 8, rel=0.02)
    assert np.log(fleet.values("up")).std() == pytest.approx(0.68, rel=0.03)


def test_quantities_are_the_fields_of_a_device_and_each_names_its_base_unit() -> None:
    named = {quantity.attribute: name for name, quantity in QUANTITIES.items()}
    assert list(named) == [field for field in Device._fields if field not in ("label", "load")]
    units = {
        "compute": "_flops",
        "data size": "_bytes",
        "bit rate": "_bps",
        "data rate": "_bytes_per_s",
        "time": "_s",
        "hazard": "_per_s",
        None: "",
    }
    for attribute, name in named.items():
        assert attribute == name + units[QUANTITIES[name].spread.dimension]


def test_a_quantity_s_default_is_that_of_a_device() -> None:
    plain = Device(1e9, 1e9, 1e6, 1e6, 0.0)
    needed = [name for name, quantity in QUANTITIES.items() if quantity.default is None]
    assert needed == ["speed", "memory", "up", "down", "latency"]
    for quantity in QUANTITIES.values():
        assert quantity.default is None or quantity.default == getattr(plain, quantity.attribute)
        assert (quantity.written_default is ...) is (quantity.default is None)
    assert QUANTITIES["memory_bandwidth"].written_default == "1 EB/s"


def test_a_class_names_quantities_and_gives_those_without_a_default() -> None:
    with pytest.raises(TypeError, match="no quantity is called 'sped': there are speed, memory, up"):
        quantities(sped="1 GFLOP/s")
    with pytest.raises(ValidationError) as caught:
        quantities(speed="1 GFLOP/s", up="1 bit/s", down="1 bit/s", latency=20)()
    assert [error["loc"] for error in caught.value.errors()] == [("memory",), ("latency",)]


def test_the_default_server_is_fast_and_near() -> None:
    server = build_fleet([GroupConfig(count=1)], ServerConfig(), Key.root(0)).server
    assert server == Device(10e12, 256e9, 10e9, 10e9, 0.0, 0.0, 0.0, "server")
