"""A microcontroller: about 0.01 GFLOP/s and half a megabyte of memory.

Speed: MLPerf Tiny's keyword spotting runs 13.3 inferences a second on an L4R5ZI board, which puts training
in the class of 0.01 GFLOP/s. Links and latency (a constrained radio): defaults without a source.
"""

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.distributions import lognormal


class Mcu(DevicePlugin):
    """The class ``mcu``."""

    Config = quantities(
        speed=lognormal("0.01 GFLOP/s", 0.3),
        memory="0.5 MB",
        up="1 Mbit/s",
        down="1 Mbit/s",
        latency="100 ms",
    )


PLUGIN = Mcu
