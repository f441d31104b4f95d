"""Phones on Wi-Fi whose speeds are spread as in the AI-Benchmark list: 0.25 to 4.3 GFLOP/s.

A file of nine rows, ``fedsim/fleet/csv/benchmark_phones.csv``, which gives its sources and what is a default
without a source; how many devices of each row there are is drawn.
"""

from fedsim.fleet.device_table import TableDevices


class BenchmarkPhones(TableDevices):
    """The class ``benchmark_phones``."""


PLUGIN = BenchmarkPhones
