"""Settings that choose a plugin: its name, and its own parameters, checked by the plugin's own ``Config``.

So a scenario's faults reach into private plugins too, each under its full path (``algorithm.params.mu``).
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from fedsim.algorithms.base import Algorithm
from fedsim.config import Config
from fedsim.data import DatasetPlugin, PartitionPlugin
from fedsim.engine.executors.base import Executor
from fedsim.errors import UnknownPluginError
from fedsim.fleet import AvailabilityPlugin, DevicePlugin
from fedsim.fleet.entries import DEVICES
from fedsim.models import ModelPlugin
from fedsim.network import NetworkPlugin
from fedsim.plugins import Plugin, available, load
from fedsim.quoting import MOST_SAID, quoted, shortened
from fedsim.runtime.pacing.base import Pacing
from fedsim.runtime.selectors.base import Selector


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plugin.

    Attributes:
        word: What a message calls it.
        folder: Where fedsim's own are, dotted.
        base: What a plugin of this kind derives from.
    """

    word: str
    folder: str
    base: type[Plugin[Any]]

    @property
    def names(self) -> list[str]:
        """Names of fedsim's own plugins of this kind, sorted."""
        return [found.name for found in available(self.folder)]

    def find(self, name: str) -> type[Plugin[Any]]:
        """Return the plugin called ``name``.

        Raises:
            PydanticCustomError: There is none; the error's context holds ``problem`` and ``mend``.
        """
        if not all(part.isidentifier() for part in name.split(".")):
            raise self._unknown(f"no {self.word} is called {quoted(name)}", name)
        try:
            plugin = load(self.folder, name)
        except UnknownPluginError as error:
            if error.is_there:
                raise fault("plugin", str(error)) from error
            raise self._unknown(f"no {self.word} is called {quoted(name)}", name) from error
        except Exception as error:
            # A private plugin is anybody's code, and may fail to be imported in any way.
            problem = (
                f"{quoted(name)} cannot be imported: {type(error).__name__}: {shortened(error, MOST_SAID)}"
            )
            raise fault("plugin", problem) from error
        if not issubclass(plugin, self.base):
            raise self._unknown(f"{quoted(name)} is a plugin, but no {self.word}", name)
        return plugin

    def _unknown(self, problem: str, name: str) -> PydanticCustomError:
        near = difflib.get_close_matches(name, self.names, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        mend = f"{guess}there are: {', '.join(self.names)}"
        if "." in name:
            mend += "; a dotted path names a module that Python can import (PYTHONPATH) and that has PLUGIN"
        elif _is_module(name):
            mend += f"; a private plugin is named by a dotted path: put {name}.py in a package, "
            mend += f"lab/{name}.py is 'lab.{name}'"
        return fault("plugin", problem, mend)


def _is_module(name: str) -> bool:
    """Whether Python would find a single file of somebody's own as the module ``name``."""
    if not name.isidentifier() or name in {"__main__", *sys.stdlib_module_names}:
        return False
    spec = find_spec(name)
    return spec is not None and spec.has_location and spec.submodule_search_locations is None


ALGORITHM = Kind("algorithm", "fedsim.algorithms", Algorithm)
AVAILABILITY = Kind("availability model", "fedsim.fleet.availability", AvailabilityPlugin)
DATASET = Kind("data set", "fedsim.data", DatasetPlugin)
DEVICE = Kind("device class", DEVICES, DevicePlugin)
EXECUTOR = Kind("executor", "fedsim.engine.executors", Executor)
MODEL = Kind("model", "fedsim.models", ModelPlugin)
NETWORK = Kind("network model", "fedsim.network", NetworkPlugin)
PACING = Kind("pacing", "fedsim.runtime.pacing", Pacing)
PARTITION = Kind("partition", "fedsim.data.partitions", PartitionPlugin)
SELECTOR = Kind("selector", "fedsim.runtime.selectors", Selector)

Params = SerializeAsAny[Config]
"""The parameters of a plugin, of its own class."""


def left_out() -> Any:
    """Return the default of a table: one without keys, which validation fills with defaults."""
    return Field(default_factory=dict, validate_default=True)


def fault(kind: str, problem: str, mend: str = "") -> PydanticCustomError:
    """Return an error for a validator to raise, which becomes a fault with this problem and mend."""
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "mend": mend})


class Choice(Config):
    """Base of the tables that choose a plugin; the field called ``KEY`` comes before ``params``."""

    KIND: ClassVar[Kind]
    KEY: ClassVar[str] = "name"

    @field_validator("name", "model", mode="after", check_fields=False)
    @classmethod
    def _exists(cls, name: str) -> str:
        cls.KIND.find(name)
        return name

    @field_validator("params", mode="plain", check_fields=False)
    @classmethod
    def _validated(cls, params: Any, info: ValidationInfo) -> Any:
        if cls.KEY not in info.data:
            # The name is a fault already; nothing can be said about the parameters.
            return params
        return cls.KIND.find(info.data[cls.KEY]).Config.model_validate(params)

    @property
    def plugin(self) -> type[Plugin[Any]]:
        """The class of the plugin."""
        return self.KIND.find(getattr(self, self.KEY))

    def make(self) -> Any:
        """Return a new plugin with these parameters."""
        return self.plugin(getattr(self, "params"))  # noqa: B009


def spelt_out(value: Any) -> Any:
    """Return a choice's table, which may be written as its name alone."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping | Choice):
        raise fault(
            "choice", f"{quoted(value)} is neither a name nor a table of name and params", "write a name"
        )
    return value
