"""A low-end phone on a mobile network: about 0.6 GFLOP/s, 2 GB.

Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 1642 +- 100 ms a batch. Spread
within the class: default without a source. Downlink: the low end of 40 to 220 Mbit/s in the Orange 4G
traces of 2022. Uplink (a quarter of the downlink) and latency: defaults without a source.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed, Variation
from fedsim.fleet.quantity import fixed, lognormal, number


class LowConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = lognormal("0.6 GFLOP/s", 0.3)
    memory: Memory = fixed("2 GB")
    up: Rate = lognormal("10 Mbit/s", 0.68)
    down: Rate = lognormal("40 Mbit/s", 0.47)
    latency: Delay = fixed("50 ms")
    variation: Variation = number(0.06)


class Low(DevicePlugin):
    """The class ``low``."""

    Config = LowConfig


PLUGIN = Low
