"""Device classes from Android's power profiles, ``power_profile.xml``.

Makers of phones state there what current each part draws, in mA. As in Green Federated Learning (Yousefpour
et al., 2023), training runs on all but the first cluster of cores (those are the small ones) at their highest
frequency, Wi-Fi draws its active current and that of receiving or transmitting, and currents without a
voltage of their own are at 3.8 V.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from fedsim.errors import DataError
from fedsim.fleet.device_class import DevicePlugin
from fedsim.quoting import quoted
from fedsim.units import spell

_NOMINAL_V = 3.8
_CORES = "cpu.clusters.cores"

_MODULE = '''"""The powers of a phone, from {source}."""

from fedsim.fleet.device_class import changed
from {module} import {base}


class {name}({base}):
    """{base}, with the powers of {source}."""

    Config = changed(
        {base},
{powers}
    )
'''


def read_power_profile(file: Path) -> dict[str, str]:
    """Return the quantities that a power profile gives, as a scenario spells them.

    Raises:
        DataError: The file cannot be read, or is no power profile, or lacks something.
    """
    try:
        root = ElementTree.fromstring(file.read_bytes())  # noqa: S314 - expat bounds the expansion of entities
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except ElementTree.ParseError as error:
        raise DataError(f"{file} is no XML ({error}): give Android's power_profile.xml") from error
    if root.tag != "device":
        raise DataError(
            f"{file} is no power profile: its root is <{root.tag}> and not <device>; give Android's "
            "power_profile.xml"
        )
    items = {item.get("name", ""): [item.text] for item in root.iter("item")}
    items |= {array.get("name", ""): [value.text for value in array] for array in root.iter("array")}
    profile = _Profile(file, items)
    wifi_v = profile.number("wifi.controller.voltage", _NOMINAL_V * 1000) / 1000
    active_a = profile.number("wifi.active", 0.0) / 1000
    powers_w = {
        "compute_power": profile.compute_a() * _NOMINAL_V,
        "receive_power": (active_a + profile.number("wifi.controller.rx", 0.0) / 1000) * wifi_v,
        "transmit_power": (active_a + profile.number("wifi.controller.tx", 0.0) / 1000) * wifi_v,
        "idle_power": profile.number("cpu.idle", 0.0) / 1000 * _NOMINAL_V,
    }
    for name in ("compute_power", "receive_power", "transmit_power"):
        if not powers_w[name]:
            raise DataError(f"{file} says nothing of the {name}: it is not the profile of a phone")
    return {name: spell(round(power_w, 6), "power") for name, power_w in powers_w.items()}


class _Profile:
    """The numbers of a profile by name."""

    def __init__(self, file: Path, items: Mapping[str, Sequence[str | None]]) -> None:
        self._file, self._items = file, items

    def numbers(self, name: str) -> list[float]:
        """Return the numbers of a name, none if it is not there."""
        return [self._read(name, text) for text in self._items.get(name, ())]

    def number(self, name: str, otherwise: float) -> float:
        """Return the largest number of a name."""
        return max(self.numbers(name), default=otherwise)

    def compute_a(self) -> float:
        """Return the current of training."""
        cores = self.numbers(_CORES)
        large = range(int(len(cores) > 1), len(cores))
        total = self.number("cpu.active", 0.0) + sum(
            self.number(f"cpu.cluster_power.cluster{number}", 0.0)
            + cores[number] * self.number(f"cpu.core_power.cluster{number}", 0.0)
            for number in large
        )
        return total / 1000

    def _read(self, name: str, text: str | None) -> float:
        try:
            value = float(text or "")
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1e6:
            raise DataError(
                f"{self._file}: {name} is {quoted(text)}: write a number of milliamperes, 0 or more"
            )
        return value


def device_class_source(powers: Mapping[str, str], base: type[DevicePlugin], name: str, source: str) -> str:
    """Return the source of a module with a device class: a built-in one with other powers.

    Args:
        powers: Quantities by name, as a scenario spells them.
        base: The class whose other quantities it has.
        name: What it is called.
        source: Where its powers are from.
    """
    lines = "\n".join(f'        {quantity}="{text}",' for quantity, text in powers.items())
    return _MODULE.format(
        source=source, module=base.__module__, base=base.__qualname__, name=name, powers=lines
    )
