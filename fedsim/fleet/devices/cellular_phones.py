"""Phones on a 4G network, at rest and on the move: 40 to 220 Mbit/s down.

A file of six rows, ``fedsim/fleet/csv/cellular_phones.csv``, which gives its sources and what is a default
without a source; how many devices of each row there are is drawn.
"""

from fedsim.fleet.device_table import TableDevices


class CellularPhones(TableDevices):
    """The class ``cellular_phones``."""


PLUGIN = CellularPhones
