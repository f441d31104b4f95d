"""The base of the device classes, and the settings that have a field for each quantity.

A device class is a file in ``fedsim/fleet/devices``: the class's values of the quantities, written as in a
scenario. A scenario's group names a class and may change any quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import Field, create_model

from fedsim.config import Config
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.distributions import Values
from fedsim.params import Array
from fedsim.plugins import Plugin
from fedsim.rng import Key

C = TypeVar("C", bound=Config)


def with_overrides(base: type[C]) -> type[C]:
    """Add a field for each quantity to a class of settings: one that may replace the device class's."""
    fields: dict[str, Any] = {}
    for name, quantity in QUANTITIES.items():
        about = f"{quantity.doc.partition('. ')[0].rstrip('.')}, instead of the class's."
        fields[name] = (quantity.type | None, Field(None, description=about))
    return create_model(
        base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields
    )


def quantities(**values: Any) -> type[Config]:
    """Return the settings of a device class, with a field for each quantity.

    Args:
        **values: The class's own quantities, written as in a scenario; others have their defaults.

    Raises:
        TypeError: No quantity is called so.
    """
    if unknown := sorted(values.keys() - QUANTITIES):
        raise TypeError(f"no quantity is called {unknown[0]!r}: there are {', '.join(QUANTITIES)}")
    fields: dict[str, Any] = {}
    for name, quantity in QUANTITIES.items():
        written = values.get(name, quantity.written_default)
        fields[name] = (quantity.type, Field(written, validate_default=True, description=quantity.doc))
    return create_model("DeviceConfig", __base__=Config, __module__=__name__, **fields)


class DevicePlugin(Plugin[Config]):
    """Base of the device classes; the file's ``PLUGIN`` derives from it and sets ``Config``."""

    Config: ClassVar[type[Config]] = quantities()

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        """Return each of :data:`QUANTITIES`, in base units: one value for all, or an array ``[num]``.

        By default every quantity is drawn by itself, from a generator of its own. A class whose quantities
        belong together, such as a table of measured devices, overrides this.
        """
        return {
            name: quantity.spread.draw(getattr(self.config, name), num, key.child(name))
            for name, quantity in QUANTITIES.items()
        }

    def labels(self, num: int, key: Key) -> tuple[Sequence[str], Array] | None:
        """Return names, and for each device the place of its own among them, ``[num]``.

        By default None: the devices are called as their group is. ``key`` is that of :meth:`draw`.
        """
        return None
