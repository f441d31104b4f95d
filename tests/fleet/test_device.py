import ast
import inspect
import sys

import numpy as np
import pytest

from fedsim.fleet import DevicePlugin, GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.device import (
    POSITIVE,
    QUANTITIES,
    Device,
    DeviceConfig,
)
from fedsim.plugins import available
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
    found = available("fedsim.fleet.devices")
    assert [entry.name for entry in found] == CLASSES
    for entry in found:
        assert issubclass(entry.plugin, DevicePlugin)
        # Every file says where its figures come from, or that they have no source.
        text = ast.get_docstring(ast.parse(inspect.getsource(sys.modules[entry.plugin.__module__])))
        assert text is not None
        assert "without a source" in text or entry.name == "table"


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


def test_quantities_are_the_fields_of_the_config_and_of_a_device() -> None:
    assert list(QUANTITIES) == list(DeviceConfig.model_fields)
    assert set(QUANTITIES) >= POSITIVE
    suffixes = ("_flops", "_bytes", "_bps", "_bytes_per_s", "_per_s", "_s")
    names = []
    for name in Device.__dataclass_fields__:
        ending = next((suffix for suffix in suffixes if name.endswith(suffix)), "")
        names.append(name.removesuffix(ending))
    assert [name for name in names if name != "label"] == list(QUANTITIES)


def test_the_default_server_is_fast_and_near() -> None:
    server = build_fleet([GroupConfig(count=1)], ServerConfig(), Key.root(0)).server
    assert server == Device(10e12, 256e9, 10e9, 10e9, 0.0, 0.0, 0.0, "server")
