"""A server in a data centre: 10 TFLOP/s, 256 GB, 10 Gbit/s in both directions.

Every figure is a default without a source. Its latency is zero, so that a client's latency is that of the
whole path between both.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed
from fedsim.fleet.quantity import fixed


class ServerConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = fixed("10 TFLOP/s")
    memory: Memory = fixed("256 GB")
    up: Rate = fixed("10 Gbit/s")
    down: Rate = fixed("10 Gbit/s")
    latency: Delay = fixed("0 s")


class Server(DevicePlugin):
    """The class ``server``."""

    Config = ServerConfig


PLUGIN = Server
