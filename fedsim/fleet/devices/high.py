"""A high-end phone on Wi-Fi: about 6 GFLOP/s, 8 GB.

Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 179 +- 2.3 ms a batch. Spread
within the class: default without a source. Links: FLASH's Wi-Fi profiles of 19 users, median 4.3 MB/s down
and 3.3 MB/s up, spread between users 0.47 and 0.68. Latency: default without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import lognormal


class High(DevicePlugin):
    """The class ``high``."""

    Config = quantities(
        speed=lognormal("6 GFLOP/s", 0.3),
        memory="8 GB",
        up=lognormal("3.3 MB/s", 0.68),
        down=lognormal("4.3 MB/s", 0.47),
        latency="20 ms",
        variation=0.013,
    )


PLUGIN = High
