"""A low-end phone on a mobile network: about 0.6 GFLOP/s, 2 GB.

Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 1642 +- 100 ms a batch. Spread
within the class: default without a source. Downlink: the low end of 40 to 220 Mbit/s in the Orange 4G
traces of 2022. Uplink (a quarter of the downlink) and latency: defaults without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import lognormal


class Low(DevicePlugin):
    """The class ``low``."""

    Config = quantities(
        speed=lognormal("0.6 GFLOP/s", 0.3),
        memory="2 GB",
        up=lognormal("10 Mbit/s", 0.68),
        down=lognormal("40 Mbit/s", 0.47),
        latency="50 ms",
        variation=0.06,
    )


PLUGIN = Low
