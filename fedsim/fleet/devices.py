"""Device classes, with the sources of their figures.

The powers of phones on Wi-Fi are those of one phone's power profile (a Snapdragon 865, as Yousefpour et al.
read such profiles in Green Federated Learning, 2023): 4.5 W for its large cores, 1.32 W and 1.62 W for
receiving and transmitting. That slower phones draw less is a default without a source.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from fedsim.fleet.device_class import DevicePlugin, quantities
from fedsim.fleet.device_table import Table, TableConfig, TableDevices, read_table
from fedsim.fleet.distributions import choice, lognormal
from fedsim.fleet.power import radio_powers
from fedsim.input_paths import InputPath
from fedsim.plugins import name_of

_ON_WIFI = {"receive_power": "1.32 W", "transmit_power": "1.62 W", "idle_power": "0.4 W"}


class BuiltInTable(TableDevices):
    """Base of the device classes that are a file of fedsim, called as the class is."""

    def table(self) -> Table:
        """Return the file's rows."""
        return read_table(str(Path(__file__).parent / "csv" / f"{name_of(self)}.csv"))


class BenchmarkPhones(BuiltInTable):
    """Phones on Wi-Fi whose speeds are spread as in the AI-Benchmark list: 0.25 to 4.3 GFLOP/s.

    A file of nine rows, ``fedsim/fleet/csv/benchmark_phones.csv``, which gives its sources and what is a
    default without a source; how many devices of each row there are is drawn.
    """


class CellularPhones(BuiltInTable):
    """Phones on a 4G network, at rest and on the move: 40 to 220 Mbit/s down.

    A file of six rows, ``fedsim/fleet/csv/cellular_phones.csv``, which gives its sources and what is a
    default without a source; how many devices of each row there are is drawn.
    """


class EdgeGpu(DevicePlugin):
    """An edge computer with a GPU on a wired network: about 500 GFLOP/s, 16 GB.

    Every figure is a default without a source.
    """

    Config = quantities(
        speed=lognormal("500 GFLOP/s", 0.3),
        memory="16 GB",
        up="1 Gbit/s",
        down="1 Gbit/s",
        latency="5 ms",
        compute_power="30 W",
        receive_power="8 W",
        transmit_power="8 W",
        idle_power="7 W",
    )


class FlashPhones(BuiltInTable):
    """Phones on Wi-Fi as in FLASH: low, mid and high at 53, 46 and 0.4 %, with its users' links.

    A file of nine rows, ``fedsim/fleet/csv/flash_phones.csv``, which gives its sources and what is a default
    without a source; how many devices of each row there are is drawn.
    """


class High(DevicePlugin):
    """A high-end phone on Wi-Fi: about 6 GFLOP/s, 8 GB.

    Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 179 +- 2.3 ms a batch. Spread
    within the class: default without a source. Links: FLASH's Wi-Fi profiles of 19 users, median 4.3 MB/s
    down and 3.3 MB/s up, spread between users 0.47 and 0.68. Latency and idle power: defaults without a
    source.
    """

    Config = quantities(
        speed=lognormal("6 GFLOP/s", 0.3),
        memory="8 GB",
        up=lognormal("3.3 MB/s", 0.68),
        down=lognormal("4.3 MB/s", 0.47),
        latency="20 ms",
        variation=0.013,
        compute_power="4.5 W",
        **_ON_WIFI,
    )


class Laptop(DevicePlugin):
    """A laptop on a home connection: about 50 GFLOP/s, 16 GB.

    Every figure is a default without a source.
    """

    Config = quantities(
        speed=lognormal("50 GFLOP/s", 0.3),
        memory="16 GB",
        up="40 Mbit/s",
        down="100 Mbit/s",
        latency="20 ms",
        compute_power="35 W",
        receive_power="9 W",
        transmit_power="9 W",
        idle_power="7 W",
    )


class Low(DevicePlugin):
    """A low-end phone on a mobile network: about 0.6 GFLOP/s, 2 GB.

    Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 1642 +- 100 ms a batch. Spread
    within the class: default without a source. Downlink: the low end of 40 to 220 Mbit/s in the Orange 4G
    traces of 2022. Uplink (a quarter of the downlink), latency and the powers of computing and idling:
    defaults without a source. Radio: that of LTE as measured by Huang et al. (MobiSys 2012).
    """

    Config = quantities(
        speed=lognormal("0.6 GFLOP/s", 0.3),
        memory="2 GB",
        up=lognormal("10 Mbit/s", 0.68),
        down=lognormal("40 Mbit/s", 0.47),
        latency="50 ms",
        variation=0.06,
        compute_power="2 W",
        idle_power="0.4 W",
        **radio_powers("lte"),
    )


class Mcu(DevicePlugin):
    """A microcontroller: about 0.01 GFLOP/s and half a megabyte of memory.

    Speed: MLPerf Tiny's keyword spotting runs 13.3 inferences a second on an L4R5ZI board, which puts
    training in the class of 0.01 GFLOP/s. Links, latency (a constrained radio) and powers: defaults without a
    source.
    """

    Config = quantities(
        speed=lognormal("0.01 GFLOP/s", 0.3),
        memory="0.5 MB",
        up="1 Mbit/s",
        down="1 Mbit/s",
        latency="100 ms",
        compute_power="50 mW",
        receive_power="150 mW",
        transmit_power="300 mW",
        idle_power="5 mW",
    )


class Mid(DevicePlugin):
    """A mid-range phone on Wi-Fi: about 1.8 GFLOP/s, 4 GB.

    Speed and variation: on-phone training in FLASH (WWW 2021), FEMNIST CNN, 588 +- 24 ms a batch. Spread
    within the class: default without a source. Links: FLASH's Wi-Fi profiles of 19 users, median 4.3 MB/s
    down and 3.3 MB/s up, spread between users 0.47 and 0.68. Latency, and the powers of computing and idling:
    defaults without a source.
    """

    Config = quantities(
        speed=lognormal("1.8 GFLOP/s", 0.3),
        memory="4 GB",
        up=lognormal("3.3 MB/s", 0.68),
        down=lognormal("4.3 MB/s", 0.47),
        latency="20 ms",
        variation=0.04,
        compute_power="3 W",
        **_ON_WIFI,
    )


class PhonePopulation(DevicePlugin):
    """A whole population of phones on Wi-Fi, without classes: about 1.8 GFLOP/s, 2 to 8 GB.

    Speed: the median of on-phone training on FLASH's mid-range phone (WWW 2021), FEMNIST CNN, 588 ms a batch;
    the spread of 0.9 is that of the CPU scores of 333 phones in the AI-Benchmark list shipped with FLASH
    (0.93), of which 1 in 20 is 7 times slower than the median. Memory: that of the classes low, mid and high,
    in FLASH's mix of 53, 46 and 0.4 %; that it does not depend on the speed is a default without a source.
    Links: FLASH's Wi-Fi profiles of 19 users, median 4.3 MB/s down and 3.3 MB/s up, spread between users 0.47
    and 0.68. Variation: that of the class mid. Latency: default without a source. Powers: those of the class
    mid.
    """

    Config = quantities(
        speed=lognormal("1.8 GFLOP/s", 0.9),
        memory=choice({"2 GB": 53, "4 GB": 46, "8 GB": 0.4}),
        up=lognormal("3.3 MB/s", 0.68),
        down=lognormal("4.3 MB/s", 0.47),
        latency="20 ms",
        variation=0.04,
        compute_power="3 W",
        **_ON_WIFI,
    )


class Server(DevicePlugin):
    """A server in a data centre: 10 TFLOP/s, 256 GB, 10 Gbit/s in both directions.

    Every figure is a default without a source. Its latency is zero, so that a client's latency is that of the
    whole path between both.
    """

    Config = quantities(speed="10 TFLOP/s", memory="256 GB", up="10 Gbit/s", down="10 Gbit/s", latency="0 s")


class FileConfig(TableConfig):
    """A file, and quantities that replace the file's."""

    file: InputPath
    """CSV file. It is the group's key ``file``."""


class FileDevices(TableDevices):
    """Devices from the rows of a CSV file, given as ``file`` of the group.

    The columns, their units and their meaning are in ``fedsim/fleet/device_table.py``.
    """

    Config = FileConfig

    def table(self) -> Table:
        """Return the file's rows."""
        return read_table(cast(FileConfig, self.config).file)


PLUGINS = {
    "benchmark_phones": BenchmarkPhones,
    "cellular_phones": CellularPhones,
    "edge_gpu": EdgeGpu,
    "flash_phones": FlashPhones,
    "high": High,
    "laptop": Laptop,
    "low": Low,
    "mcu": Mcu,
    "mid": Mid,
    "population": PhonePopulation,
    "server": Server,
    "table": FileDevices,
}
