"""Finding plugins: a file in a folder is a plugin, and a dotted path names a private one.

A plugin is a class that derives from the base of its kind (an algorithm, a data set, ...), carries its
settings as ``Config`` and is offered by its module as ``PLUGIN``. Its name is the module's name, its summary
the first line of the module's docstring. Folders are given as text: this module imports nothing from above.
What a folder has is read from its sources, since most plugins import torch, which takes seconds.
"""

from __future__ import annotations

import ast
import importlib
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from fedsim.config import Config
from fedsim.errors import UnknownPluginError
from fedsim.quoting import MOST_SAID, nearest, quoted, shortened

C = TypeVar("C", bound=Config)
ConfigClass: TypeAlias = type[Config]

DISTRIBUTION = "fedsim-des"
"""What pip calls fedsim. On PyPI, "fedsim" is another project."""

_PACKAGE = Path(__file__).parent


class Plugin(Generic[C]):
    """Base of all plugins: made from its settings, and without other state.

    Attributes:
        config: The settings, an instance of ``Config``.
    """

    Config: ClassVar[type[Config]] = Config

    def __init__(self, config: C) -> None:
        self.config = config

    @classmethod
    def params(cls) -> ConfigClass:
        """Return the class of what a scenario may set by ``params``: of its settings, unless it says else."""
        return cls.Config


@dataclass(frozen=True, slots=True)
class Found:
    """One plugin of a folder.

    Attributes:
        package: The folder, dotted.
        name: Its name there.
        summary: What it is, in a line.
        kind: To which group of the folder it belongs; empty where there are none.
    """

    package: str
    name: str
    summary: str
    kind: str = ""

    @property
    def plugin(self) -> type[Plugin[Any]]:
        """Its class; asking for it imports its module."""
        return load(self.package, self.name)


def available(package: str) -> list[Found]:
    """Return the plugins of a folder, sorted by name; ``package`` is dotted, as ``fedsim.algorithms``.

    Their modules are not imported: a file is a plugin if it has a line ``PLUGIN = TheClass``.
    """
    root, *below = package.split(".")
    folder = Path(importlib.import_module(root).__path__[0], *below)
    read = {file.stem: _read(file) for file in folder.glob("*.py")}
    return [Found(package, name, *said) for name, said in sorted(read.items()) if said is not None]


@cache  # scenarios are checked often, and sources do not change while they are in use
def _read(file: Path) -> tuple[str, str] | None:
    """Return the first line of a plugin's docstring, and its kind; None for a file that is no plugin.

    The kind is that of a line ``about = About(kind="...", ...)`` in a class.
    """
    module = ast.parse(file.read_text("utf-8"))
    targets = [ast.unparse(line.targets[0]) for line in module.body if isinstance(line, ast.Assign)]
    if "PLUGIN" not in targets:
        return None
    kind = ""
    for line in (line for cls in module.body if isinstance(cls, ast.ClassDef) for line in cls.body):
        match line:
            case ast.Assign(targets=[ast.Name(id="about")], value=ast.Call(keywords=parts)):
                kind = next((ast.literal_eval(part.value) for part in parts if part.arg == "kind"), kind)
    return (ast.get_docstring(module) or "").partition("\n")[0], kind


def load(package: str, name: str) -> type[Plugin[Any]]:
    """Return the plugin called ``name``.

    That is a file of the folder, or a dotted path: of a module, such as ``my_lab.fedfast``, or of a class in
    one, such as ``my_lab.methods.FedFast``.

    Raises:
        UnknownPluginError: No such plugin (the message names the nearest one), a module that cannot be
            imported, or one that offers none.
    """
    is_private = "." in name
    path = name if is_private else f"{package}.{name}"
    if not all(word.isidentifier() for word in path.split(".")):
        raise UnknownPluginError(_no_such(package, name))
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        # Only the plugin itself may be missing; a plugin that lacks one of *its* imports is another mistake.
        if isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}."):
            parent, _, last = path.rpartition(".")
            named = getattr(sys.modules.get(parent), last, None)
            if isinstance(named, type) and issubclass(named, Plugin):
                return named
            note = "" if named is None else f" (it is not derived from the base class in {package}.base)"
            raise UnknownPluginError(_no_such(package, name, note)) from None
        raise UnknownPluginError(
            f"{quoted(name)} cannot be imported: {shortened(error, MOST_SAID)}", is_there=True
        ) from error
    plugin = getattr(module, "PLUGIN", None)
    if isinstance(plugin, type) and issubclass(plugin, Plugin):
        return plugin
    if is_private:
        problem = f"module {quoted(name)} offers no plugin: end it with PLUGIN = the class"
        raise UnknownPluginError(problem, is_there=True)
    raise UnknownPluginError(_no_such(package, name))


def at(path: str) -> Any:
    """Return what a dotted path leads to, such as a class in a module; None where it leads nowhere.

    Raises:
        ImportError: A module on the way lacks an import of its own.
    """
    words = path.split(".")
    if not all(word.isidentifier() for word in words):
        return None
    for end in range(len(words), 0, -1):
        name = ".".join(words[:end])
        try:
            found: Any = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            continue
        for word in words[end:]:
            found = getattr(found, word, None)
        return found
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
    """Return the name that a scenario would use: of its module, or of its class where that is private."""
    module, cls = plugin.__module__, plugin if isinstance(plugin, type) else type(plugin)
    if module.startswith("fedsim."):
        return module.rpartition(".")[2]
    is_offered = getattr(sys.modules.get(module), "PLUGIN", None) is cls
    return module if is_offered else f"{module}.{cls.__qualname__}"


def path_of(cls: type[Any]) -> str:
    """Return the name by which a scenario finds a class.

    Raises:
        UnknownPluginError: No path leads to it.
    """
    module = sys.modules.get(cls.__module__)
    # A name without a dot would be one of fedsim's own.
    if getattr(module, "PLUGIN", None) is cls and "." in cls.__module__:
        return name_of(cls)
    if getattr(module, cls.__qualname__, None) is not cls:
        raise UnknownPluginError(
            f"no path leads to {cls.__qualname__}: define the class at the top of a module or of a notebook"
        )
    return f"{cls.__module__}.{cls.__qualname__}"


def _no_such(package: str, name: str, note: str = "") -> str:
    kind = package.rpartition(".")[2].removesuffix("s")
    names = [found.name for found in available(package)]
    return f"no {kind} is called {quoted(name)}{note}; {nearest(name, names)}"
