"""A laptop on a home connection: about 50 GFLOP/s, 16 GB.

Every figure is a default without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import lognormal


class Laptop(DevicePlugin):
    """The class ``laptop``."""

    Config = quantities(
        speed=lognormal("50 GFLOP/s", 0.3), memory="16 GB", up="40 Mbit/s", down="100 Mbit/s", latency="20 ms"
    )


PLUGIN = Laptop
