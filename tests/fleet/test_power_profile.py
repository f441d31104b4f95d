from pathlib import Path

import pytest

from fedsim.errors import DataError
from fedsim.fleet.devices import High
from fedsim.fleet.distributions import Fixed
from fedsim.fleet.power_profile import device_class_source, read_power_profile

PROFILE = """<?xml version="1.0" encoding="utf-8"?>
<device name="Android">
  <item name="wifi.active">100</item>
  <item name="wifi.controller.rx">250</item>
  <item name="wifi.controller.tx">300</item>
  <item name="wifi.controller.voltage">4000</item>
  <array name="cpu.clusters.cores"><value>4</value><value>3</value><value>1</value></array>
  <item name="cpu.active">20</item>
  <item name="cpu.idle">5</item>
  <item name="cpu.cluster_power.cluster1">10</item>
  <array name="cpu.core_power.cluster0"><value>5</value><value>4000</value></array>
  <array name="cpu.core_power.cluster1"><value>20</value><value>200</value></array>
  <array name="cpu.core_power.cluster2"><value>30</value><value>370</value></array>
</device>
"""


def read(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "power_profile.xml"
    file.write_text(text)
    return read_power_profile(file)


def test_currents_become_powers(tmp_path: Path) -> None:
    # (20 + 10 + 3 * 200 + 370) mA at 3.8 V; (100 + 250) and (100 + 300) mA at 4 V; 5 mA at 3.8 V.
    assert read(tmp_path, PROFILE) == {
        "compute_power": "3.8 W",
        "receive_power": "1.4 W",
        "transmit_power": "1.6 W",
        "idle_power": "19 mW",
    }


def test_the_only_cluster_is_taken_and_a_voltage_may_be_missing(tmp_path: Path) -> None:
    one = PROFILE.replace("<value>4</value><value>3</value><value>1</value>", "<value>2</value>")
    one = one.replace("4000</value>", "490</value>").replace(
        '<item name="wifi.controller.voltage">4000</item>', ""
    )
    powers = read(tmp_path, one)
    assert powers["compute_power"] == "3.8 W"  # (20 + 2 * 490) mA
    assert powers["receive_power"] == "1.33 W"


def test_a_class_is_made_that_is_like_another_but_for_its_powers() -> None:
    source = device_class_source({"compute_power": "2.5 W"}, High, "Phone", "power_profile.xml")
    names: dict[str, type[High]] = {}
    exec(source, names)  # noqa: S102 - the module that users write to a file
    phone = names["Phone"]
    config = phone.Config()
    assert dict(config)["compute_power"] == Fixed(2.5)
    assert {**dict(config), "compute_power": None} == {**dict(High.Config()), "compute_power": None}
    assert "power_profile.xml" in str(phone.__doc__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]", "is no XML"),
        ("<resources/>", "its root is <resources> and not <device>"),
        ("<device/>", "says nothing of the compute_power"),
        (PROFILE.replace("wifi.active", "x").replace('tx">300', 'tx">0'), "nothing of the transmit_power"),
        (PROFILE.replace(">20</item>", ">much</item>"), "cpu.active is 'much'"),
        (PROFILE.replace(">20</item>", ">-20</item>"), "cpu.active is '-20'"),
        (PROFILE.replace(">20</item>", "/>"), "cpu.active is None"),
    ],
)
def test_faults_teach(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_power_profile(tmp_path / "gone.xml")
