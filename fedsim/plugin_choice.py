"""Settings that choose a plugin: its name, and its own parameters, checked by the plugin's own ``Config``.

So a scenario's faults reach into private plugins too, each under its full path (``algorithm.params.mu``).
"""

# The base of a kind of plugin may be abstract: it is only compared with, never made.
# mypy: disable-error-code="type-abstract"

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from fedsim.config import Config, fault
from fedsim.errors import UnknownPluginError
from fedsim.plugins import Plugin, available, load
from fedsim.quoting import MAX_SHOWN, nearest, quoted, shortened

P = TypeVar("P", bound=Plugin[Any])


@dataclass(frozen=True, slots=True)
class Kind(Generic[P]):
    """A kind of plugin."""

    word: str
    folder: str
    base: type[P]
    adopted: Callable[[str], type[P] | None] | None = None
    adopts: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of fedsim's own plugins of this kind, sorted."""
        return [info.name for info in available(self.folder)]

    def find(self, name: str) -> type[P]:
        """Return the plugin called ``name``."""
        try:
            plugin = load(self.folder, name)
        except UnknownPluginError as error:
            if error.is_there:
                raise fault(str(error)) from error
            if self.adopted is not None and "." in name and (adopted := self.adopted(name)) is not None:
                return adopted
            raise self._unknown(f"no {self.word} is called {quoted(name)}", name) from error
        except Exception as error:
            # A private plugin is anybody's code, and may fail to be imported in any way.
            problem = (
                f"{quoted(name)} cannot be imported: {type(error).__name__}: {shortened(error, MAX_SHOWN)}"
            )
            raise fault(problem) from error
        if not issubclass(plugin, self.base):
            raise self._unknown(f"{quoted(name)} is a plugin, but no {self.word}", name)
        return plugin

    def known(self, name: str) -> str:
        """Return the name as it is, for a validator: an error where :meth:`find` raises one."""
        self.find(name)
        return name

    def _unknown(self, problem: str, name: str) -> PydanticCustomError:
        if name in self.elsewhere:
            return fault(problem, self.elsewhere[name])
        mend = nearest(name, self.names)
        if "." in name:
            mend += "; a dotted path names a module that Python can import (PYTHONPATH) and that has PLUGIN"
            mend += f", or {self.adopts}" if self.adopts else ""
        elif _is_module(name):
            mend += f"; a private plugin is named by a dotted path: put {name}.py in a package, "
            mend += f"lab/{name}.py is 'lab.{name}'"
        return fault(problem, mend)


def _is_module(name: str) -> bool:
    """Whether Python would find a single file of somebody's own as the module ``name``."""
    if not name.isidentifier() or name in {"__main__", *sys.stdlib_module_names}:
        return False
    spec = find_spec(name)
    return spec is not None and spec.has_location and spec.submodule_search_locations is None


Params = SerializeAsAny[Config]
"""The parameters of a plugin, of its own class."""


def left_out() -> Any:
    """Return the default of a table: one without keys, which validation fills with defaults."""
    return Field(default_factory=dict, validate_default=True)


class Choice(Config):
    """Base of the tables that choose a plugin: the field called ``KEY`` names it, ``params`` comes later."""

    KIND: ClassVar[Kind[Any]]
    KEY: ClassVar[str] = "name"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Describe the two fields, where the class does not do so itself."""
        super().__pydantic_init_subclass__(**kwargs)
        if not hasattr(cls, "KIND"):
            return
        word, folder = cls.KIND.word, cls.KIND.folder
        for key, text in (
            (cls.KEY, f"{word.capitalize()}: one of ``{folder}``, or a dotted path."),
            ("params", f"Parameters of the {word}."),
        ):
            field = cls.__pydantic_fields__[key]
            field.description = field.description or text

    @field_validator("name", "model", mode="after", check_fields=False)
    @classmethod
    def _exists(cls, name: str) -> str:
        return cls.KIND.known(name)

    @field_validator("params", mode="plain", check_fields=False)
    @classmethod
    def _validated(cls, params: Any, info: ValidationInfo) -> Any:
        if cls.KEY not in info.data:
            # The name is a fault already; nothing can be said about the parameters.
            return params
        return cls.KIND.find(info.data[cls.KEY]).params().model_validate(params)

    def make(self) -> Any:
        """Return a new plugin with these parameters."""
        return self.KIND.find(getattr(self, self.KEY))(getattr(self, "params"))  # noqa: B009


class NamedChoice(Choice):
    """A choice by ``name``."""

    name: str
    params: Params = left_out()


def _spelt_out(value: Any) -> Any:
    """Return a choice's table, which may be written as its name alone."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping | Choice):
        raise fault(f"{quoted(value)} is neither a name nor a table of name and params", "write a name")
    return value


class _ByName:
    """Lets a choice be written as its name alone."""

    def __get_pydantic_core_schema__(self, choice: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return BeforeValidator(_spelt_out, str | choice).__get_pydantic_core_schema__(choice, handler)


T = TypeVar("T", bound=Choice)
OrName = Annotated[T, _ByName()]
"""A choice, as a table or as its name alone: ``OrName[SelectorChoice]``."""


class _Several:
    """Lets choices be written as a list, or as the only one."""

    def __get_pydantic_core_schema__(self, choices: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choice: Any = get_args(choices)[0]
        read = BeforeValidator(
            lambda value: tuple(value) if isinstance(value, list | tuple) else (value,), choice | list[choice]
        )
        return read.__get_pydantic_core_schema__(choices, handler)


Several = Annotated[tuple[OrName[T], ...], _Several()]
"""Choices, in order: a list of tables or names, or one of them: ``Several[ScheduleChoice]``."""
