"""A mid-range phone on Wi-Fi: about 1.8 GFLOP/s, 4 GB.

Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 588 +- 24 ms a batch. Spread within
the class: default without a source. Links: FLASH's Wi-Fi profiles of 19 users, median 4.3 MB/s down and 3.3
MB/s up, spread between users 0.47 and 0.68. Latency: default without a source.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed, Variation
from fedsim.fleet.quantity import fixed, lognormal, number


class MidConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = lognormal("1.8 GFLOP/s", 0.3)
    memory: Memory = fixed("4 GB")
    up: Rate = lognormal("3.3 MB/s", 0.68)
    down: Rate = lognormal("4.3 MB/s", 0.47)
    latency: Delay = fixed("20 ms")
    variation: Variation = number(0.04)


class Mid(DevicePlugin):
    """The class ``mid``."""

    Config = MidConfig


PLUGIN = Mid
