"""An edge computer with a GPU on a wired network: about 500 GFLOP/s, 16 GB.

Every figure is a default without a source.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed
from fedsim.fleet.quantity import fixed, lognormal


class EdgeGpuConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = lognormal("500 GFLOP/s", 0.3)
    memory: Memory = fixed("16 GB")
    up: Rate = fixed("1 Gbit/s")
    down: Rate = fixed("1 Gbit/s")
    latency: Delay = fixed("5 ms")


class EdgeGpu(DevicePlugin):
    """The class ``edge_gpu``."""

    Config = EdgeGpuConfig


PLUGIN = EdgeGpu
