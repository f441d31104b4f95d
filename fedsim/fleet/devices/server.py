"""A server in a data centre: 10 TFLOP/s, 256 GB, 10 Gbit/s in both directions.

Every figure is a default without a source. Its latency is zero, so that a client's latency is that of the
whole path between both.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities


class Server(DevicePlugin):
    """The class ``server``."""

    Config = quantities(speed="10 TFLOP/s", memory="256 GB", up="10 Gbit/s", down="10 Gbit/s", latency="0 s")


PLUGIN = Server
