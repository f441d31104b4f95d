"""Devices from the rows of a CSV file, given as ``file`` of the group.

The columns, their units and their meaning are in ``fedsim/fleet/device_table.py``.
"""

from __future__ import annotations

from typing import cast

from fedsim.fleet.device_table import Table, TableConfig, TableDevices, read_table
from fedsim.input_paths import InputPath


class FileConfig(TableConfig):
    """A file, and quantities that replace the file's."""

    file: InputPath
    """CSV file. It is the group's key ``file``."""


class FileDevices(TableDevices):
    """The class ``table``."""

    Config = FileConfig

    def table(self) -> Table:
        """Return the file's rows."""
        return read_table(cast(FileConfig, self.config).file)


PLUGIN = FileDevices
