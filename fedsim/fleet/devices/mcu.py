"""A microcontroller: about 0.01 GFLOP/s and half a megabyte of memory.

Speed: MLPerf Tiny's keyword spotting runs 13.3 inferences a second on an L4R5ZI board, which puts training
in the class of 0.01 GFLOP/s. Links and latency (a constrained radio): defaults without a source.
"""

from fedsim.fleet.device import Delay, DeviceConfig, DevicePlugin, Memory, Rate, Speed
from fedsim.fleet.quantity import fixed, lognormal


class McuConfig(DeviceConfig):
    """Quantities of the class."""

    speed: Speed = lognormal("0.01 GFLOP/s", 0.3)
    memory: Memory = fixed("0.5 MB")
    up: Rate = fixed("1 Mbit/s")
    down: Rate = fixed("1 Mbit/s")
    latency: Delay = fixed("100 ms")


class Mcu(DevicePlugin):
    """The class ``mcu``."""

    Config = McuConfig


PLUGIN = Mcu
