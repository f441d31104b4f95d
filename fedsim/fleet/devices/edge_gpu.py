"""An edge computer with a GPU on a wired network: about 500 GFLOP/s, 16 GB.

Every figure is a default without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import lognormal


class EdgeGpu(DevicePlugin):
    """The class ``edge_gpu``."""

    Config = quantities(
        speed=lognormal("500 GFLOP/s", 0.3), memory="16 GB", up="1 Gbit/s", down="1 Gbit/s", latency="5 ms"
    )


PLUGIN = EdgeGpu
