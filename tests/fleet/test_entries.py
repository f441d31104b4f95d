from pathlib import Path

import pytest
from pydantic import ValidationError

from fedsim.errors import DataError
from fedsim.fleet import GroupConfig, ServerConfig, build_fleet
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.distributions import Fixed
from fedsim.fleet.power import ALL_QUANTITIES, POWERS
from fedsim.plugins import load
from fedsim.rng import Key


def test_a_group_is_its_class_with_its_own_quantities() -> None:
    group = GroupConfig.model_validate({"count": 3, "device": "laptop", "up": "7 Mbit/s", "overhead": "1 s"})
    config = group.profile().config
    laptop = load("fedsim.fleet.devices", "laptop").Config()
    changed = {"up", "overhead"}
    assert dict(config)["up"] == Fixed(7e6)
    assert dict(config)["overhead"] == Fixed(1.0)
    for name in QUANTITIES:
        assert (getattr(config, name) == getattr(laptop, name)) is (name not in changed)


def test_every_quantity_of_a_device_can_be_changed_in_an_entry() -> None:
    for entry, names in ((GroupConfig, ALL_QUANTITIES), (ServerConfig, QUANTITIES)):
        assert set(names) <= set(entry.model_fields)
        assert all(entry.model_fields[name].description for name in entry.model_fields)


def test_an_entry_is_written_out_with_the_quantities_of_its_class() -> None:
    group = GroupConfig.model_validate({"count": 3, "device": "laptop", "up": "7 Mbit/s"}).explicit()
    assert group.name == "laptop"
    for name, law in dict(group.profile().config).items():
        assert dict(group)[name] == (None if name in POWERS else law)
    traced = GroupConfig.model_validate({"count": 3, "up_trace": "link.csv"}).explicit()
    assert (dict(traced)["up"], dict(traced)["variation"]) == (None, Fixed(0.04))
    assert dict(ServerConfig().explicit())["speed"] == Fixed(10e12)


def test_names() -> None:
    assert GroupConfig(count=1).label == "mid"
    assert GroupConfig(count=1, name="ward 3").label == "ward 3"
    assert GroupConfig(count=1).profile().config == load("fedsim.fleet.devices", "mid").Config()
    assert ServerConfig().profile().config == load("fedsim.fleet.devices", "server").Config()


def test_all_faults_of_an_entry_come_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        GroupConfig.model_validate({"count": 0, "speed": 2, "uplink": "1 bit/s"})
    assert [error["loc"] for error in caught.value.errors()] == [("speed",), ("count",), ("uplink",)]


def test_weights_add_up_to_a_finite_sum() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1000000000000"):
        GroupConfig.model_validate({"count": 2, "models": {"small": 1e308, "large": 1e308}})


def test_a_fleet_entry_must_say_how_many() -> None:
    with pytest.raises(ValidationError, match="count"):
        GroupConfig.model_validate({"device": "mid"})


def test_an_entry_is_written_back_as_it_was() -> None:
    entry = {"count": 3, "device": "low", "speed": "2 GFLOP/s", "variation": 0.1}
    group = GroupConfig.model_validate(entry)
    written = group.model_dump(mode="json", exclude_none=True)
    assert written == entry
    assert GroupConfig.model_validate(written) == group


def test_a_trace_takes_the_place_of_a_rate(tmp_path: Path) -> None:
    path = tmp_path / "link.csv"
    path.write_text("at_s,Mbps\n0,4\n1,0\n")
    spellings = (str(path), [str(path)], {"file": str(path)}, {"file": [str(path)], "shift": True})
    groups = [GroupConfig.model_validate({"count": 1, "up_trace": trace}) for trace in spellings]
    assert all(group == groups[0] for group in groups)
    assert list(groups[0].link_traces) == ["up"]
    assert not GroupConfig(count=1).link_traces
    with pytest.raises(ValidationError, match="a trace takes the place of 'up', which is given too"):
        GroupConfig.model_validate({"count": 1, "up": "1 Mbit/s", "up_trace": str(path)})
    # A file of devices need not give what a trace gives.
    devices = tmp_path / "devices.csv"
    devices.write_text("speed_gflops,memory_gb,down_mbps,latency_ms\n1,1,10,20\n")
    with pytest.raises(DataError, match="no column gives the up"):
        build_fleet([GroupConfig(count=1, file=str(devices))], ServerConfig(), Key.root(0))
    group = GroupConfig.model_validate({"count": 1, "file": str(devices), "up_trace": str(path)})
    assert build_fleet([group], ServerConfig(), Key.root(0)).device(0).up_bps == 2e6
