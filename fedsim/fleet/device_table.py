"""Devices from the rows of a CSV file: what belongs together stays together.

A column's name says its quantity and its unit; :data:`COLUMNS` has all of them. One column is needed for each
quantity without a default (speed, memory, up, down and latency), unless the scenario's entry gives it. Two
columns more:

- ``share`` makes the file a population: devices are drawn from the rows in proportion to it, any number of
  them. Without it, each row is one device, in order, and there are as many devices as rows.
- ``label`` names the row's device in tables.

So do those of a row's load (:mod:`fedsim.fleet.load`): ``load`` names the distribution, ``load_mean`` and
``load_sigma`` its parameters. An empty cell stands for no load, or for a parameter that is left out.

A cell may say what a scenario may: :data:`fedsim.fleet.power.ALL_QUANTITIES` has the range of each quantity.

Lines that begin with ``#`` are comments, and say best where the figures come from::

    # measured in March, in the laboratory
    label,share,speed_gflops,memory_gb,up_mbps,down_mbps,latency_ms
    old phone,3,0.6,2,10,40,50
    new phone,1,6,8,26,34,20
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedsim.config import Config
from fedsim.csv_rows import Row, below_header, read_text, rows_of
from fedsim.errors import DataError
from fedsim.fleet.device_class import LOAD, DevicePlugin, with_overrides
from fedsim.fleet.distributions import Values
from fedsim.fleet.load import LOADS, MEANS, SIGMAS, Load
from fedsim.fleet.power import ALL_QUANTITIES
from fedsim.input_paths import located
from fedsim.params import Array
from fedsim.plugins import ConfigClass
from fedsim.quoting import nearest, quoted
from fedsim.ranges import MAX_WEIGHT
from fedsim.rng import Key
from fedsim.units import Range

COLUMNS: dict[str, tuple[str, float]] = {
    column: (name, factor)
    for name, quantity in ALL_QUANTITIES.items()
    for column, factor in quantity.columns.items()
}
"""For each column that gives a quantity: the quantity, and its unit in base units.

``mbps`` is a million bits, not bytes, a second, and ``mb`` is a million bytes.
"""

LOAD_NUMBERS = {"load_mean": ("mean", True, MEANS), "load_sigma": ("sigma", False, SIGMAS)}
"""For each column that gives a parameter of a load: the parameter, whether zero is refused, and its range."""

OTHERS = ("share", "label", LOAD, *LOAD_NUMBERS)
"""The columns that give none."""

_SHARES = Range(1 / MAX_WEIGHT, MAX_WEIGHT)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a file, at least one.

    Attributes:
        columns: For each quantity that the file gives, its values in base units, ``[n]``.
        shares: How often each row is drawn, ``[n]``, adding up to 1; None if each row is one device.
    """

    source: str
    columns: Mapping[str, Values]
    shares: Values | None
    labels: tuple[str, ...]
    loads: tuple[Load | None, ...]
    num_rows: int

    def require(self, given: Sequence[str], num: int | None = None) -> None:
        """Refuse a use for which the file lacks something."""
        for name, quantity in ALL_QUANTITIES.items():
            if quantity.default is None and name not in self.columns and name not in given:
                names = ", ".join(quantity.columns)
                raise DataError(
                    f"{self.source}: no column gives the {name}: add one of {names}, or give "
                    f"{name!r} for all devices in the entry"
                )
        if num is not None and self.shares is None and num != self.num_rows:
            raise DataError(
                f"{self.source}: {num} devices are wanted, and each of its {self.num_rows} rows is one: "
                f"write count = {self.num_rows}, or add a column 'share' to draw any number from the rows"
            )


def read_table(path: str) -> Table:
    """Return what a file says."""
    path = str(located(path))
    return parse_table(read_text(path), path)


@lru_cache(maxsize=16)
def parse_table(text: str, source: str) -> Table:
    """Return what the text of a file says; ``source`` is its name in messages."""
    header, *_ = lines = rows_of(text, source)
    rows = below_header(lines, "no row follows the header: give one device at least")
    columns: dict[str, Values] = {}
    shares: Values | None = None
    labels: tuple[str, ...] = ()
    given: dict[str, str] = {}
    for place, name in enumerate(header.cells):
        if name not in (*COLUMNS, *OTHERS):
            raise header.fault(f"there is no such column: {nearest(name, [*COLUMNS, *OTHERS])}", name)
        quantity, factor = COLUMNS.get(name, (name, 1))
        if quantity in given:
            problem = f"column {quoted(given[quantity])} gives the {quantity} already: leave one of both out"
            raise header.fault(problem, name)
        given[quantity] = name
        if name == "label":
            labels = tuple(row.cells[place] for row in rows)
            if "" in labels:
                problem = "the cell is empty: name the device, or leave the column out"
                raise rows[labels.index("")].fault(problem, name)
        elif name == LOAD or name in LOAD_NUMBERS:
            pass  # read together, below
        elif name == "share":
            shares = np.array([row.number(place, name, limits=_SHARES) for row in rows])
            if not shares.any():
                raise header.fault("all shares are zero: give one above zero", name)
            shares = shares / shares.sum()
        else:
            spread = ALL_QUANTITIES[quantity].spread
            columns[quantity] = np.array(
                [
                    row.number(place, name, positive=spread.positive, limits=spread.limits, factor=factor)
                    for row in rows
                ]
            )
            columns[quantity].flags.writeable = False
    of_load = {name: place for place, name in enumerate(header.cells) if name.partition("_")[0] == LOAD}
    if of_load and LOAD not in of_load:
        raise header.fault(f"no column {LOAD!r} names the distribution: add it", next(iter(of_load)))
    loads = tuple(_load(row, of_load) for row in rows) if of_load else ()
    return Table(source, columns, shares, labels, loads, len(rows))


def _load(row: Row, places: Mapping[str, int]) -> Load | None:
    """Return the law of a row, given the places of the columns that tell of it."""
    kind = row.cells[places[LOAD]]
    there = [name for name in LOAD_NUMBERS if name in places and row.cells[places[name]]]
    keys = LOADS[kind].model_fields if kind in LOADS else {}
    if kind and not keys:
        raise row.fault(f"no distribution is called {quoted(kind)}; {nearest(kind, list(LOADS))}", LOAD)
    given: dict[str, Any] = {}
    for name in there:
        key, positive, limits = LOAD_NUMBERS[name]
        if key not in keys:
            raise row.fault(f"{quoted(kind) if kind else 'no load'} has no {key}: leave the cell empty", name)
        given[key] = row.number(places[name], name, positive=positive, limits=limits)
    if missing := [key for key in keys if keys[key].is_required() and key not in given]:
        raise row.fault(f"{quoted(kind)} needs a {missing[0]}: give it in column 'load_{missing[0]}'", LOAD)
    return LOADS[kind](**given) if kind else None


@with_overrides
class TableConfig(Config):
    """Quantities that replace the file's, for every device; given as in any entry."""


class TableDevices(DevicePlugin, ABC):
    """Base of the device classes that are a file."""

    Config: ConfigClass = TableConfig

    @abstractmethod
    def table(self) -> Table:
        """Return the file's rows."""

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        """Return the quantities of ``num`` rows, save those that the entry replaces."""
        table = self.table()
        laws = {name: law for name in ALL_QUANTITIES if (law := getattr(self.config, name)) is not None}
        table.require(list(laws), num)
        rows = self._rows(table, num, key)
        drawn: dict[str, float | Values] = {}
        for name, quantity in ALL_QUANTITIES.items():
            if name in laws:
                drawn[name] = quantity.spread.draw(laws[name], num, key.child(name))
            elif name in table.columns:
                drawn[name] = table.columns[name][rows]
            elif quantity.default is not None:
                drawn[name] = quantity.default
        return drawn

    def labels(self, num: int, key: Key) -> tuple[Sequence[str], Array] | None:
        """Return the rows' labels, and the row of each device."""
        table = self.table()
        return (table.labels, self._rows(table, num, key).astype(np.int32)) if table.labels else None

    def loads(self, num: int, key: Key) -> tuple[Sequence[Load | None], Array]:
        """Return the rows' laws of load, and the row of each device; the entry's law, if it gives one."""
        table = self.table()
        if not table.loads or getattr(self.config, LOAD) is not None:
            return super().loads(num, key)
        return table.loads, self._rows(table, num, key).astype(np.int32)

    @staticmethod
    def _rows(table: Table, num: int, key: Key) -> Array:
        if table.shares is None:
            return np.arange(num)
        return key.child("row").numpy().choice(table.num_rows, num, p=table.shares)
