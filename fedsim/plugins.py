"""Finding plugins: a built-in one by its name, a private one by its dotted path.

A plugin is a class that derives from the base of its kind (an algorithm, a data set, ...), carries its
settings as ``Config`` and is offered by its module, as :mod:`fedsim.plugin_listing` describes. Families are
given as text: this module imports nothing from above.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_args

from fedsim.config import Config
from fedsim.errors import UnknownPluginError
from fedsim.plugin_listing import PluginInfo as PluginInfo
from fedsim.plugin_listing import available as available
from fedsim.quoting import MAX_SHOWN, nearest, quoted, shortened

C = TypeVar("C", bound=Config, covariant=True)
ConfigClass: TypeAlias = type[Config]

DISTRIBUTION = "fedsim-des"
"""What pip calls fedsim. On PyPI, "fedsim" is another project."""

_PACKAGE = Path(__file__).parent


class _TypeArgument:
    """The settings class that a plugin's base has as its type argument, as in ``Algorithm[MyConfig]``."""

    def __get__(self, plugin: Plugin[C] | None, owner: type[Plugin[C]]) -> type[C]:
        bases = [base for cls in owner.__mro__ for base in vars(cls).get("__orig_bases__", ())]
        arguments = [kind for base in bases for kind in get_args(base)]
        classes = [getattr(kind, "__bound__", kind) for kind in arguments]
        return cast(
            type[C], next(kind for kind in classes if isinstance(kind, type) and issubclass(kind, Config))
        )


class Plugin(Generic[C]):
    """Base of all plugins: made from its settings, and without other state."""

    Config = _TypeArgument()

    def __init__(self, config: C) -> None:
        self.config = config

    @classmethod
    def params(cls) -> ConfigClass:
        """Return the class of what a scenario may set by ``params``: of its settings, unless it says else."""
        return cls.Config


def load(family: str, name: str) -> type[Plugin[Any]]:
    """Return the plugin called ``name``.

    That is one of the family's own, or a dotted path: of a module, such as ``my_lab.fedfast``, or of a class
    in one, such as ``my_lab.methods.FedFast``.
    """
    if "." in name:
        return _load_private(family, name)
    for info in available(family):
        if info.name == name:
            return info.plugin
    raise UnknownPluginError(_no_such(family, name))


def _load_private(family: str, path: str) -> type[Plugin[Any]]:
    try:
        target = at(path)
    except ImportError as error:
        raise UnknownPluginError(
            f"{quoted(path)} cannot be imported: {shortened(error, MAX_SHOWN)}", is_there=True
        ) from error
    plugin = getattr(target, "PLUGIN", None) if isinstance(target, ModuleType) else target
    if isinstance(plugin, type) and issubclass(plugin, Plugin):
        return plugin
    if isinstance(target, ModuleType):
        problem = f"module {quoted(path)} offers no plugin: end it with PLUGIN = the class"
        raise UnknownPluginError(problem, is_there=True)
    base = f"{family}.base" if hasattr(importlib.import_module(family), "__path__") else family
    note = "" if target is None else f" (it is not derived from the base class in {base})"
    raise UnknownPluginError(_no_such(family, path, note))


def at(path: str) -> Any:
    """Return what a dotted path leads to, such as a class in a module; None where it leads nowhere."""
    words = path.split(".")
    if not all(word.isidentifier() for word in words):
        return None
    for end in range(len(words), 0, -1):
        name = ".".join(words[:end])
        try:
            target: Any = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            continue
        for word in words[end:]:
            target = getattr(target, word, None)
        return target
    return None


def is_installed(package: str) -> bool:
    """Whether a package can be imported; a folder that is called like it is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def install_command(extra: str) -> str:
    """Return the command that installs an extra of fedsim into this environment."""
    if (_PACKAGE / "examples").is_dir():  # only a wheel has this folder
        return f"pip install {shlex.quote(f'{DISTRIBUTION}[{extra}]')}"
    return f"pip install -e {shlex.quote(f'{_PACKAGE.parent}[{extra}]')}"


def name_of(plugin: type[Plugin[Any]] | Plugin[Any]) -> str:
    """Return the name that a scenario would use: a built-in plugin's own, or the path of a private one."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    path, module = cls.__module__, sys.modules.get(cls.__module__)
    if path.startswith("fedsim."):
        names: dict[Any, str] = {offered: name for name, offered in getattr(module, "PLUGINS", {}).items()}
        return names.get(cls, path.rpartition(".")[2])
    return path if getattr(module, "PLUGIN", None) is cls else f"{path}.{cls.__qualname__}"


def path_of(cls: type[Any]) -> str:
    """Return the name by which a scenario finds a class."""
    module = sys.modules.get(cls.__module__)
    is_offered = getattr(module, "PLUGIN", None) is cls or cls in getattr(module, "PLUGINS", {}).values()
    if is_offered and "." in cls.__module__:  # a name without a dot would be one of fedsim's own
        return name_of(cls)
    if getattr(module, cls.__qualname__, None) is not cls:
        raise UnknownPluginError(
            f"no path leads to {cls.__qualname__}: define the class at the top of a module or of a notebook"
        )
    return f"{cls.__module__}.{cls.__qualname__}"


def _no_such(family: str, name: str, note: str = "") -> str:
    kind = family.rpartition(".")[2].removesuffix("s")
    names = [info.name for info in available(family)]
    return f"no {kind} is called {quoted(name)}{note}; {nearest(name, names)}"
