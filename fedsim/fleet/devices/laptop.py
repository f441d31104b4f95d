"""A laptop on a home connection: about 50 GFLOP/s, 16 GB.

Every figure is a default without a source.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed
from fedsim.fleet.quantity import fixed, lognormal


class LaptopConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = lognormal("50 GFLOP/s", 0.3)
    memory: Memory = fixed("16 GB")
    up: Rate = fixed("40 Mbit/s")
    down: Rate = fixed("100 Mbit/s")
    latency: Delay = fixed("20 ms")


class Laptop(DevicePlugin):
    """The class ``laptop``."""

    Config = LaptopConfig


PLUGIN = Laptop
