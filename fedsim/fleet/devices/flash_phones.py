"""Phones on Wi-Fi as in FLASH: low, mid and high at 53, 46 and 0.4 %, with its users' links.

A file of nine rows, ``fedsim/fleet/csv/flash_phones.csv``, which gives its sources and what is a default
without a source; how many devices of each row there are is drawn.
"""

from fedsim.fleet.device_table import TableDevices


class FlashPhones(TableDevices):
    """The class ``flash_phones``."""


PLUGIN = FlashPhones
