"""Single values of a document, each valid by itself, whatever is wrong beside it.

Rules between tables read these, so that a fault hides only what depends on the very value that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from fedsim.errors import Fault
from fedsim.scenario import toml
from fedsim.scenario.outline import field_at
from fedsim.scenario.schema import Scenario


class NotValidError(Exception):
    """A value that has a fault, or lies in something that has: nothing can be said about it."""


class Values:
    """What is valid in a document.

    Args:
        document: As it was read, or a whole scenario.
        faults: Those that are known of it.
    """

    def __init__(self, document: Mapping[str, Any] | Scenario, faults: Sequence[Fault] = ()) -> None:
        self._document = document
        self._faulty = [fault.path for fault in faults]

    def at(self, *path: str | int) -> Any:
        """Return a value, or its default where it is left out.

        Raises:
            NotValidError: It has a fault.
        """
        here = toml.path(*path)
        if any(f"{place}.".startswith(f"{here}.") for place in self._faulty):
            raise NotValidError(here)
        item: Any = self._document
        for depth, name in enumerate(path):
            if isinstance(item, Mapping) and name not in item:
                return self._default(path)
            item = _child(item, name, toml.path(*path[:depth]))
        return item

    def names(self, *path: str | int) -> Sequence[str | int]:
        """Return the keys of a table, or the numbers of a list's entries, whether these are valid or not.

        Raises:
            NotValidError: It is neither, or too short.
        """
        here = toml.path(*path)
        if here in self._faulty:
            raise NotValidError(here)
        item: Any = self._document
        for name in path:
            if isinstance(item, Mapping) and name not in item:
                return ()
            item = _child(item, name, here)
        return list(item) if isinstance(item, Mapping) else range(len(item))

    def _default(self, path: tuple[str | int, ...]) -> Any:
        field = field_at(Scenario, self._document, path)
        if field is None or field.is_required():
            raise NotValidError(toml.path(*path))
        return field.get_default(call_default_factory=False)


def _child(item: Any, name: str | int, here: str) -> Any:
    if isinstance(item, BaseModel):
        return getattr(item, str(name))
    if isinstance(item, Mapping):
        return item[name]
    if isinstance(item, list | tuple) and isinstance(name, int) and name < len(item):
        return item[name]
    raise NotValidError(here)
