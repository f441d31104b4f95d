import json
import subprocess
import sys

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


ANOTHER_QUANTITY = """
import importlib.util, json, sys, tempfile
from pathlib import Path

import fedsim

folder = Path(fedsim.__file__).parent / "fleet"
source = (folder / "device.py").read_text()
field = "    battery_j: Annotated[float, Quantity('battery', Spread('energy'), {'kj': 1e3})] = 0\\n"
doc = "    'Energy. At first.'\\n"
changed = source.replace("    drop_out_per_s:", field + doc + "    drop_out_per_s:")
assert changed != source
own = Path(tempfile.mkdtemp())
(own / "device.py").write_text(changed)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "fedsim.fleet.device":
            return importlib.util.spec_from_file_location(name, own / "device.py")
sys.meta_path.insert(0, Finder())

from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.plugins import load
from fedsim.planning import preview
from fedsim.rng import Key

file = own / "phones.csv"
file.write_text("speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms,battery_kj\\n1,1,1,1,1,0.009\\n")
entries = [{"battery": "5 J"}, {"battery": "2 Wh"}, {"file": str(file)}]
groups = [GroupConfig.model_validate({"count": 1, **entry}) for entry in entries]
fleet = build_fleet(groups, ServerConfig(), Key.root(0))
print(json.dumps({
    "battery_j": fleet.values("battery").tolist(),
    "device": fleet.device(1).battery_j,
    "server": fleet.server.battery_j,
    "default": load("fedsim.fleet.devices", "mid").Config.model_fields["battery"].default,
    "doc": GroupConfig.model_fields["battery"].description,
    "quantiles": preview.fleet(fleet).rows[-2][0],
}))
"""


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


@pytest.mark.slow
def test_a_new_quantity_is_a_new_field_and_nothing_else() -> None:
    # In a process of its own, whose device.py has one field more.
    answer = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", ANOTHER_QUANTITY], capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == {
        "battery_j": [5.0, 7200.0, 9.0],
        "device": 7200.0,
        "server": 0.0,
        "default": "0 J",
        "doc": "Energy, instead of the class's.",
        "quantiles": "battery",
    }


def test_a_class_names_quantities_and_gives_those_without_a_default() -> None:
    with pytest.raises(TypeError, match="no quantity is called 'sped': there are speed, memory, up"):
        quantities(sped="1 GFLOP/s")
    with pytest.raises(ValidationError) as caught:
        quantities(speed="1 GFLOP/s", up="1 bit/s", down="1 bit/s", latency=20)()
    assert [error["loc"] for error in caught.value.errors()] == [("memory",), ("latency",)]


def test_the_default_server_is_fast_and_near() -> None:
    server = build_fleet([GroupConfig(count=1)], ServerConfig(), Key.root(0)).server
    assert server == Device(10e12, 256e9, 10e9, 10e9, 0.0, 0.0, 0.0, "server")
