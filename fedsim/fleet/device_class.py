"""The base of the device classes, and the settings that have a field for each quantity.

A device class has its own values of the quantities, written as in a scenario; the built-in ones are in
``fedsim/fleet/devices.py``. A scenario's group names a class and may change any quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import Field, create_model

from fedsim.config import Config, fault
from fedsim.fleet.device import Quantity
from fedsim.fleet.distributions import Distribution, Values
from fedsim.fleet.load import AnyLoad, Load
from fedsim.fleet.power import ALL_QUANTITIES
from fedsim.params import Array
from fedsim.plugins import Plugin
from fedsim.quoting import quoted
from fedsim.rng import Key

C = TypeVar("C", bound=Config)

LOAD = "load"
"""Key of the load, which is a law for each job, and no quantity."""
_LOAD_DOC = "Law of a factor on the time of each job, drawn anew for each job; none if left out."


def with_overrides(base: type[C], quantities: Mapping[str, Quantity] = ALL_QUANTITIES) -> type[C]:
    """Add a field for each quantity to a class of settings: one that may replace the device class's."""
    fields: dict[str, Any] = {}
    for name, quantity in quantities.items():
        about = f"{quantity.doc.partition('. ')[0].rstrip('.')}, instead of the class's."
        fields[name] = (quantity.type | None, Field(None, description=about))
    fields[LOAD] = (AnyLoad | None, Field(None, description=_LOAD_DOC))
    return create_model(
        base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields
    )


def quantities(**values: Any) -> type[Config]:
    """Return the settings of a device class, with a field for each quantity.

    Args:
        **values: The class's own quantities and ``load``, written as in a scenario; others have their
            defaults.

    Raises:
        TypeError: No quantity is called so.
    """
    load = values.pop(LOAD, None)
    if unknown := sorted(values.keys() - ALL_QUANTITIES):
        raise TypeError(f"no quantity is called {unknown[0]!r}: there are {', '.join(ALL_QUANTITIES)}")
    fields: dict[str, Any] = {}
    for name, quantity in ALL_QUANTITIES.items():
        written = values.get(name, quantity.written_default)
        fields[name] = (quantity.type, Field(written, validate_default=True, description=quantity.doc))
    fields[LOAD] = (AnyLoad | None, Field(load, validate_default=True, description=_LOAD_DOC))
    return create_model("DeviceConfig", __base__=Config, __module__=__name__, **fields)


def changed(base: type[DevicePlugin], **values: Any) -> type[Config]:
    """Return the settings of a device class that is like another but for some quantities.

    Args:
        base: The other class.
        **values: The quantities that differ, written as in a scenario.
    """
    fields: dict[str, Any] = {
        name: (ALL_QUANTITIES[name].type, Field(written, validate_default=True))
        for name, written in values.items()
    }
    return create_model("DeviceConfig", __base__=base.Config, __module__=__name__, **fields)


class DevicePlugin(Plugin[Config]):
    """Base of the device classes, which set ``Config``."""

    Config = quantities()

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        """Return each of :data:`ALL_QUANTITIES`, in base units: one value for all, or an array ``[num]``.

        By default every quantity is drawn by itself, from a generator of its own. A class whose quantities
        belong together, such as a table of measured devices, overrides this.
        """
        return {
            name: quantity.spread.draw(getattr(self.config, name), num, key.child(name))
            for name, quantity in ALL_QUANTITIES.items()
        }

    def labels(self, num: int, key: Key) -> tuple[Sequence[str], Array] | None:
        """Return names, and for each device the place of its own among them, ``[num]``.

        By default None: the devices are called as their group is. ``key`` is that of :meth:`draw`.
        """
        return None

    def loads(self, num: int, key: Key) -> tuple[Sequence[Load | None], Array]:
        """Return laws of load, and for each device the place of its own among them, ``[num]``.

        By default all devices have the class's. ``key`` is that of :meth:`draw`.
        """
        return (getattr(self.config, LOAD),), np.broadcast_to(np.uint8(0), num)


def check_class(name: str, plugin: type[DevicePlugin]) -> None:
    """Check that the settings of a device class have a field for the load, and one for each quantity."""
    fields = plugin.Config.model_fields
    for key in (*ALL_QUANTITIES, LOAD):
        if key not in fields:
            raise fault(f"device class {quoted(name)} has no {key} in its Config", _mend(key))
    for key, quantity in ALL_QUANTITIES.items():
        field = fields[key]
        is_own = field.annotation is Distribution and quantity.spread in field.metadata
        if not is_own and field.annotation != quantity.type | None:
            problem = f"device class {quoted(name)} annotates {key} in its Config with a type of its own"
            raise fault(problem, _mend(key))


def check_values(name: str, profile: DevicePlugin) -> None:
    """Check that each quantity of a device class was read, which a default that is not validated is not."""
    draws_itself = type(profile).draw is not DevicePlugin.draw
    for key in ALL_QUANTITIES:
        law = getattr(profile.config, key)
        if not isinstance(law, Distribution) and not (law is None and draws_itself):
            problem = f"device class {quoted(name)} has {key} = {quoted(law)} in its Config"
            raise fault(f"{problem}, which was not read as a quantity", _mend(key))
    if not isinstance(load := getattr(profile.config, LOAD), Load | None):
        problem = f"device class {quoted(name)} has {LOAD} = {quoted(load)} in its Config"
        raise fault(f"{problem}, which was not read as a load", _mend(LOAD))


def _mend(key: str) -> str:
    return (
        f"write Config = quantities({key}=..., ...) in the class, with the value as in a scenario; a Config "
        f"derived from that does not declare {key} again"
    )
